//! Gradients on their way from the lanes of all workers to one sum.
//!
//! Each lane of this worker has a buffer in shared memory, in which the gradients of all parameters lie one behind the
//! other, in buckets. The model writes there; when the last lane of a worker has written all of a bucket, its sum starts,
//! while the model still works on the next. Buckets start in one order on all workers, whatever order parameters become
//! ready in.
//!
//! Behind the last bucket lies the *tail*, which is summed with it:
//! - the loss, each lane's share of it;
//! - a word for each lane that says that its part has come whole (GR-1: a sum without all lanes is never applied);
//! - a word for each parameter that counts the lanes that used it (GR-2: a parameter that no lane used has no gradient,
//!   which is not the same as a gradient of zero);
//! - a word in which lane 0 says something to all (here: that its buffers have changed);
//! - a word in which any lane says that its worker would rather stop after this step, so that all do so after the same.

use std::ops::Range;
use std::sync::Arc;

use grampus_collective::{CollectiveError, DType, Group, Op, RawHandle, Request, SharedBytes};

/// Bytes of a bucket: large enough that a sum costs what its bytes cost, small enough that the first starts early.
const BUCKET: usize = 8 << 20;
/// Every gradient begins at a cache line.
const ALIGNMENT: usize = 64;
/// Words of the tail before those of the lanes: loss, what lane 0 says, and who wants to stop.
const TAIL_HEAD: usize = 3;

/// Elements of one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Type of its elements.
    pub dtype: DType,
    /// Number of its elements.
    pub count: usize,
}

/// Where a gradient lies in the buffer of a lane, in bytes.
pub type Place = Range<usize>;

/// What the sum of a step says.
#[derive(Clone, Debug, PartialEq)]
pub struct Summed {
    /// Sum of the lanes' shares of the loss.
    pub loss: f64,
    /// Parameters that no lane used.
    pub unused: Vec<usize>,
    /// What lane 0 said.
    pub said: f32,
    /// Whether a worker wants to stop after this step.
    pub stops: bool,
}

struct Bucket {
    dtype: DType,
    /// Bytes in the buffer of a lane.
    place: Place,
    members: usize,
    /// Gradients that have yet to come from the present lane.
    pending: usize,
}

/// The gradients of a model on this worker's lanes.
pub struct Gradients {
    group: Arc<Group>,
    lanes: Range<u32>,
    total: u32,
    /// Whether every worker drives exactly the lane of its rank.
    plain: bool,
    buffers: Vec<SharedBytes>,
    places: Vec<Place>,
    bucket_of: Vec<usize>,
    buckets: Vec<Bucket>,
    tail: Place,
    /// Which of this worker's lanes writes now.
    at: usize,
    /// Whether a parameter has come from the present lane.
    came: Vec<bool>,
    launched: usize,
    flying: Vec<RawHandle>,
    /// What was changed after its bucket had started.
    late: Option<usize>,
}

impl Gradients {
    /// Buffers for these parameters, in the order in which they are expected to become ready; `mine` are the lanes of this worker
    /// among all.
    pub fn new(
        group: Arc<Group>,
        mine: Range<u32>,
        lanes: u32,
        parameters: &[Parameter],
    ) -> Result<Self, CollectiveError> {
        let size = group.size();
        if size > lanes as usize {
            return Err(CollectiveError::Argument(format!(
                "{lanes} lanes leave some of {size} workers without any: use at least as many lanes as workers"
            )));
        }
        let mut layout = Layout::default();
        for parameter in parameters {
            layout.add(*parameter);
        }
        let words = TAIL_HEAD + lanes as usize + parameters.len();
        let tail = layout.tail(words * size_of::<f32>());
        let buffers: Result<Vec<SharedBytes>, _> =
            mine.clone().map(|_| group.shared_bytes(layout.end)).collect();
        Ok(Self {
            plain: size == lanes as usize,
            group,
            lanes: mine,
            total: lanes,
            buffers: buffers?,
            came: vec![false; parameters.len()],
            places: layout.places,
            bucket_of: layout.bucket_of,
            buckets: layout.buckets,
            tail,
            at: 0,
            launched: 0,
            flying: Vec::new(),
            late: None,
        })
    }

    /// The lanes of this worker.
    pub fn lanes(&self) -> Range<u32> {
        self.lanes.clone()
    }

