//! The shared memory of a group on one host, as one member sees it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use grampus_net::Memory;
use memmap2::{MmapOptions, MmapRaw};
use rustix::time::ClockId;

use super::fault::Fault;
use super::fork::Owner;
use super::line::{Block, Line};
use super::word::Word;
use super::{Arena, Layout, presence};
use crate::CollectiveError;

/// The most that a process can map, with room for the rest: half of what 47 bits address.
const ADDRESSES: u64 = 1 << 46;

/// What stands at the start of a segment.
#[repr(C, align(64))]
struct Front {
    fault: Fault,
}

/// A mapping of the group's memory. Its creator passes the descriptor on; nothing has a name in the file system.
pub(crate) struct Segment {
    map: MmapRaw,
    arena: OnceLock<Arena>,
    memory: Memory,
    layout: Layout,
    me: usize,
    owner: Owner,
    /// Nanoseconds between two signs of life after which this process must have stood still.
    standstill: AtomicU64,
    /// When it last went on after that.
    resumed: AtomicU64,
}

impl Segment {
    /// New memory for a group. The arena has as much room for each member as the host has memory, and takes none of it
    /// before it is used.
    pub fn create(layout: Layout) -> Result<Memory, CollectiveError> {
        let info = rustix::system::sysinfo();
        let host = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
        let largest = rustix::process::getrlimit(rustix::process::Resource::Fsize)
            .current
            .unwrap_or(u64::MAX);
        let fixed = layout.arena() as u64;
        if largest < fixed {
            return Err(CollectiveError::System(format!(
                "the group needs {fixed} bytes of shared memory, the limit of a file is {largest}: raise `ulimit -f`"
            )));
        }
        let arena = host.saturating_mul(layout.members() as u64).min(ADDRESSES);
        Ok(Memory::create_shared((fixed + arena).min(largest))?)
    }

    /// Maps the memory as local member `me` and shows that this process lives.
    pub fn join(memory: Memory, layout: Layout, me: usize) -> Result<Self, CollectiveError> {
        if memory.len() < layout.arena() as u64 {
            return Err(CollectiveError::System(format!(
                "the group's shared memory has {} bytes and needs {}: raise `ulimit -f`",
                memory.len(),
                layout.arena()
            )));
        }
        let fd = rustix::fd::AsRawFd::as_raw_fd(&memory.fd());
        let map = MmapOptions::new()
            .len(layout.arena())
            .map_raw(fd)
            .map_err(|error| CollectiveError::System(format!("cannot map shared memory: {error}")))?;
        let segment = Self {
            map,
            arena: OnceLock::new(),
            memory,
            layout,
            me,
            owner: Owner::here(),
            standstill: AtomicU64::new(u64::MAX),
            resumed: AtomicU64::new(0),
        };
        presence::appear(segment.memory.fd(), me)?;
        let block = segment.block(me);
        block.process.store(this_process(), Ordering::Relaxed);
        segment.beat();
        Ok(segment)
    }

    /// Whether this process was forked from the member: all of it is still the parent's then.
    pub fn is_inherited(&self) -> bool {
        self.owner.is_parent()
    }

    /// Which local member this is.
    pub fn me(&self) -> usize {
        self.me
    }

    /// Where things lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The block of a local member.
    pub fn block(&self, member: usize) -> &Block {
        // SAFETY: the layout keeps blocks apart, aligned and inside the mapping; all fields are atomic.
        unsafe { &*self.at(self.layout.member(member)).cast::<Block>() }
    }

    /// What a local member says in a phase.
    pub fn line(&self, member: usize, phase: u32) -> &Line {
        &self.block(member).lines[phase as usize & 1]
    }

    /// The first cause.
    pub fn fault(&self) -> &Fault {
        &self.front().fault
    }

    /// Ends the group for all members of this host, and wakes those who wait. False where another cause came first.
    pub fn end(&self, cause: &CollectiveError) -> bool {
        let is_first = self.fault().set(cause);
        for member in 0..self.layout.members() {
            for line in &self.block(member).lines {
                line.word.wake();
            }
        }
        is_first
    }

