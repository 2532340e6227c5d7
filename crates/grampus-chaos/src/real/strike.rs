//! How a fault comes.

use std::fs;
use std::time::Duration;

use grampus_core::Clock;
use rustix::process::Signal;

use super::error::ChaosError;
use super::fault::{Fault, Kind};
use super::measure::Struck;
use super::process::{command_line, lives, marked, signal, wait_gone};
use super::run::Run;

/// Within this all processes of a killed driver must be gone.
const ORPHANS_GONE_WITHIN: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// Strikes, and returns when the last part of the fault has come.
    pub(super) fn strike(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        let now = self.clock.now();
        self.struck.push(Struck {
            kind: fault.kind,
            at: now,
            last: now,
            step: self.step,
            victims: 0,
            noticed: None,
            heard: Vec::new(),
        });
        match fault.kind {
            Kind::Kill => self.hit(fault, 1, Signal::KILL),
            Kind::DoubleKill => self.hit(fault, 2, Signal::KILL),
            Kind::Stop => self.hit(fault, 1, Signal::STOP),
            Kind::KillInRecovery => {
                self.hit(fault, 1, Signal::KILL);
                self.pass(fault.length);
                self.hit(fault, 1, Signal::KILL);
            }
            Kind::Pause => self.pause(fault),
            Kind::DriverKill => return self.kill_driver(),
            Kind::DiskFull => {
                self.place.fill_disk()?;
                self.pass(fault.length);
                self.place.free_disk();
            }
            Kind::Partition | Kind::Delay | Kind::PacketLoss => self.disturb_network(fault)?,
        }
        self.came();
        Ok(())
    }

    /// The last part of the fault has come.
    fn came(&mut self) {
        let now = self.clock.now();
        if let Some(struck) = self.struck.last_mut() {
            struck.last = now;
        }
    }

    fn hit(&mut self, fault: &Fault, count: usize, how: Signal) {
        for pid in self.victims(fault, count) {
            signal(pid, how);
            if let Some(struck) = self.struck.last_mut() {
                struck.victims += 1;
            }
        }
    }

    fn pause(&mut self, fault: &Fault) {
        let victims = self.victims(fault, 1);
        for pid in &victims {
            signal(*pid, Signal::STOP);
        }
        self.pass(fault.length);
        for pid in victims {
            signal(pid, Signal::CONT);
        }
    }

    /// Workers that are in the run; one of them is always left.
    fn victims(&self, fault: &Fault, count: usize) -> Vec<i32> {
        let entries = fs::read_dir(self.place.work().join("workers"))
            .into_iter()
            .flatten()
            .flatten();
        let named = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut living: Vec<i32> = named.filter(|pid| lives(*pid)).collect();
        living.sort_unstable();
        let start = fault.first.checked_rem(living.len() as u64).unwrap_or(0) as usize;
        living.rotate_left(start);
        living.truncate(count.min(living.len().saturating_sub(1)));
        living
    }

    /// Kills the driver; once all that it had started is gone, another one goes on.
    fn kill_driver(&mut self) -> Result<(), ChaosError> {
        let driver = self.driver.pid();
        signal(driver, Signal::KILL);
        let orphans = marked(&self.place.mark())
            .into_iter()
            .filter(|pid| *pid != driver)
            .collect();
        for pid in wait_gone(orphans, ORPHANS_GONE_WITHIN, &self.clock) {
            let what = command_line(pid);
            self.broken.push(format!(
                "process {pid} outlived its driver by {ORPHANS_GONE_WITHIN:?}: {what}"
            ));
        }
        let noticed = self.clock.now();
        if let Some(struck) = self.struck.last_mut() {
            struck.noticed = Some(noticed);
        }
        self.until(|run| run.is_gone());
        self.resume()
    }

    fn disturb_network(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        let Some(network) = &self.place.network else {
            return Ok(());
        };
        match fault.kind {
            Kind::Delay => network.delay(fault.first)?,
            Kind::PacketLoss => network.lose_packets(fault.first)?,
            _ => {
                network.cut(fault.first, true)?;
                if let Some(struck) = self.struck.last_mut() {
                    struck.victims += 1;
                }
            }
        }
        self.pass(fault.length);
        match fault.kind {
            Kind::Delay | Kind::PacketLoss => network.calm(fault.first),
            _ => network.cut(fault.first, false),
        }
    }
}
