//! Forming groups.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use grampus_collective::{Card, CollectiveError, GroupId, Settings};
use grampus_core::{JobKey, JoinString};
use grampus_net::Security;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::error::raise;
use super::group::Group;
use super::handle::LOOK;

/// Where groups are formed.
#[pyclass(module = "grampus._native", frozen)]
#[derive(Clone)]
pub(crate) struct Lobby(grampus_collective::Lobby);

#[pymethods]
impl Lobby {
    /// A lobby for all who know `key` (32 bytes). `host` is the name of this host, for people.
    #[new]
    fn open(py: Python<'_>, key: [u8; 32], host: &str) -> PyResult<Self> {
        let key = JobKey::from_bytes(key);
        let (job, key) = grampus_net::derive_job(&key, "collective").map_err(crate::error::Error::from)?;
        let lobby = grampus_collective::Lobby::open(job, key, host).map_err(|error| raise(py, &error))?;
        Ok(Self(lobby))
    }

    /// What others need to know of this process.
    fn card(&self) -> Vec<u8> {
        self.0.card().to_bytes()
    }

    /// Forms a group as `rank` with all whose addresses and cards are given, in order of rank.
    /// `labels` are what errors call the ranks.
    #[pyo3(signature = (name, generation, rank, cards, labels, deadline, forming))]
    #[expect(clippy::too_many_arguments, reason = "all that makes a group")]
    fn form(
        &self,
        py: Python<'_>,
        name: String,
        generation: u64,
        rank: usize,
        cards: Vec<(String, Vec<u8>)>,
        labels: Vec<u32>,
        deadline: f64,
        forming: f64,
    ) -> PyResult<Group> {
        let seconds = |value: f64| Duration::try_from_secs_f64(value.max(0.001)).unwrap_or(Duration::MAX);
        let security = security()?;
        let settings = Settings {
            deadline: seconds(deadline),
            forming: seconds(forming),
            security,
            ..Settings::default()
        };
        let lobby = self.0.clone();
        let formed = away(py, move || {
            let cards: Result<Vec<Card>, _> = cards
                .iter()
                .map(|(address, card)| Card::from_bytes(card).map(|card| card.at(address)))
                .collect();
            let id = GroupId { name, generation };
            lobby.form_part(&id, rank, &cards?, &labels, &settings)
        })?;
        formed.map(Group::new).map_err(|error| raise(py, &error))
    }
}

/// Runs `work` in a thread of its own, with an ear for Ctrl-C. What comes of it after that is dropped; a group that
/// forms then is left at once.
fn away<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, CollectiveError> + Send + 'static,
) -> PyResult<Result<T, CollectiveError>> {
    let (tell, hear) = mpsc::channel();
    let hear = Mutex::new(hear);
    let failed = |what: &str| CollectiveError::System(format!("cannot form a group: {what}"));
    let thread = std::thread::Builder::new()
        .name("grampus-form".into())
        .spawn(move || drop(tell.send(work())));
    if let Err(error) = thread {
        return Ok(Err(failed(&error.to_string())));
    }
    loop {
        let heard = py.detach(|| {
            let hear = hear.lock().unwrap_or_else(PoisonError::into_inner);
            hear.recv_timeout(LOOK)
        });
        match heard {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Err(failed("its thread ended"))),
        }
    }
}

/// What protects bytes between hosts: TLS, unless the environment says that the network can be trusted.
fn security() -> PyResult<Security> {
    match std::env::var("GRAMPUS_COLLECTIVE_SECURITY").as_deref() {
        Err(_) | Ok("" | "tls") => Ok(Security::Tls),
        Ok("plain") => Ok(Security::Plain),
        Ok(other) => Err(PyValueError::new_err(format!(
            "GRAMPUS_COLLECTIVE_SECURITY is {other:?}: set it to tls or plain, equally on all hosts"
        ))),
    }
}

impl Lobby {
    /// A lobby for the workers of a job.
    pub fn of(join: &JoinString, host: &str) -> Result<Self, grampus_collective::CollectiveError> {
        let lobby = grampus_collective::Lobby::open(join.job, join.key.clone(), host)?;
        Ok(Self(lobby))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.card().to_bytes()
    }
}
