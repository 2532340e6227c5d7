//! Where a worker stands in a run, for whoever asks while its main thread is busy or stuck, and how long it has been in each
//! phase. The main thread writes, any other may read; nobody waits for anybody.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use grampus_collective::Kind;
use grampus_core::Time;

/// What a worker does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It makes the model and opens the data.
    Begin,
    /// It waits for rows.
    Data,
    /// The model works on rows.
    Forward,
    /// Its gradients are made.
    Backward,
    /// It sums gradients with the other workers.
    Sync,
    /// The step is applied.
    Update,
    /// Callbacks, and what they agree on.
    Callbacks,
    /// Validation data is measured.
    Validate,
    /// A checkpoint is written.
    Save,
    /// The loop is over.
    End,
}

const PHASES: [Phase; 10] = [
    Phase::Begin,
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Sync,
    Phase::Update,
    Phase::Callbacks,
    Phase::Validate,
    Phase::Save,
    Phase::End,
];

impl Phase {
    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Data => "data",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Sync => "sync",
            Self::Update => "update",
            Self::Callbacks => "callbacks",
            Self::Validate => "validate",
            Self::Save => "save",
            Self::End => "end",
        }
    }

    /// The phase of this name.
    ///
    /// ```
    /// use grampus_train::whereabouts::Phase;
    /// assert_eq!(Phase::named("sync"), Some(Phase::Sync));
    /// assert_eq!(Phase::named("lunch"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        PHASES.into_iter().find(|phase| phase.name() == name)
    }
}

/// For what a worker waits that others have to do as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A collective call.
    Call(Kind),
    /// The group itself, which forms.
    Group,
    /// A message from another rank, or to it.
    Mail,
    /// A call that was started earlier.
    Handle,
}

// Numbers beside those of the calls.
const GROUP: u8 = 100;
const MAIL: u8 = 101;
const HANDLE: u8 = 102;

impl Wait {
    fn code(self) -> u8 {
        match self {
            Self::Call(kind) => kind as u8,
            Self::Group => GROUP,
            Self::Mail => MAIL,
            Self::Handle => HANDLE,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        match code {
            GROUP => Some(Self::Group),
            MAIL => Some(Self::Mail),
            HANDLE => Some(Self::Handle),
            _ => Kind::from_code(code).map(Self::Call),
        }
    }

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call(kind) => kind.name(),
            Self::Group => "form",
            Self::Mail => "send or recv",
            Self::Handle => "wait",
        }
    }
}

/// Where a worker stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What it does.
    pub phase: Phase,
    /// Since when.
    pub in_phase: Duration,
    /// Since it has finished something: a step, or a batch of validation data.
    pub idle: Duration,
    /// Epochs that are done.
    pub epoch: u64,
    /// Steps of this epoch that are done.
    pub step: u64,
    /// Rows of this epoch that are done, over all workers.
    pub rows: u64,
    /// What it waits for that others have to do as well.
    pub waits_for: Option<Wait>,
}

/// The record of one worker: a few numbers, each written on its own. Whoever reads while it is written may see a phase and the
/// step before it.
///
/// ```
/// use std::time::Duration;
/// use grampus_core::Time;
/// use grampus_train::whereabouts::{Phase, Whereabouts};
///
/// let (start, here) = (Time::ZERO, Whereabouts::default());
/// here.begin(start);
/// here.enter(Phase::Data, start);
/// here.enter(Phase::Forward, start + Duration::from_secs(2));
/// let standing = here.read(start + Duration::from_secs(5));
/// assert_eq!((standing.phase, standing.in_phase), (Phase::Forward, Duration::from_secs(3)));
/// assert_eq!(standing.idle, Duration::from_secs(5));
/// assert_eq!(here.spent(Phase::Data), Duration::from_secs(2));
/// ```
#[derive(Debug, Default)]
pub struct Whereabouts {
    phase: AtomicU8,
    since: AtomicU64,
    advanced: AtomicU64,
    epoch: AtomicU64,
    step: AtomicU64,
    rows: AtomicU64,
    /// 0 where it waits for nobody.
    waits_for: AtomicU8,
    spent: [AtomicU64; PHASES.len()],
}

