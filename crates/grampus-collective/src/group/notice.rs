//! News of lost members that come from elsewhere.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Inner;
use crate::CollectiveError;
use crate::error::Loss;

/// Lets another thread end a group of which a member is lost. It does not keep the group alive.
///
/// Members notice by themselves that another died, where its process or its connection tells. A host that is cut off
/// tells nothing, and a driver that watches over it by other means may know long before the calls run out of patience.
pub struct Notice(Weak<Inner>);

impl Notice {
    pub(super) fn to(group: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(group))
    }

    fn group(&self) -> Option<Arc<Inner>> {
        self.0.upgrade().filter(|group| !group.engine.is_closed())
    }

    /// Whether the group is still there, and was not closed.
    pub fn is_open(&self) -> bool {
        self.group().is_some()
    }

    /// The rank that errors call so is lost: calls of this host's members end within moments, and further ones at once.
    /// False where the group is gone, and nothing more needs to be told.
    pub fn lost(&self, label: u32) -> bool {
        let Some(group) = self.group() else {
            return false;
        };
        let roster = &group.roster;
        let rank = roster.labels.iter().position(|known| *known == label);
        if let Some(rank) = rank.filter(|rank| *rank != roster.me && !group.segment.is_inherited()) {
            // Where another cause came first, that one stays.
            group.segment.end(&CollectiveError::PeerLost {
                rank: label,
                host: roster.hosts[rank].clone(),
                last_seen: Duration::ZERO,
                how: Loss::GivenUp,
                during: "training".into(),
            });
        }
        true
    }
}
