//! News of lost ranks for all groups of a task, those that form among them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Notice;
use crate::CollectiveError;

/// What is known of lost ranks: a group with one of them will never form, and one that has formed ends. Clones know the same.
///
/// Groups belong to the task whose name theirs begins with.
#[derive(Clone, Default)]
pub struct Losses(Arc<Mutex<News>>);

#[derive(Default)]
struct News {
    /// The newest task of which a rank was lost, and that rank.
    lost: Option<(String, u32)>,
    /// Groups that were formed, by name.
    formed: Vec<(String, Notice)>,
}

impl News {
    /// The rank that was lost of the task that a group belongs to.
    fn lost_in(&self, group: &str) -> Option<u32> {
        let (task, rank) = self.lost.as_ref()?;
        let rest = group.strip_prefix(task.as_str())?;
        (rest.is_empty() || rest.starts_with(' ')).then_some(*rank)
    }

    /// Tells the groups that a rank of theirs was lost, and forgets those that are gone.
    fn tell(&mut self) {
        let formed = std::mem::take(&mut self.formed).into_iter();
        self.formed = formed
            .filter(|(name, notice)| match self.lost_in(name) {
                Some(rank) => notice.lost(rank),
                None => notice.is_open(),
            })
            .collect();
    }
}

impl Losses {
    fn news(&self) -> MutexGuard<'_, News> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank of a task is lost.
    pub fn lost(&self, task: String, rank: u32) {
        let mut news = self.news();
        news.lost = Some((task, rank));
        news.tell();
    }

    /// A group was formed; a rank of it may have been lost meanwhile.
    pub fn formed(&self, group: &str, notice: Notice) {
        let mut news = self.news();
        news.formed.push((group.to_owned(), notice));
        news.tell();
    }

    /// Whether a group may still form; if not, who is lost.
    pub fn hope(&self, group: &str) -> Result<(), CollectiveError> {
        match self.news().lost_in(group) {
            Some(rank) => Err(CollectiveError::Form {
                why: format!("rank {rank} was lost"),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_the_task_lose_their_hope() {
        let losses = Losses::default();
        assert_eq!(losses.hope("task 7"), Ok(()));
        losses.lost("task 7".to_owned(), 2);
        for group in ["task 7", "task 7 [0, 2]"] {
            let told = losses.clone().hope(group).map_err(|error| error.to_string());
            assert!(told.unwrap_err().contains("rank 2 was lost"));
        }
        assert_eq!(losses.hope("task 77"), Ok(()));
        losses.lost("task 8".to_owned(), 0);
        assert_eq!(losses.hope("task 7"), Ok(()));
    }
}