    /// A slot of a rank.
    pub fn slot(&self, rank: usize, turn: usize) -> *mut u8 {
        self.at(self.layout.slot(rank, turn))
    }

    /// Shows that this process lives.
    pub fn beat(&self) {
        let now = monotonic().as_nanos() as u64;
        // Whichever thread comes first after a standstill sees the gap.
        let last = self.block(self.me).beat.swap(now, Ordering::Relaxed);
        if now.saturating_sub(last) > self.standstill.load(Ordering::Relaxed) {
            self.resumed.store(now, Ordering::Relaxed);
        }
    }

    /// Says that signs of life will follow each other within this time while the process runs at all.
    pub fn expect_beats(&self, within: Duration) {
        let nanos = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        self.standstill.store(nanos, Ordering::Relaxed);
    }

    /// When this process last went on after it had stood still, such as with a job that was suspended.
    pub fn resumed(&self) -> Duration {
        Duration::from_nanos(self.resumed.load(Ordering::Relaxed))
    }

    /// How long ago a local member gave its last sign of life.
    pub fn last_seen(&self, member: usize) -> Duration {
        let beat = Duration::from_nanos(self.block(member).beat.load(Ordering::Relaxed));
        monotonic().saturating_sub(beat)
    }

    /// Bytes of a call have moved between this member and another host. The number is one that no member had before, as far
    /// as this host knows: so it grows on each host that hears of it, and grows no more once no byte moves anywhere.
    pub fn count_moved(&self) {
        self.set_moved(self.moved().saturating_add(1));
    }

    /// A peer told its host's number: news where it is higher than this host's.
    pub fn hear_moved(&self, told: u64) {
        if told > self.moved() {
            self.set_moved(told);
        }
    }

    /// The highest number of the members of this host.
    pub fn moved(&self) -> u64 {
        self.highest(|block| &block.moved)
    }

    /// When that last grew.
    pub fn moved_at(&self) -> Duration {
        Duration::from_nanos(self.highest(|block| &block.moved_at))
    }

    fn set_moved(&self, number: u64) {
        let block = self.block(self.me);
        // Two threads write it: the one that drives calls, and the heartbeat's.
        block.moved.fetch_max(number, Ordering::Relaxed);
        let now = monotonic().as_nanos() as u64;
        block.moved_at.fetch_max(now, Ordering::Relaxed);
    }

    fn highest(&self, word: impl Fn(&Block) -> &AtomicU64) -> u64 {
        let words = (0..self.layout.members()).map(|member| word(self.block(member)).load(Ordering::Relaxed));
        words.max().unwrap_or(0)
    }

    /// Whether the process of a local member lives. A thread of this process does.
    pub fn lives(&self, member: usize) -> bool {
        self.block(member).process.load(Ordering::Relaxed) == this_process()
            || presence::lives(self.memory.fd(), member)
    }

    /// The arena, mapped when it is first asked for: some hosts count what is mapped, not what is used.
    pub fn arena(&self) -> Result<&Arena, CollectiveError> {
        if let Some(arena) = self.arena.get() {
            return Ok(arena);
        }
        let start = self.layout.arena() as u64;
        let arena = Arena::map(&self.memory, start, self.me, self.layout.members())?;
        Ok(self.arena.get_or_init(|| arena))
    }

    /// The offset of a buffer, where it lies in the arena.
    pub fn place_of(&self, buffer: *const u8, len: usize) -> Option<usize> {
        self.arena.get()?.offset_of(buffer, len)
    }

    fn front(&self) -> &Front {
        // SAFETY: the first page of the mapping; all fields are atomic.
        unsafe { &*self.map.as_ptr().cast::<Front>() }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.map.len());
        // SAFETY: offsets come from the layout that the mapping was made for.
        unsafe { self.map.as_mut_ptr().add(offset) }
    }
}

/// The host's monotonic clock: the one clock that processes of a host share.
pub(crate) fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A number that no other process of the group has.
fn this_process() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    // Process ids of containers on one host may be equal; the moment beside it makes a clash as good as impossible.
    *NUMBER.get_or_init(|| u64::from(std::process::id()) << 40 ^ monotonic().as_nanos() as u64)
}
