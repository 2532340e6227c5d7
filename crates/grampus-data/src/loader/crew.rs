//! The threads that read, and what they are asked for.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::blocks::{Blocks, Picked};
use super::gather::{Batch, Maker, Opened};
use super::sequence::Sequence;
use crate::batch::{Packed, Spare};
use crate::image::{Decoder, Limits};
use crate::{DataError, Place};

type Answer = Result<Batch, Arc<DataError>>;

/// Threads that make batches ready: they are given back in the order in which they were asked for.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Where rows come from.
enum Source {
    Blocks(Box<dyn Blocks>),
    Picked(Box<dyn Picked>),
}

impl Source {
    fn sizes(&self) -> &[u64] {
        match self {
            Self::Blocks(blocks) => blocks.sizes(),
            Self::Picked(rows) => rows.sizes(),
        }
    }

    fn skips(&self) -> bool {
        match self {
            Self::Blocks(blocks) => blocks.skips(),
            Self::Picked(rows) => rows.skips(),
        }
    }

    /// Blocks that are read as a whole, and closed when nobody needs them.
    fn streamed(&self) -> bool {
        matches!(self, Self::Blocks(blocks) if !blocks.held())
    }
}

struct Shared {
    source: Source,
    spare: Spare,
    state: Mutex<State>,
    /// There is work, or it is over.
    work: Condvar,
    /// A batch is ready.
    ready: Condvar,
}

#[derive(Default)]
struct State {
    sequence: Option<Arc<Sequence>>,
    /// Asks by number; those that are ready wait in `answers`.
    asks: BTreeMap<u64, Ask>,
    answers: BTreeMap<u64, Answer>,
    opened: HashMap<usize, Result<Arc<Packed>, Arc<DataError>>>,
    /// Blocks to read, and those that a thread reads.
    wanted: VecDeque<usize>,
    reading: HashSet<usize>,
    /// The number of the next ask, and of the next answer.
    asked: u64,
    answered: u64,
    over: bool,
}

struct Ask {
    places: Range<u64>,
    needs: Vec<usize>,
    taken: bool,
}

enum Work {
    Read(usize),
    Gather(u64, Range<u64>, Opened, Arc<Sequence>),
}

impl Loader {
    /// So many threads over these blocks; at most `ahead` batches are kept for use again.
    pub fn new(blocks: Box<dyn Blocks>, threads: usize, ahead: usize) -> io::Result<Self> {
        Self::over(Source::Blocks(blocks), threads, ahead)
    }

    /// The same over rows that may be elsewhere.
    pub fn picking(rows: Box<dyn Picked>, threads: usize, ahead: usize) -> io::Result<Self> {
        Self::over(Source::Picked(rows), threads, ahead)
    }

