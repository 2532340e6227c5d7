//! Where a run takes place: a folder of its own, and where faults need them, a small disk and a network.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::error::{ChaosError, during};
use super::fault::Kind;
use super::logs::LogFolder;
use super::network::{Network, command};
use super::owner::Owner;

/// Which of these kinds cannot be played here, each with the reason.
pub fn unavailable(kinds: &[Kind]) -> Vec<(Kind, String)> {
    let asked = |kind: &Kind| match kind {
        Kind::DiskFull => Place::new(true, 0, 0).map(drop),
        Kind::Delay => Network::join(1, TRIAL).and_then(|network| network.delay(0)),
        Kind::PacketLoss => Network::join(1, TRIAL).and_then(|network| network.lose_packets(0)),
        Kind::OneWayCut => Network::join(1, TRIAL).and_then(|network| network.cut_one_way(0)),
        kind if kind.is_network() => Network::join(1, TRIAL).map(drop),
        _ => Ok(()),
    };
    let failed = |kind: &Kind| asked(kind).err().map(|error| (*kind, error.to_string()));
    kinds.iter().filter_map(failed).collect()
}

/// The number of a network that is only tried, beside those of runs.
const TRIAL: u64 = u64::MAX;

/// How hosts can be made slow here, in words; nothing where that cannot be tried.
pub fn slow_links() -> Option<&'static str> {
    let network = Network::join(1, TRIAL).ok()?;
    network.delay(0).ok()?;
    Some(match network.has_netem() {
        true => "what a slow host sends comes 20 ms late (netem)",
        false => "this kernel has no netem: a slow host sends 200 kbit/s at most (tbf)",
    })
}

/// The folders of one run. All is removed when it is dropped.
pub(super) struct Place {
    // Before the folder that it is mounted in: fields are dropped in this order.
    disk: Option<Disk>,
    /// Where workers are, if not on this machine itself.
    pub(super) network: Option<Network>,
    folder: TempDir,
}

impl Place {
    /// Makes the place of a run; with `hosts` the workers are on so many of their own.
    pub(super) fn new(small_disk: bool, hosts: usize, run: u64) -> Result<Place, ChaosError> {
        // Short: the path of a socket holds 107 bytes.
        let prefix = format!("{}-", Owner::this());
        let folder = during(
            "cannot make a folder",
            tempfile::Builder::new().prefix(&prefix).tempdir(),
        )?;
        let mut place = Place {
            disk: None,
            network: None,
            folder,
        };
        let work = place.work();
        let within_work = ["workers", "orders", "saved"].map(|name| work.join(name));
        for path in within_work.into_iter().chain([place.temporary()]) {
            // Grampus keeps out of folders that others can read.
            let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(&path);
            during(format!("cannot make {}", path.display()), made)?;
        }
        if small_disk {
            place.disk = Some(Disk::mount(&place.saved())?);
        }
        if hosts > 0 {
            place.network = Some(Network::join(hosts, run)?);
        }
        Ok(place)
    }

    /// Sockets and the like of the job; its name marks all processes of the run.
    pub(super) fn runtime(&self) -> PathBuf {
        self.folder.path().join("runtime")
    }

    /// For temporary files.
    pub(super) fn temporary(&self) -> PathBuf {
        self.runtime().join("tmp")
    }

    /// What the run itself writes.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn saved(&self) -> PathBuf {
        self.work().join("saved")
    }

    /// A file by which the driver's workers are told to do something while it is there; with one's number, that one.
    fn order(&self, name: &str) -> PathBuf {
        self.work().join("orders").join(name)
    }

    /// Gives an order.
    pub(super) fn tell(&self, name: &str, text: &str) -> Result<(), ChaosError> {
        // It appears with all that is in it.
        let draft = self.work().join("draft");
        let told = fs::write(&draft, text).and_then(|()| fs::rename(&draft, self.order(name)));
        during(format!("cannot write the order {name}"), told)
    }

    /// Whether an order is given and was not taken back.
    pub(super) fn is_told(&self, name: &str) -> bool {
        self.order(name).exists()
    }

    /// Takes an order back.
    pub(super) fn untell(&self, name: &str) {
        let _ = fs::remove_file(self.order(name));
    }

    /// The folder of the output of `workers` ranks, each of whose files is a pipe.
    pub(super) fn logs(&self, workers: usize) -> Result<LogFolder, ChaosError> {
        LogFolder::make(self.log_folder(), workers)
    }

    /// Where it is.
    pub(super) fn log_folder(&self) -> PathBuf {
        self.work().join("logs")
    }

    /// What stands in the environment of every process of this run, and of no other.
    pub(super) fn mark(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// Leaves no room for checkpoints.
    pub(super) fn fill_disk(&self) -> Result<(), ChaosError> {
        let path = self.filler();
        let mut file = during(format!("cannot open {}", path.display()), fs::File::create(&path))?;
        // Down to single bytes; that nothing more can be written is what is wanted.
        for size in [65_536, 4_096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    /// Gives the room back.
    pub(super) fn free_disk(&self) {
        let _ = fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.saved().join("filler")
    }
}

/// A file system so small that it can be filled.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path) -> Result<Disk, ChaosError> {
        let place = path.display().to_string();
        command(&["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", &place])?;
        Ok(Disk(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = command(&["umount", "--lazy", &self.0.display().to_string()]);
    }
}
