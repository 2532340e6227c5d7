//! Log files, one per rank, written by a thread of their own: a disk that hangs holds up nobody who has output to log.
//!
//! Invariants, cited by tests:
//! - **RF-1** [`RankFiles::write`] never waits for the disk.
//! - **RF-2** At most [`WAITING`] bytes wait for the disk. Output beyond that is left out of the files, counted, and the file says
//!   how much is missing where.
//! - **RF-3** A file that takes nothing more ends nothing: it is said once, that file is written no more, and its lost lines are counted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};

/// Output of all ranks of a host that waits for a disk which does not take it.
const WAITING: usize = 16 << 20;
/// What a chunk takes beside its bytes, in the queue and in the allocator: output may come byte by byte.
const CHUNK_COST: usize = size_of::<Chunk>() + 32;

/// What the files have to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileEvent {
    /// One cannot be made: what its rank writes goes to no file.
    NotMade {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// Something that a person should know.
    Note(String),
}

/// What to tell a user whose job does not begin since a log file cannot be made.
pub(crate) fn refused_log(path: &Path, why: &str) -> String {
    format!(
        "cannot write {}: {why}: free some space, or give another folder with `log_dir`",
        path.display()
    )
}

/// What to tell a user whose job goes on without a log file (RF-3).
pub(crate) fn broken_log(path: &Path, why: &str) -> String {
    format!(
        "cannot write {}: {why}: the job goes on, and this file gets no more lines",
        path.display()
    )
}

/// The files of all ranks, opened as they begin to write.
pub(crate) struct RankFiles {
    shared: Arc<Shared>,
    /// A forked child has a copy of this, and no thread behind it.
    pid: u32,
}

struct Shared {
    dir: PathBuf,
    queue: Mutex<Queue>,
    changed: Condvar,
    tell: Box<dyn Fn(FileEvent) + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// What they cost, with the one that is being written.
    bytes: usize,
    /// The thread writes a chunk, which is not among them any more.
    busy: bool,
    /// There was too much, and nothing is taken until half of it is gone: one large hole is better than many small ones.
    is_full: bool,
    /// Somebody has waited in vain for the disk since it last kept up.
    is_slow: bool,
    /// Lines of each rank that were left out and of which its file does not say so yet.
    missing: BTreeMap<u32, u64>,
    /// Ranks whose files take nothing more.
    broken: BTreeMap<u32, Broken>,
    over: bool,
    /// The thread has ended.
    ended: bool,
}

/// Why a file takes nothing more, and how many lines it lacks.
struct Broken {
    path: PathBuf,
    why: String,
    lines: u64,
}

/// Output of one rank; a chunk without bytes makes its file.
struct Chunk {
    rank: u32,
    bytes: Vec<u8>,
}

impl Chunk {
    fn cost(&self) -> usize {
        CHUNK_COST + self.bytes.len()
    }
}