    fn over(source: Source, threads: usize, ahead: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            source,
            spare: Spare::new(2 * ahead),
            state: Mutex::default(),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut crew = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&shared);
            let named = std::thread::Builder::new().name("grampus-loader".to_owned());
            crew.threads.push(named.spawn(move || shared.serve())?);
        }
        Ok(crew)
    }

    /// The sizes of the blocks.
    pub fn sizes(&self) -> &[u64] {
        self.shared.source.sizes()
    }

    /// Forgets what was asked for, and takes rows in this order from now on.
    pub fn begin(&self, sequence: Sequence) {
        let mut state = self.shared.lock();
        state.sequence = Some(Arc::new(sequence));
        state.asks.clear();
        state.answers.clear();
        state.wanted.clear();
        state.answered = state.asked;
    }

    /// Asks for the rows at some places, to be read as soon as it can be.
    pub fn ask(&self, places: Range<u64>) {
        let shared = &self.shared;
        let mut state = shared.lock();
        let Some(sequence) = state.sequence.clone() else {
            return;
        };
        let number = state.asked;
        state.asked += 1;
        let near = sequence.near(places.start);
        let ask = Ask {
            needs: match &shared.source {
                Source::Blocks(_) => sequence.blocks(places.clone()),
                Source::Picked(_) => Vec::new(),
            },
            places,
            taken: false,
        };
        shared.want(&mut state, ask.needs.iter().copied());
        if shared.source.streamed() {
            shared.want(&mut state, near.into_iter());
        }
        state.asks.insert(number, ask);
        drop(state);
        shared.work.notify_all();
    }

    /// How many batches were asked for and not yet taken.
    pub fn pending(&self) -> usize {
        let state = self.shared.lock();
        (state.asked - state.answered) as usize
    }

    /// Whether the next batch is ready.
    pub fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        state.answers.contains_key(&state.answered)
    }

    /// The next batch; nothing where it is not ready within the limit.
    pub fn next(&self, limit: Duration) -> Option<Answer> {
        let state = self.shared.lock();
        let waiting = |state: &mut State| !state.answers.contains_key(&state.answered);
        let (mut state, _) = self
            .shared
            .ready
            .wait_timeout_while(state, limit, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        let number = state.answered;
        let answer = state.answers.remove(&number)?;
        state.answered += 1;
        state.asks.remove(&number);
        self.shared.let_go(&mut state);
        Some(answer)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, state: &mut State, blocks: impl Iterator<Item = usize>) {
        for block in blocks {
            let known = state.opened.contains_key(&block)
                || state.reading.contains(&block)
                || state.wanted.contains(&block);
            if !known {
                state.wanted.push_back(block);
            }
        }
    }

    /// Closes the blocks that nobody needs now or soon.
    fn let_go(&self, state: &mut State) {
        if !self.source.streamed() {
            return;
        }
        let mut needed: HashSet<usize> = HashSet::new();
        for ask in state.asks.values() {
            needed.extend(&ask.needs);
            needed.extend(
                state
                    .sequence
                    .iter()
                    .flat_map(|sequence| sequence.near(ask.places.start)),
            );
        }
        if !state.asks.is_empty() {
            state.opened.retain(|block, _| needed.contains(block));
            state.wanted.retain(|block| needed.contains(block));
        }
    }

    fn serve(&self) {
        let mut decoder = Decoder::new(Limits::default());
        while let Some(work) = self.find_work() {
            match work {
                Work::Read(block) => {
                    let Source::Blocks(blocks) = &self.source else {
                        continue;
                    };
                    let read = guarded(|| blocks.read(block)).map_err(Arc::new);
                    let mut state = self.lock();
                    state.reading.remove(&block);
                    state.opened.insert(block, read);
                    drop(state);
                    self.work.notify_all();
                }
                Work::Gather(number, places, blocks, sequence) => {
                    let mut maker = Maker {
                        spare: &self.spare,
                        sequence: &sequence,
                        decoder: &mut decoder,
                        skip: self.source.skips(),
                    };
                    let answer = guarded(|| {
                        let rows = sequence.at(places);
                        match &self.source {
                            Source::Blocks(_) => maker.batch(&rows, &rows, &blocks),
                            Source::Picked(source) => {
                                let mut places = rows.clone();
                                let blocks = Opened(source.pick(&mut places)?);
                                maker.batch(&rows, &places, &blocks)
                            }
                        }
                    });
                    let answer = answer.map_err(Arc::new);
                    let mut state = self.lock();
                    // Whoever began anew does not want it any more.
                    if state.asks.contains_key(&number) {
                        state.answers.insert(number, answer);
                    }
                    drop(state);
                    self.ready.notify_all();
                }
            }
        }
    }

    /// What to do next: a batch whose blocks are open, else a block; waits for either.
    fn find_work(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.over {
                return None;
            }
            if let Some(work) = self.gathering(&mut state) {
                return Some(work);
            }
            if let Some(block) = state.wanted.pop_front() {
                state.reading.insert(block);
                return Some(Work::Read(block));
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn gathering(&self, state: &mut State) -> Option<Work> {
        let sequence = state.sequence.clone()?;
        let State {
            asks,
            opened,
            answers,
            ..
        } = &mut *state;
        for (&number, ask) in asks.iter_mut().filter(|(_, ask)| !ask.taken) {
            match all_opened(&ask.needs, opened) {
                None => {}
                Some(Ok(blocks)) => {
                    ask.taken = true;
                    return Some(Work::Gather(number, ask.places.clone(), blocks, sequence));
                }
                Some(Err(error)) => {
                    ask.taken = true;
                    answers.insert(number, Err(error));
                    self.ready.notify_all();
                }
            }
        }
        None
    }
}

/// Does work that must not take its thread with it: whoever waits for a batch would wait for ever.
fn guarded<T>(work: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let texts = [
            panic.downcast_ref::<String>().cloned(),
            panic.downcast_ref::<&str>().map(ToString::to_string),
        ];
        let text = texts.into_iter().flatten().next().unwrap_or_default();
        Err(DataError::Damaged {
            place: Place::default(),
            why: format!("reading it broke down ({text}): write the files anew, and report this"),
        })
    })
}

