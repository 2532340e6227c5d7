//! Forming groups.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use grampus_cluster::node::{MeetingError, RankPlace};
use grampus_collective::{Card, CollectiveError, GroupId, Losses, Settings};
use grampus_core::{JobKey, JoinString, Rank, TaskId};
use grampus_net::Security;
use grampus_train::whereabouts::Wait;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::error::raise;
use super::group::Group;
use super::handle::interruptible;

/// Where groups are formed.
#[pyclass(module = "grampus._native", frozen)]
#[derive(Clone)]
pub(crate) struct Lobby {
    inner: grampus_collective::Lobby,
    losses: Losses,
}

#[pymethods]
impl Lobby {
    /// A lobby for all who know `key` (32 bytes). `host` is the name of this host, for people; other hosts reach this
    /// process at `address`, or at every address of this host where that is none.
    #[new]
    #[pyo3(signature = (key, host, address=None))]
    fn open(py: Python<'_>, key: [u8; 32], host: &str, address: Option<IpAddr>) -> PyResult<Self> {
        let key = JobKey::from_bytes(key);
        let (job, key) = grampus_net::derive_job(&key, "collective").map_err(crate::error::Error::from)?;
        let address = address.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let lobby =
            grampus_collective::Lobby::open(job, key, host, address).map_err(|error| raise(py, &error))?;
        Ok(Self::around(lobby))
    }

    /// What others need to know of this process.
    fn card(&self) -> Vec<u8> {
        self.inner.card().to_bytes()
    }

    /// Forms a group as `rank` with all whose addresses and cards are given, in order of rank.
    /// `labels` are what errors call the ranks. Members that do not come to a call are waited for until the deadline, in
    /// seconds, and those that do not come now for so long as `forming` says, or else for the same time.
    #[expect(clippy::too_many_arguments, reason = "all that makes a group")]
    #[pyo3(signature = (name, generation, rank, cards, labels, deadline, forming=None))]
    fn form(
        &self,
        py: Python<'_>,
        name: String,
        generation: u64,
        rank: usize,
        cards: Vec<(String, Vec<u8>)>,
        labels: Vec<u32>,
        deadline: f64,
        forming: Option<f64>,
    ) -> PyResult<Group> {
        let security = security()?;
        let settings = Settings {
            deadline: seconds(deadline),
            forming: seconds(forming.unwrap_or(deadline)),
            security,
            ..Settings::default()
        };
        let cards: Result<Vec<Card>, CollectiveError> = cards
            .iter()
            .map(|(address, card)| Card::from_bytes(card).map(|card| card.at(address)))
            .collect();
        let id = GroupId { name, generation };
        let formed = interruptible(py, Wait::Group, |gives_up| {
            let hope = || match gives_up() {
                true => Err(CollectiveError::Form {
                    why: "it was interrupted".into(),
                }),
                false => self.losses.hope(&id.name),
            };
            self.inner
                .form_while(&id, rank, &cards?, &labels, &settings, &hope)
        })?;
        self.losses.formed(&id.name, formed.notice());
        Ok(Group::new(formed))
    }
}

/// A lobby in which this process forms groups, its rank, and the address and card of each rank.
type MetRanks = (Lobby, usize, Vec<(String, Vec<u8>)>);

/// Meets the other ranks of `grampus run`, and waits so many seconds for them; returns nothing in a process that was
/// started otherwise, or alone.
#[pyfunction]
pub(crate) fn meet_ranks(py: Python<'_>, within: f64) -> PyResult<Option<MetRanks>> {
    let failed = |error: MeetingError| super::CollectiveError::new_err(error.to_string());
    let place = RankPlace::told().map_err(failed)?;
    let Some(place) = place.filter(|place| place.addresses.len() > 1) else {
        return Ok(None);
    };
    let (job, key) = grampus_net::derive_job(&place.key, "ranks").map_err(crate::error::Error::from)?;
    let host = grampus_cluster::host::name();
    let lobby = grampus_collective::Lobby::open(job, key.clone(), &host, place.address());
    let lobby = Lobby::around(lobby.map_err(|error| raise(py, &error))?);
    let cards = interruptible(py, Wait::Group, |gives_up| {
        let met = place.meet((job, key), lobby.bytes(), seconds(within), gives_up);
        met.map_err(|error| CollectiveError::System(error.to_string()))
    })?;
    Ok(Some((
        lobby,
        place.rank,
        place.addresses.into_iter().zip(cards).collect(),
    )))
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.001)).unwrap_or(Duration::MAX)
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
        let address = grampus_net::local_address_for(&join.address)?;
        let lobby = grampus_collective::Lobby::open(join.job, join.key.clone(), host, address)?;
        Ok(Self::around(lobby))
    }

    fn around(inner: grampus_collective::Lobby) -> Self {
        Self {
            inner,
            losses: Losses::default(),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.inner.card().to_bytes()
    }

    /// What the agent calls when a rank of a task is lost: a group with it will never be formed, and one that was has
    /// ended.
    pub fn on_rank_lost(&self) -> Box<dyn Fn(TaskId, Rank) + Send> {
        let losses = self.losses.clone();
        Box::new(move |task, rank| losses.lost(format!("task {task}"), rank.0))
    }
}