impl RankFiles {
    /// Files in a folder, which is made if need be. Events come from another thread.
    pub(crate) fn open(dir: PathBuf, tell: impl Fn(FileEvent) + Send + Sync + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            dir,
            queue: Mutex::default(),
            changed: Condvar::new(),
            tell: Box::new(tell),
        });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("grampus-logs".to_owned())
            .spawn(move || own.run())?;
        Ok(Self {
            shared,
            pid: std::process::id(),
        })
    }

    /// Makes the file of a rank, which may never write anything.
    pub(crate) fn create(&self, rank: u32) {
        // It takes next to no room, so it waits even where nothing else may.
        self.shared.lock().push(rank, Vec::new());
        self.shared.changed.notify_all();
    }

    /// Hands output over to be written (RF-1).
    pub(crate) fn write(&self, rank: u32, bytes: &[u8]) {
        let mut queue = self.shared.lock();
        if let Some(broken) = queue.broken.get_mut(&rank) {
            broken.lines += lines(bytes);
            return;
        }
        queue.is_full |= queue.bytes + CHUNK_COST + bytes.len() > WAITING;
        if queue.is_full {
            let first = queue.missing.is_empty();
            // The rest of a line that was cut counts as one, so that no hole is empty.
            *queue.missing.entry(rank).or_default() += lines(bytes).max(1);
            drop(queue);
            if first {
                (self.shared.tell)(FileEvent::Note(self.shared.behind()));
            }
            return;
        }
        self.shared.say_missing(&mut queue, Some(rank));
        queue.push(rank, bytes.to_vec());
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Waits for what was handed over, unless the disk is known to be slow; false where it is.
    pub(crate) fn settle(&self, within: Duration) -> bool {
        let mut queue = self.shared.lock();
        if queue.is_slow && !queue.is_empty() {
            return false;
        }
        queue = self.shared.wait(queue, within, Queue::is_empty);
        queue.is_slow = !queue.is_empty();
        !queue.is_slow
    }

    /// Writes what is left, as far as the disk takes it in time; says what is missing.
    pub(crate) fn close(&self, within: Duration) -> Vec<String> {
        let mut queue = self.shared.lock();
        self.shared.say_missing(&mut queue, None);
        queue.over = true;
        self.shared.changed.notify_all();
        queue = self.shared.wait(queue, within, |queue| queue.ended);
        let mut notes: Vec<String> = queue.broken.iter().filter_map(Broken::told).collect();
        if !queue.ended {
            let dir = self.shared.dir.display();
            let waiting: u64 = queue.chunks.iter().map(|chunk| lines(&chunk.bytes)).sum();
            notes.push(format!(
                "{dir} did not take the output of the ranks in time: at least its last {waiting} lines are missing there"
            ));
        }
        notes
    }
}

impl Drop for RankFiles {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.shared.lock().over = true;
            self.shared.changed.notify_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds, or the time is up.
    fn wait<'a>(
        &self,
        mut queue: MutexGuard<'a, Queue>,
        within: Duration,
        holds: impl Fn(&Queue) -> bool,
    ) -> MutexGuard<'a, Queue> {
        let clock = SystemClock::start();
        let end = clock.now() + within;
        while !holds(&queue) && clock.now() < end {
            let left = end.since(clock.now());
            let woken = self.changed.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue
    }

    fn behind(&self) -> String {
        format!(
            "{} does not take the output of the ranks as fast as they write: {} MiB wait, and lines beyond that are left out of \
             the log files",
            self.dir.display(),
            WAITING >> 20
        )
    }

    /// Puts into the file of a rank, or of all, how much is missing there (RF-2).
    fn say_missing(&self, queue: &mut Queue, rank: Option<u32>) {
        let told = queue
            .missing
            .extract_if(.., |other, _| rank.is_none_or(|rank| rank == *other));
        for (rank, count) in told.collect::<Vec<_>>() {
            let text =
                format!("\ngrampus: {count} lines are missing here: this folder did not take them in time\n");
            queue.push(rank, text.into_bytes());
            (self.tell)(FileEvent::Note(format!(
                "{count} lines of rank {rank} are missing in {}",
                file_of(&self.dir, rank).display()
            )));
        }
    }

    /// The thread: one chunk after the other, until it is over.
    fn run(&self) {
        let mut files = HashMap::new();
        let mut queue = self.lock();
        loop {
            if let Some(chunk) = queue.chunks.pop_front() {
                queue.busy = true;
                drop(queue);
                let failed = write(&mut files, &self.dir, &chunk).err();
                queue = self.lock();
                queue.busy = false;
                queue.bytes -= chunk.cost();
                if let Some(failed) = failed {
                    files.remove(&chunk.rank);
                    (self.tell)(queue.give_up(chunk.rank, failed));
                }
                queue.is_full &= queue.bytes > WAITING / 2;
                queue.is_slow &= !queue.is_empty();
            } else if queue.over {
                break;
            } else {
                self.changed.notify_all();
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
        queue.ended = true;
        self.changed.notify_all();
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && !self.busy
    }

    /// Has a chunk written, unless its file takes nothing more.
    fn push(&mut self, rank: u32, bytes: Vec<u8>) {
        if !self.broken.contains_key(&rank) {
            let chunk = Chunk { rank, bytes };
            self.bytes += chunk.cost();
            self.chunks.push_back(chunk);
        }
    }

    /// The file of a rank takes nothing more (RF-3): counts what waits for it as lost.
    fn give_up(&mut self, rank: u32, failed: Failed) -> FileEvent {
        let Failed {
            path,
            error,
            is_made,
            mut lost,
        } = failed;
        let (gone, left): (Vec<_>, Vec<_>) = self.chunks.drain(..).partition(|chunk| chunk.rank == rank);
        self.chunks = left.into();
        for chunk in gone {
            self.bytes -= chunk.cost();
            lost += lines(&chunk.bytes);
        }
        lost += self.missing.remove(&rank).unwrap_or_default();
        let why = error.to_string();
        let event = match is_made {
            true => FileEvent::Note(broken_log(&path, &why)),
            false => FileEvent::NotMade {
                path: path.clone(),
                why: why.clone(),
            },
        };
        let lines = lost;
        self.broken.insert(rank, Broken { path, why, lines });
        event
    }
}

impl Broken {
    /// What a person should know at the end, where lines are missing.
    fn told((rank, Self { path, why, lines }): (&u32, &Self)) -> Option<String> {
        let path = path.display();
        (*lines > 0).then(|| format!("{lines} lines of rank {rank} are missing in {path}: {why}"))
    }
}

fn lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

fn file_of(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("rank-{rank}.log"))
}

