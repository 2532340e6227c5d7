//! Where a worker stands in a run.

use std::ops::Range;
use std::sync::Arc;

use grampus_collective::{CollectiveError, Group};

use super::job::Layout;
use crate::plan::lanes_of;

/// Among whom a worker is, and which lanes it drives.
#[derive(Clone)]
pub struct Seat {
    /// All workers of the run.
    pub group: Arc<Group>,
    /// The lanes of this one.
    pub mine: Range<u32>,
    /// What is equal on all of them.
    pub layout: Layout,
    gives_up: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Seat {
    /// The lanes of this member of a group; calls end early where `gives_up` says so.
    pub fn new(group: Arc<Group>, layout: Layout, gives_up: Arc<dyn Fn() -> bool + Send + Sync>) -> Self {
        Self {
            mine: lanes_of(group.rank(), group.size(), layout.lanes),
            group,
            layout,
            gives_up,
        }
    }

    /// Whether it was told to end.
    pub fn gives_up(&self) -> bool {
        (self.gives_up)()
    }

    /// The same as a function, for calls that wait.
    pub(super) fn hope(&self) -> &(dyn Fn() -> bool + Send + Sync) {
        &*self.gives_up
    }

    /// Whether it speaks for all.
    pub fn leads(&self) -> bool {
        self.group.rank() == 0
    }

    /// What each worker has to say, in order of rank.
    pub(super) fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CollectiveError> {
        self.group.gather_bytes_while(mine, self.hope())
    }
}
