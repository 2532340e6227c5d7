//! Faults strike whoever lives when they come.

use std::time::Duration;

use grampus_core::Exit;

use super::process::Happening;
use super::schedule::{Fault, Intruder, part};
use super::world::{Said, World};

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(count) => {
                for _ in 0..count {
                    self.hit(|world, index| {
                        world.follow(index);
                        world.die(index, Exit::Signal(9));
                    });
                }
            }
            Fault::Exit => self.hit(|world, index| {
                world.later(index, Duration::ZERO, Happening::Die(Exit::Code(7)));
            }),
            Fault::Freeze(length) => self.hit(|world, index| world.freeze(index, length)),
            Fault::Cut(length) => self.hit(|world, index| {
                let process = &mut world.processes[index];
                process.cut_until = process.cut_until.max(world.now + length);
            }),
            Fault::Unlink => self.hit(|world, index| {
                world.say(index, Said::LinkLost);
                world.tell(index, Happening::LinkClosed);
            }),
            Fault::Pause(length) => self.pause(length),
            Fault::Intruder(intruder) => self.intrude(intruder),
        }
    }

    /// Strikes one of those that live and asked to join; nobody where there is none.
    fn hit(&mut self, strike: impl FnOnce(&mut World, usize)) {
        let alive: Vec<usize> = (0..self.processes.len())
            .filter(|index| self.processes[*index].alive && self.processes[*index].booted)
            .collect();
        if !alive.is_empty() {
            let victim = alive[self.random.below(alive.len() as u64) as usize];
            strike(self, victim);
        }
    }

    fn intrude(&mut self, intruder: Intruder) {
        let size = self.schedule.options.size;
        let any = part(&mut self.random, Duration::from_millis(5));
        // Whoever comes first under an id is its holder, so in calm weather a twin comes second.
        let known: Vec<usize> = (0..self.processes.len())
            .filter(|index| self.processes[*index].accepted || !self.schedule.calm)
            .collect();
        let (worker, slot) = match intruder {
            Intruder::Stranger => (self.fresh_id(), None),
            Intruder::Twin if !known.is_empty() => {
                let index = known[self.random.below(known.len() as u64) as usize];
                (self.processes[index].worker, self.processes[index].slot)
            }
            Intruder::Twin | Intruder::Usurper => {
                let slot = self.random.below(u64::from(size)) as u32;
                (self.fresh_id(), Some(slot))
            }
            Intruder::Outsider => (self.fresh_id(), Some(size)),
        };
        self.come(worker, slot, any);
    }
}