/// The blocks of a batch, or the first error of one; nothing while one is still to be read.
fn all_opened(
    needs: &[usize],
    opened: &HashMap<usize, Result<Arc<Packed>, Arc<DataError>>>,
) -> Option<Result<Opened, Arc<DataError>>> {
    let mut found = Vec::with_capacity(needs.len());
    for block in needs {
        match opened.get(block)? {
            Ok(packed) => found.push((*block, Arc::clone(packed))),
            Err(error) => return Some(Err(Arc::clone(error))),
        }
    }
    Some(Ok(Opened(found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Kind, Matrix, Stored};
    use crate::loader::Held;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A block whose rows say which they are.
    fn block(first: u64, rows: u64) -> Packed {
        let numbers: Vec<u8> = (first..first + rows).flat_map(u64::to_ne_bytes).collect();
        Packed {
            rows: rows as usize,
            outputs: vec![Stored::Numbers(Matrix {
                kind: Kind::I64,
                shape: Vec::new(),
                data: Bytes::from(numbers),
            })],
            bad: Vec::new(),
            place: Place::default(),
        }
    }

    fn blocks(sizes: &[u64]) -> Vec<Packed> {
        let mut first = 0;
        let made = sizes.iter().map(|&size| {
            first += size;
            block(first - size, size)
        });
        made.collect()
    }

    fn values(batch: &Batch) -> Vec<u64> {
        let numbers = batch.parts[0].buffer.bytes().chunks_exact(8);
        numbers
            .map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
            .collect()
    }

    /// All rows of an epoch, in batches, of which some are asked for ahead.
    fn epoch(loader: &Loader, sequence: Sequence, size: u64, ahead: usize) -> Vec<Vec<u64>> {
        let rows = sequence.rows();
        loader.begin(sequence);
        let mut asks = (0..rows).step_by(size as usize);
        let mut found = Vec::new();
        loop {
            while loader.pending() < ahead
                && let Some(first) = asks.next()
            {
                loader.ask(first..rows.min(first + size));
            }
            if loader.pending() == 0 {
                return found;
            }
            let batch = loader.next(LIMIT).unwrap().unwrap();
            let values = values(&batch);
            assert_eq!(batch.rows, values);
            found.push(values);
        }
    }

    /// Blocks that are read each time, and count how many are open.
    struct Far {
        held: Held,
        open: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    /// Counts itself.
    struct Counted(Bytes, Arc<AtomicUsize>);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::SeqCst);
        }
    }

    impl Blocks for Far {
        fn sizes(&self) -> &[u64] {
            self.held.sizes()
        }

        fn read(&self, block: usize) -> Result<Arc<Packed>, DataError> {
            let mut read = Packed::clone(&*self.held.read(block)?);
            let open = 1 + self.open.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(open, Ordering::SeqCst);
            if let Stored::Numbers(matrix) = &mut read.outputs[0] {
                let data = std::mem::take(&mut matrix.data);
                matrix.data = Bytes::from_owner(Counted(data, Arc::clone(&self.open)));
            }
            Ok(Arc::new(read))
        }

        fn held(&self) -> bool {
            false
        }

        fn skips(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_stream_opens_two_windows_at_most() {
        let sizes = [10; 40];
        let (open, most) = (Arc::default(), Arc::default());
        let far = Far {
            held: Held::new(blocks(&sizes), false),
            open: Arc::clone(&open),
            most: Arc::clone(&most),
        };
        let loader = Loader::new(Box::new(far), 3, 4).unwrap();
        for window in [1, 4] {
            most.store(0, Ordering::SeqCst);
            let sequence = Sequence::windows(7, 0, &sizes, window);
            let mut rows = epoch(&loader, sequence, 8, 3).concat();
            rows.sort_unstable();
            assert_eq!(rows, (0..400).collect::<Vec<u64>>());
            // The batches asked for ahead may lie in the next window, whose next is wanted then; of one batch before some
            // blocks may still be in use.
            let opened = most.load(Ordering::SeqCst);
            assert!(
                opened <= 3 * window + 3,
                "{opened} blocks with windows of {window}"
            );
        }
        drop(loader);
        assert_eq!(open.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_block_that_cannot_be_read_is_told_where_it_is_needed() {
        struct Damaged(Held);
        impl Blocks for Damaged {
            fn sizes(&self) -> &[u64] {
                self.0.sizes()
            }
            fn read(&self, block: usize) -> Result<Arc<Packed>, DataError> {
                let place = Place::file("b.parquet").row_group(block);
                match block {
                    2 => Err(DataError::Null { place }),
                    3 => unreachable!("a bug"),
                    _ => self.0.read(block),
                }
            }
            fn held(&self) -> bool {
                false
            }
            fn skips(&self) -> bool {
                false
            }
        }
        let loader = Loader::new(Box::new(Damaged(Held::new(blocks(&[4; 4]), false))), 2, 4).unwrap();
        loader.begin(Sequence::in_order(0, 0, &[4; 4]));
        for first in [0, 4, 8, 12] {
            loader.ask(first..first + 4);
        }
        let told: Vec<bool> = (0..4).map(|_| loader.next(LIMIT).unwrap().is_ok()).collect();
        assert_eq!(told, [true, true, false, false]);
        assert!(loader.next(Duration::ZERO).is_none());
    }

    #[test]
    fn bad_rows_leave_holes() {
        let mut bad = block(0, 6);
        bad.bad = vec![crate::batch::Bad {
            row: 4,
            why: "it is null".to_owned(),
        }];
        let loader = Loader::new(Box::new(Held::new(vec![bad], true)), 1, 1).unwrap();
        loader.begin(Sequence::in_order(0, 0, &[6]));
        loader.ask(3..6);
        let batch = loader.next(LIMIT).unwrap().unwrap();
        assert_eq!((values(&batch), batch.skipped.len()), (vec![3, 5], 1));
    }

    #[test]
    fn whoever_begins_anew_gets_nothing_of_before() {
        let loader = Loader::new(Box::new(Held::new(blocks(&[100]), false)), 2, 4).unwrap();
        for first in 0..20 {
            loader.begin(Sequence::in_order(0, 0, &[100]));
            loader.ask(first..first + 10);
            loader.ask(50..60);
            if first % 2 == 0 {
                let batch = loader.next(LIMIT).unwrap().unwrap();
                assert_eq!(values(&batch), (first..first + 10).collect::<Vec<u64>>());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_row_once_whatever_reads(
            sizes in proptest::collection::vec(0..30_u64, 1..12),
            size in 1..20_u64,
            threads in 1..4_usize,
            ahead in 1..5_usize,
            seed: u64,
        ) {
            let loader = Loader::new(Box::new(Held::new(blocks(&sizes), false)), threads, ahead).unwrap();
            let rows: Vec<u64> = (0..sizes.iter().sum()).collect();
            let in_order = epoch(&loader, Sequence::in_order(0, 0, &sizes), size, ahead);
            prop_assert_eq!(in_order.concat(), rows.clone());
            for sequence in [Sequence::shuffled(seed, 1, &sizes), Sequence::windows(seed, 1, &sizes, 3)] {
                let batches = epoch(&loader, sequence.clone(), size, ahead);
                prop_assert_eq!(&batches, &epoch(&loader, sequence, size, 1));
                let mut found = batches.concat();
                found.sort_unstable();
                prop_assert_eq!(found, rows.clone());
            }
        }
    }
}