    /// Where the gradient of each parameter lies in the buffer of a lane.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The memory of one of this worker's lanes, by its place among them.
    pub fn memory(&self, index: usize) -> Option<&SharedBytes> {
        self.buffers.get(index)
    }

    /// Begins a step of one of this worker's lanes: all of its gradients are zero and none has come.
    pub fn begin(&mut self, index: usize) -> Result<(), CollectiveError> {
        let buffer = self.buffers.get(index).ok_or_else(|| {
            CollectiveError::Argument(format!(
                "this worker drives {} lanes, there is none at {index}",
                self.buffers.len()
            ))
        })?;
        // SAFETY: no sum is on its way between the end of a step and the first bucket of the next, and the model, which
        // shares this memory, waits for this call.
        unsafe { std::ptr::write_bytes(buffer.as_ptr(), 0, buffer.len()) };
        self.at = index;
        self.launched = 0;
        self.late = None;
        self.came.fill(false);
        for bucket in &mut self.buckets {
            bucket.pending = bucket.members;
        }
        Ok(())
    }

    /// Says that the gradient of a parameter is complete on the present lane. Where that makes a bucket complete on the last
    /// lane of this worker, its sum starts.
    pub fn ready(&mut self, parameter: usize) -> Result<(), CollectiveError> {
        let Some(came) = self.came.get_mut(parameter) else {
            return Err(CollectiveError::Argument(format!(
                "there is no parameter {parameter}"
            )));
        };
        let bucket = self.bucket_of[parameter];
        if *came {
            // A second contribution, from a graph that reaches a parameter twice: fine as long as its sum has not begun.
            if bucket < self.launched {
                self.late = Some(parameter);
            }
            return Ok(());
        }
        *came = true;
        self.buckets[bucket].pending -= 1;
        if self.at + 1 < self.buffers.len() {
            return Ok(());
        }
        // The last bucket waits for `finish`: the tail is not known before.
        while self.launched + 1 < self.buckets.len() && self.buckets[self.launched].pending == 0 {
            let request = self.request(self.launched);
            // SAFETY: the buffers live until the sum is through: `finish` and `drop` wait for it.
            let handle = unsafe { self.group.start_call(request, Box::new(())) }?;
            self.flying.push(handle);
            self.launched += 1;
        }
        Ok(())
    }

    /// Parameters that have not come from the present lane.
    pub fn missing(&self) -> Vec<usize> {
        let missing = self.came.iter().enumerate().filter(|(_, came)| !**came);
        missing.map(|(parameter, _)| parameter).collect()
    }

    /// Ends the step of the present lane: its share of the loss, what lane 0 says to all, and whether this worker wants to
    /// stop after the step.
    pub fn end(&mut self, loss: f32, says: f32, stops: bool) {
        let lane = self.lanes.start as usize + self.at;
        let mut words = vec![0.0_f32; self.tail.len() / size_of::<f32>()];
        words[0] = loss;
        words[1] = if lane == 0 { says } else { 0.0 };
        words[2] = f32::from(u8::from(stops));
        words[TAIL_HEAD + lane] = 1.0;
        let counts = &mut words[TAIL_HEAD + self.total as usize..];
        for (word, came) in counts.iter_mut().zip(&self.came) {
            *word = f32::from(u8::from(*came));
        }
        self.write_tail(&words);
    }

    /// Says that the present lane has no rows in this batch: it counts as zero, and its part is whole.
    pub fn skip(&mut self, index: usize) -> Result<(), CollectiveError> {
        self.begin(index)?;
        self.end(0.0, 0.0, false);
        Ok(())
    }

    /// Sums what is left, waits for all of it, and says what came out. Where `gives_up` says so, it is given up and the
    /// group ends.
    pub fn finish(&mut self, gives_up: &dyn Fn() -> bool) -> Result<Summed, CollectiveError> {
        if let Some(parameter) = self.late {
            return Err(CollectiveError::Argument(format!(
                "parameter {parameter} received a second gradient after its sum had begun: a parameter that one \
                 backward reaches twice must not go through reentrant activation checkpointing; pass \
                 use_reentrant=False there"
            )));
        }
        for index in self.launched..self.buckets.len() {
            let request = self.request(index);
            // SAFETY: this thread waits for it, and has the buffers to itself.
            unsafe { self.group.call(request, gives_up) }?;
        }
        self.launched = self.buckets.len();
        for handle in self.flying.drain(..) {
            handle.wait(gives_up)?;
        }
        self.summed()
    }

