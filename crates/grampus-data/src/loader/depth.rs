//! How many batches to have ready.

/// How far ahead to read. Readers that keep up need little; each time they were too slow it doubles.
///
/// ```
/// use grampus_data::loader::Depth;
/// let mut depth = Depth::new(8);
/// assert_eq!(depth.now(), 2);
/// depth.asked(true);
/// assert_eq!(depth.now(), 4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    now: usize,
    most: usize,
}

impl Depth {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self {
            now: most.clamp(1, 2),
            most: most.max(1),
        }
    }

    /// How many to have ready.
    pub fn now(self) -> usize {
        self.now
    }

    /// A batch was asked for, and had to be waited for or not.
    pub fn asked(&mut self, waited: bool) {
        if waited {
            self.now = (self.now * 2).min(self.most);
        }
    }
}
