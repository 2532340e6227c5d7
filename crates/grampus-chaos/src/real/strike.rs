//! How a fault comes.

use std::fs;
use std::time::Duration;

use grampus_core::Clock;
use rustix::process::Signal;

use super::error::ChaosError;
use super::fault::{DRAWN_FOR, Fault, Kind};
use super::flood::Flood;
use super::ledger;
use super::measure::Struck;
use super::network::{Network, listening_ports};
use super::process::{command_line, lives, marked, signal, wait_gone};
use super::run::Run;

/// A run that does no step within this, while a log takes nothing, stands still.
const GOES_ON_WITHIN: Duration = Duration::from_secs(45);
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
            attempts: ledger::attempts(&self.ledger()),
            whole: None,
            hung: false,
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
            Kind::Late => self.make_late(fault)?,
            Kind::StalledLog => self.stall_log(fault)?,
            Kind::HostKill => self.kill_host(fault),
            Kind::Flood => self.flood(fault)?,
            Kind::CutForGood => self.disturb_network(fault)?,
            Kind::Delay | Kind::PacketLoss => {
                self.disturb_network(fault)?;
                self.pass(fault.length);
                self.calm_network(fault)?;
            }
            Kind::Partition | Kind::OneWayCut => {
                self.disturb_network(fault)?;
                // The hosts that remain would use up the steps of the faults that follow.
                self.place.tell("slow", "")?;
                self.pass(self.length(fault));
                self.place.untell("slow");
                self.calm_network(fault)?;
            }
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
            self.count_victims(1);
        }
    }

    fn count_victims(&mut self, more: u64) {
        if let Some(struck) = self.struck.last_mut() {
            struck.victims += more;
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

    /// Workers that are in the run.
    fn workers(&self) -> Vec<i32> {
        let entries = fs::read_dir(self.place.work().join("workers"))
            .into_iter()
            .flatten()
            .flatten();
        let named = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut living: Vec<i32> = named.filter(|pid| lives(*pid)).collect();
        living.sort_unstable();
        living
    }

    /// Workers that are hit; one is always left.
    fn victims(&self, fault: &Fault, count: usize) -> Vec<i32> {
        let mut living = self.workers();
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

    /// How long a fault lasts: those that outlast silence do so whatever the run takes for silence.
    fn length(&self, fault: &Fault) -> Duration {
        match fault.kind {
            Kind::Partition | Kind::OneWayCut | Kind::StalledLog => {
                let drawn_for = DRAWN_FOR.as_secs_f64();
                let factor = self.setting.heartbeat_timeout.as_secs_f64() / drawn_for;
                fault.length.mul_f64(factor)
            }
            _ => fault.length,
        }
    }

    /// A worker stays in its model, and all others wait for it.
    fn make_late(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        let length = fault.length.as_secs_f64().to_string();
        let orders: Vec<String> = self
            .victims(fault, 1)
            .iter()
            .map(|pid| format!("late-{pid}"))
            .collect();
        for order in &orders {
            self.place.tell(order, &length)?;
        }
        self.pass(fault.length);
        // The worker takes it back when it obeys.
        if orders.is_empty() || orders.iter().any(|order| self.place.is_told(order)) {
            self.broken
                .push("no worker was late: none took the order".to_owned());
        }
        Ok(())
    }

    /// Nobody reads what a worker writes, which writes much: the run must go on meanwhile.
    fn stall_log(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        let rank = (fault.first % self.setting.workers as u64) as usize;
        let order = format!("talk-{rank}");
        self.logs.stall(rank);
        self.place.tell(&order, "")?;
        self.pass(self.length(fault));
        self.came();
        let went_on = self.until_within(GOES_ON_WITHIN, |run| run.is_made_good());
        self.place.untell(&order);
        self.logs.flow();
        if !went_on {
            let told = self.story();
            self.broken.push(format!(
                "the run stood still for {GOES_ON_WITHIN:?} while a log was stalled: {told}"
            ));
        }
        Ok(())
    }

    fn kill_host(&mut self, fault: &Fault) {
        let Some(network) = &self.place.network else {
            return;
        };
        let all = network.processes(fault.first);
        let workers = self.workers();
        let hit = all.iter().filter(|pid| workers.contains(pid)).count();
        for pid in all {
            signal(pid, Signal::KILL);
        }
        self.count_victims(hit as u64);
    }

    /// Floods the ports of the driver's host, and kills a worker once they are flooded.
    fn flood(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        if let Some(network) = &self.place.network {
            let ports = listening_ports(self.driver.pid());
            let from = network.host(fault.first);
            self.flood = Some(Flood::start(&self.setting.python, from, Network::DRIVER, &ports)?);
        }
        self.pass(fault.length);
        self.hit(fault, 1, Signal::KILL);
        Ok(())
    }

    fn disturb_network(&mut self, fault: &Fault) -> Result<(), ChaosError> {
        let Some(network) = &self.place.network else {
            return Ok(());
        };
        match fault.kind {
            Kind::Delay => return network.delay(fault.first),
            Kind::PacketLoss => return network.lose_packets(fault.first),
            Kind::OneWayCut => network.cut_one_way(fault.first)?,
            _ => network.cut(fault.first, true)?,
        }
        let workers = self.workers();
        let on_host = network.processes(fault.first);
        let hit = on_host.iter().filter(|pid| workers.contains(pid)).count();
        self.count_victims(hit as u64);
        Ok(())
    }

    fn calm_network(&self, fault: &Fault) -> Result<(), ChaosError> {
        let Some(network) = &self.place.network else {
            return Ok(());
        };
        match fault.kind {
            Kind::Delay | Kind::PacketLoss => network.calm(fault.first),
            Kind::OneWayCut => network.join_one_way(fault.first),
            _ => network.cut(fault.first, false),
        }
    }
}