/// What became of a chunk that could not be written.
struct Failed {
    path: PathBuf,
    error: io::Error,
    /// There is a file, which took what came before.
    is_made: bool,
    /// Lines that are not in it, or not as a whole.
    lost: u64,
}

fn write(files: &mut HashMap<u32, File>, dir: &Path, chunk: &Chunk) -> Result<(), Failed> {
    let path = file_of(dir, chunk.rank);
    let open = || create_dir_all(dir).and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
    let file = match files.entry(chunk.rank) {
        std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
        std::collections::hash_map::Entry::Vacant(place) => open().map(|file| place.insert(file)),
    };
    let (is_made, mut rest) = (file.is_ok(), &chunk.bytes[..]);
    file.and_then(|file| write_all(file, &mut rest))
        .map_err(|error| Failed {
            path,
            error,
            is_made,
            lost: lines(rest),
        })
}

/// Leaves in `rest` what was not written.
fn write_all(file: &mut File, rest: &mut &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => *rest = &rest[taken..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::mpsc;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(50);

    fn files(dir: &Path) -> (RankFiles, mpsc::Receiver<FileEvent>) {
        let (sender, events) = mpsc::channel();
        let tell = move |event| drop(sender.send(event));
        (RankFiles::open(dir.to_owned(), tell).unwrap(), events)
    }

    /// A file that takes nothing until it is read.
    fn stalled(dir: &Path, rank: u32) -> PathBuf {
        let path = file_of(dir, rank);
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        path
    }

    #[test]
    fn each_rank_has_its_file_also_where_it_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("deep/logs");
        let (files, events) = files(&dir);
        files.create(1);
        files.write(3, b"one\n");
        files.write(3, b"two\n");
        assert!(files.settle(LONG));
        assert_eq!(fs::read(dir.join("rank-3.log")).unwrap(), b"one\ntwo\n");
        assert_eq!(fs::read(dir.join("rank-1.log")).unwrap(), b"");
        files.write(1, b"last");
        assert!(files.close(LONG).is_empty());
        assert_eq!(fs::read(dir.join("rank-1.log")).unwrap(), b"last");
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let (files, events) = files(&folder.path().join("file"));
        files.create(0);
        assert!(files.settle(LONG));
        let FileEvent::NotMade { path, why } = events.recv_timeout(LONG).unwrap() else {
            panic!("another event came first");
        };
        assert!(refused_log(&path, &why).contains("file/rank-0.log"));
        files.create(0);
        files.write(0, b"y\n");
        let told = files.close(LONG);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("1 lines of rank 0 are missing in "),
            "{told:?}"
        );
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn a_full_file_is_said_once_and_the_others_are_written() {
        // RF-3
        let folder = tempfile::tempdir().unwrap();
        symlink("/dev/full", file_of(folder.path(), 0)).unwrap();
        let (files, events) = files(folder.path());
        (0..2).for_each(|rank| files.create(rank));
        for _ in 0..3 {
            (0..2).for_each(|rank| files.write(rank, b"one\ntwo\n"));
        }
        assert!(files.settle(LONG));
        let FileEvent::Note(note) = events.recv_timeout(LONG).unwrap() else {
            panic!("another event came first");
        };
        assert!(
            note.contains("rank-0.log: No space left") && note.contains("goes on"),
            "{note}"
        );
        files.write(0, b"three\n");
        files.write(1, b"three\n");
        let told = files.close(LONG);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("7 lines of rank 0 are missing in "),
            "{told:?}"
        );
        assert!(told[0].ends_with("(os error 28)"), "{told:?}");
        assert_eq!(
            fs::read(file_of(folder.path(), 1)).unwrap(),
            b"one\ntwo\none\ntwo\none\ntwo\nthree\n"
        );
        assert!(events.try_recv().is_err(), "it is said once");
    }

    #[test]
    fn a_disk_that_stalls_holds_up_nobody_and_what_is_missing_is_counted() {
        // RF-1, RF-2
        let folder = tempfile::tempdir().unwrap();
        let path = stalled(folder.path(), 0);
        let (files, events) = files(folder.path());
        let chunk = b"0123456\n".repeat(1 << 17);
        let (taken, lost) = (WAITING / (CHUNK_COST + chunk.len()), 3);
        for _ in 0..taken + lost {
            files.write(0, &chunk);
        }
        // A file that is made meanwhile lacks nothing, and what has no end of a line is missing too.
        files.create(1);
        files.write(0, b"cut");
        assert!(!files.settle(SHORT));
        let FileEvent::Note(note) = events.recv_timeout(LONG).unwrap() else {
            panic!("no note came");
        };
        assert!(note.contains("left out"), "{note}");
        assert!(events.try_recv().is_err(), "it is said once");
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            File::open(path).unwrap().read_to_end(&mut all).unwrap();
            String::from_utf8(all).unwrap()
        });
        assert!(
            files
                .shared
                .wait(files.shared.lock(), LONG, Queue::is_empty)
                .is_empty()
        );
        files.write(0, b"the end\n");
        assert!(files.close(LONG).is_empty());
        drop(files);
        let text = reader.join().unwrap();
        let missing = (lost << 17) + 1;
        assert!(text.ends_with(&format!(
            "\ngrampus: {missing} lines are missing here: this folder did not take them in time\nthe end\n"
        )));
        assert_eq!(text.matches("0123456\n").count(), taken << 17);
        let FileEvent::Note(note) = events.recv_timeout(LONG).unwrap() else {
            panic!("no note came");
        };
        assert!(
            note.starts_with(&format!("{missing} lines of rank 0 are missing in ")),
            "{note}"
        );
        assert_eq!(fs::read(file_of(folder.path(), 1)).unwrap(), b"");
    }

    #[test]
    fn output_that_comes_byte_by_byte_takes_no_more_room() {
        // RF-2
        let folder = tempfile::tempdir().unwrap();
        let path = stalled(folder.path(), 0);
        let (files, _events) = files(folder.path());
        for _ in 0..WAITING / CHUNK_COST + 1 {
            files.write(0, b"x");
        }
        let queue = files.shared.lock();
        let held = queue.chunks.len() * (size_of::<Chunk>() + 32);
        assert!(queue.is_full && held <= WAITING, "{held}");
        drop(queue);
        drop(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    }

    #[test]
    fn closing_does_not_wait_for_a_disk_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let path = stalled(folder.path(), 0);
        let (files, _events) = files(folder.path());
        files.write(0, b"begun\n");
        files.write(0, b"one\ntwo\n");
        let told = files.close(SHORT);
        assert!(told[0].contains("last 2 lines are missing"), "{told:?}");
        // Lets the thread go.
        drop(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    }
}