impl Whereabouts {
    /// A task begins: what was before is forgotten.
    pub fn begin(&self, now: Time) {
        self.phase.store(Phase::Begin as u8, Ordering::Relaxed);
        self.since.store(nanos(now), Ordering::Relaxed);
        self.advanced.store(nanos(now), Ordering::Relaxed);
        self.at(0, 0, 0);
        self.waits(None);
        for spent in &self.spent {
            spent.store(0, Ordering::Relaxed);
        }
    }

    /// From now on the worker is in this phase.
    pub fn enter(&self, phase: Phase, now: Time) {
        let before = self.phase.swap(phase as u8, Ordering::Relaxed);
        let since = self.since.swap(nanos(now), Ordering::Relaxed);
        if let Some(spent) = self.spent.get(usize::from(before)) {
            spent.fetch_add(nanos(now).saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// How far the epoch under way has come.
    pub fn at(&self, epoch: u64, step: u64, rows: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.step.store(step, Ordering::Relaxed);
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// The worker has finished something.
    pub fn advance(&self, now: Time) {
        self.advanced.store(nanos(now), Ordering::Relaxed);
    }

    /// The worker waits for others, or does so no more.
    pub fn waits(&self, wait: Option<Wait>) {
        self.waits_for
            .store(wait.map_or(0, Wait::code), Ordering::Relaxed);
    }

    /// Where the worker stands.
    pub fn read(&self, now: Time) -> Standing {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let since = |number: &AtomicU64| Duration::from_nanos(nanos(now).saturating_sub(get(number)));
        let phase = usize::from(self.phase.load(Ordering::Relaxed));
        Standing {
            phase: PHASES.get(phase).copied().unwrap_or(Phase::Begin),
            in_phase: since(&self.since),
            idle: since(&self.advanced),
            epoch: get(&self.epoch),
            step: get(&self.step),
            rows: get(&self.rows),
            waits_for: Wait::from_code(self.waits_for.load(Ordering::Relaxed)),
        }
    }

    /// How long the worker has been in a phase since the task began, up to the last change.
    pub fn spent(&self, phase: Phase) -> Duration {
        Duration::from_nanos(self.spent[phase as usize].load(Ordering::Relaxed))
    }
}

fn nanos(time: Time) -> u64 {
    // Enough for 584 years.
    (time - Time::ZERO).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_stand_at_their_numbers() {
        for (number, phase) in PHASES.into_iter().enumerate() {
            assert_eq!(phase as usize, number);
            assert_eq!(Phase::named(phase.name()), Some(phase));
        }
    }

    #[test]
    fn what_is_waited_for_is_read_again() {
        let here = Whereabouts::default();
        assert_eq!(here.read(Time::ZERO).waits_for, None);
        for wait in [
            Wait::Call(Kind::AllReduceLanes),
            Wait::Call(Kind::Norm),
            Wait::Group,
            Wait::Mail,
            Wait::Handle,
        ] {
            here.waits(Some(wait));
            assert_eq!(here.read(Time::ZERO).waits_for, Some(wait));
        }
    }

    #[test]
    fn a_new_task_knows_nothing_of_the_last() {
        let (here, later) = (Whereabouts::default(), Time::ZERO + Duration::from_secs(9));
        here.enter(Phase::Sync, Time::ZERO);
        here.at(3, 4, 5);
        here.waits(Some(Wait::Mail));
        here.begin(later);
        let standing = here.read(later);
        assert_eq!(
            (standing.phase, standing.idle, standing.rows),
            (Phase::Begin, Duration::ZERO, 0)
        );
        assert_eq!(
            (standing.waits_for, here.spent(Phase::Begin)),
            (None, Duration::ZERO)
        );
    }
}
