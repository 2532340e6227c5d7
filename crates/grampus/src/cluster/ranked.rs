//! A rank of `grampus run`: every rank is the user's program, and all of them do everything together.

use std::sync::{Arc, Mutex, PoisonError};

use grampus_cluster::node::RankPlace;
use grampus_collective::{Card, Group, GroupId, Lobby, Settings};
use grampus_net::derive_job;
use grampus_train::native::{Event, Kept, State};
use grampus_train::whereabouts::Whereabouts;

use super::Wish;
use super::task::{Answer, Performed, Task};
use crate::error::{Error, Result};

/// Where this process stands among those that `grampus run` has started.
pub(super) struct Ranked {
    place: RankPlace,
    group: Mutex<Option<Arc<Group>>>,
    /// What this rank has of its last run.
    kept: Mutex<Option<Kept>>,
}

impl Ranked {
    /// What the environment says; nothing where this process was started otherwise, or alone.
    pub fn told() -> Result<Option<Self>> {
        let place = RankPlace::told().map_err(Error::cluster)?;
        let ranked = place.map(|place| Self {
            place,
            group: Mutex::new(None),
            kept: Mutex::new(None),
        });
        Ok(ranked.filter(|ranked| ranked.size() > 1))
    }

    pub fn size(&self) -> u32 {
        self.place.addresses.len() as u32
    }

    pub fn leads(&self) -> bool {
        self.place.rank == 0
    }

    /// Does a task with all other ranks; what each of them answers, in order.
    pub fn call(
        &self,
        task: Task,
        state: Option<State>,
        hear: &mut dyn FnMut(Event) -> Wish,
    ) -> Result<Vec<Answer>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Task::HandOver(job) = &task {
            // The others may have ended, and each rank has what it needs.
            let whole = kept.as_ref().map(|kept| kept.whole(&job.id)).transpose()?;
            return Ok(vec![Answer::trained(whole.flatten())]);
        }
        let group = self.group()?;
        let hear = std::cell::RefCell::new(hear);
        let ends = std::rc::Rc::new(std::cell::Cell::new(false));
        let wants = std::rc::Rc::clone(&ends);
        let tell = |event: &Event| {
            if (hear.borrow_mut())(event.clone()) == Wish::End {
                ends.set(true);
            }
        };
        let predicts = matches!(task, Task::Predict(_));
        let performed = Performed {
            group: Arc::clone(&group),
            gives_up: Arc::new(|| false),
            tell: &tell,
            wants_to_stop: Box::new(move || wants.get()),
            here: &Whereabouts::default(),
            kept: &mut kept,
        };
        let answer = performed.perform(task, state)?;
        if !predicts {
            return Ok(vec![answer]);
        }
        Ok(answer.gathered(&group)?)
    }

    /// All ranks; they meet once.
    fn group(&self) -> Result<Arc<Group>> {
        let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = &*group {
            return Ok(Arc::clone(group));
        }
        let (job, key) = derive_job(&self.place.key, "ranks").map_err(Error::cluster)?;
        let host = grampus_cluster::host::name();
        let lobby = Lobby::open(job, key.clone(), &host, self.place.address()).map_err(Error::cluster)?;
        let settings = Settings::default();
        let card = lobby.card().to_bytes();
        let cards = self.place.meet((job, key), card, settings.forming, &|| false);
        let cards = cards.map_err(Error::cluster)?;
        let cards = cards.iter().zip(&self.place.addresses);
        let cards: std::result::Result<Vec<Card>, _> = cards
            .map(|(card, address)| Card::from_bytes(card).map(|card| card.at(address)))
            .collect();
        let id = GroupId {
            name: "ranks".to_owned(),
            generation: 1,
        };
        let formed = cards.and_then(|cards| lobby.form(&id, self.place.rank, &cards, &settings));
        let formed = Arc::new(formed.map_err(Error::cluster)?);
        *group = Some(Arc::clone(&formed));
        Ok(formed)
    }
}
