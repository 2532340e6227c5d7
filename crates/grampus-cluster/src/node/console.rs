//! What the ranks of a node write, shown by a thread of its own: a console that nobody reads holds up the ranks, as a full pipe
//! does, and nothing else.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use grampus_core::{Clock, SystemClock};

use crate::driver::{Line, Lines};
use crate::supervisor::Stream;

/// Tells the user something on standard error; one that takes nothing, such as a file on a full disk, ends no rank.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "grampus: {text}");
}

/// Output that waits for a slow console; with more, whoever brings it waits as well.
const ROOM: usize = 1 << 20;

/// The console. Copies are the same one.
#[derive(Clone)]
pub(super) struct Console(Arc<Shared>);

struct Shared {
    /// Whether output and errors are shown at all.
    shown: (bool, bool),
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<(u32, Stream, Vec<u8>)>,
    bytes: usize,
    /// The thread shows some.
    busy: bool,
    /// Ranks of the program: a single one needs no number.
    world: u32,
    /// The ranks are about to end: nobody waits any more.
    lets_pass: bool,
    over: bool,
    ended: bool,
}

impl Console {
    pub(super) fn open(shown: (bool, bool)) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            shown,
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("grampus-console".to_owned())
            .spawn(move || own.run())?;
        Ok(Self(shared))
    }

    /// From now on the lines of so many ranks come.
    pub(super) fn begin(&self, world: u32) {
        let mut queue = self.0.lock();
        (queue.world, queue.lets_pass) = (world, false);
    }

    /// Takes output; where there is much already, once some of it is shown.
    pub(super) fn push(&self, rank: u32, stream: Stream, bytes: Vec<u8>) {
        let mut queue = self.0.lock();
        while queue.bytes > ROOM && !queue.lets_pass {
            queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += bytes.len();
        queue.chunks.push_back((rank, stream, bytes));
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Ranks are told to end, and their ends come behind their output.
    pub(super) fn let_pass(&self) {
        self.0.lock().lets_pass = true;
        self.0.changed.notify_all();
    }

    /// Waits until all that came is shown; false where that takes longer.
    pub(super) fn settle(&self, within: Duration) -> bool {
        self.0
            .wait(within, |queue| queue.chunks.is_empty() && !queue.busy)
    }

    /// No more comes.
    pub(super) fn close(&self) {
        self.0.lock().over = true;
        self.0.changed.notify_all();
    }

    /// After `close`, whether all is shown within this time.
    pub(super) fn is_done(&self, within: Duration) -> bool {
        self.0.wait(within, |queue| queue.ended)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, within: Duration, holds: impl Fn(&Queue) -> bool) -> bool {
        let clock = SystemClock::start();
        let end = clock.now() + within;
        let mut queue = self.lock();
        while !holds(&queue) {
            let left = end.since(clock.now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn run(&self) {
        let mut lines = Lines::default();
        let mut queue = self.lock();
        loop {
            let whole = match queue.chunks.pop_front() {
                Some((rank, stream, bytes)) => {
                    queue.bytes -= bytes.len();
                    lines.push(rank, stream, &bytes)
                }
                None if queue.over => break,
                None => {
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            };
            queue.busy = true;
            let world = queue.world;
            drop(queue);
            self.print(whole, world);
            queue = self.lock();
            queue.busy = false;
            self.changed.notify_all();
        }
        let world = queue.world;
        drop(queue);
        self.print(lines.rest(), world);
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn print(&self, lines: Vec<Line>, world: u32) {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        for line in lines {
            // A closed console is no reason to end the ranks.
            let _ = match line.stream {
                Stream::Out if self.shown.0 => {
                    let prefix = prefix(line.rank, world, coloured(&out));
                    writeln!(out, "{prefix}{}", line.text)
                }
                Stream::Err if self.shown.1 => {
                    let prefix = prefix(line.rank, world, coloured(&err));
                    writeln!(err, "{prefix}{}", line.text)
                }
                Stream::Out | Stream::Err => Ok(()),
            };
        }
    }
}

/// One colour a rank, in turn; none of them is red, which means an error elsewhere.
const COLOURS: [u8; 5] = [36, 33, 35, 32, 34];

/// What stands before a rank's line. A single rank needs no number.
fn prefix(rank: u32, world: u32, coloured: bool) -> String {
    match (world, coloured) {
        (..=1, _) => String::new(),
        (_, false) => format!("[rank {rank}] "),
        (_, true) => format!(
            "\x1b[{}m[rank {rank}]\x1b[0m ",
            COLOURS[rank as usize % COLOURS.len()]
        ),
    }
}

fn coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