    fn summed(&self) -> Result<Summed, CollectiveError> {
        let words = self.read_tail();
        let lanes = &words[TAIL_HEAD..TAIL_HEAD + self.total as usize];
        if let Some(lane) = lanes.iter().position(|word| *word != 1.0) {
            return Err(CollectiveError::Lanes(format!(
                "the part of lane {lane} did not come whole: the step is not applied"
            )));
        }
        let counts = &words[TAIL_HEAD + self.total as usize..];
        let unused = counts.iter().enumerate().filter(|(_, count)| **count == 0.0);
        Ok(Summed {
            loss: f64::from(words[0]),
            said: words[1],
            stops: words[2] != 0.0,
            unused: unused.map(|(parameter, _)| parameter).collect(),
        })
    }

    fn request(&self, index: usize) -> Request {
        let bucket = &self.buckets[index];
        let count = bucket.place.len() / bucket.dtype.size();
        // SAFETY (of the additions): places lie inside the buffers, which were made as long as the layout.
        let starts = self
            .buffers
            .iter()
            .map(|buffer| unsafe { buffer.as_ptr().add(bucket.place.start) });
        if self.plain
            && let Some(buffer) = starts.clone().next()
        {
            // One lane each, in order of rank: the tree of members is the tree of lanes, and sums where it lies.
            return Request::AllReduce {
                dtype: bucket.dtype,
                op: Op::Sum,
                buffer: (buffer, count),
            };
        }
        Request::AllReduceLanes {
            dtype: bucket.dtype,
            op: Op::Sum,
            lanes: self.lanes.clone().zip(starts).collect(),
            count,
        }
    }

    fn write_tail(&self, words: &[f32]) {
        let buffer = &self.buffers[self.at];
        // SAFETY: the tail lies in the buffer, at a multiple of its alignment, and nobody else uses it between sums.
        unsafe {
            let start = buffer.as_ptr().add(self.tail.start).cast::<f32>();
            std::ptr::copy_nonoverlapping(words.as_ptr(), start, words.len());
        }
    }

    fn read_tail(&self) -> &[f32] {
        let Some(buffer) = self.buffers.first() else {
            return &[];
        };
        // SAFETY: as above; all sums are through.
        unsafe {
            let start = buffer.as_ptr().add(self.tail.start).cast::<f32>();
            std::slice::from_raw_parts(start, self.tail.len() / size_of::<f32>())
        }
    }
}

impl Drop for Gradients {
    /// Sums on their way must not outlive the buffers.
    fn drop(&mut self) {
        for handle in self.flying.drain(..) {
            // The group has its own deadlines, and whatever it says, the memory is free afterwards.
            let _ = handle.wait(&|| false);
        }
    }
}

#[derive(Default)]
struct Layout {
    places: Vec<Place>,
    bucket_of: Vec<usize>,
    buckets: Vec<Bucket>,
    end: usize,
}

impl Layout {
    fn add(&mut self, parameter: Parameter) {
        let length = parameter.count * parameter.dtype.size();
        let fits = self
            .buckets
            .last()
            .is_some_and(|bucket| bucket.dtype == parameter.dtype && bucket.place.len() + length <= BUCKET);
        if !fits {
            self.open(parameter.dtype);
        }
        let index = self.buckets.len() - 1;
        let start = self.end;
        self.end = aligned(start + length);
        self.places.push(start..start + length);
        self.bucket_of.push(index);
        let bucket = &mut self.buckets[index];
        bucket.members += 1;
        bucket.place.end = self.end;
    }

    fn open(&mut self, dtype: DType) {
        self.buckets.push(Bucket {
            dtype,
            place: self.end..self.end,
            members: 0,
            pending: 0,
        });
    }

    /// The tail is of single precision, and goes with the last bucket where that is so too.
    fn tail(&mut self, length: usize) -> Place {
        if self
            .buckets
            .last()
            .is_none_or(|bucket| bucket.dtype != DType::F32)
        {
            self.open(DType::F32);
        }
        let start = self.end;
        self.end = aligned(start + length);
        if let Some(bucket) = self.buckets.last_mut() {
            bucket.place.end = self.end;
        }
        start..start + length
    }
}

fn aligned(offset: usize) -> usize {
    offset.next_multiple_of(ALIGNMENT)
}
