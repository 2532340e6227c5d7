//! Supervisors between two jobs, and before the first.

use std::fs;
use std::io;
use std::time::Duration;

use grampus_net::handover::Handover;

use super::{Supervisor, SupervisorError};
use crate::rest::{AHEAD_FOR, REST_FOR};

impl Supervisor {
    /// Once the job is over: rests until there is another, and serves that. Nothing where it cannot rest, or nobody comes.
    pub fn rest(mut self) -> Result<Option<Self>, SupervisorError> {
        let Some(place) = self.place.take().filter(|_| self.over) else {
            return Ok(None);
        };
        place.announce().map_err(failed)?;
        // Whoever reads them learns from their end that the job is over.
        drop(self);
        let null = fs::OpenOptions::new()
            .write(true)
            .open("/dev/null")
            .map_err(failed)?;
        rustix::stdio::dup2_stdout(&null)
            .and_then(|()| rustix::stdio::dup2_stderr(&null))
            .map_err(SupervisorError::system("let go of its pipes"))?;
        Self::called_to(place, REST_FOR)
    }

    /// The same before the first job, for a process that was started in advance.
    pub fn await_call(place: Handover) -> Result<Option<Self>, SupervisorError> {
        Self::called_to(place, AHEAD_FOR)
    }

    fn called_to(place: Handover, within: Duration) -> Result<Option<Self>, SupervisorError> {
        let Some([input, output, error]) = place.take(within).map_err(failed)? else {
            return Ok(None);
        };
        rustix::stdio::dup2_stdin(&input)
            .and_then(|()| rustix::stdio::dup2_stdout(&output))
            .and_then(|()| rustix::stdio::dup2_stderr(&error))
            .map_err(SupervisorError::system("take over its pipes"))?;
        drop((input, output, error));
        Self::attach(Some(place)).map(Some)
    }
}

fn failed(source: io::Error) -> SupervisorError {
    SupervisorError::System { what: "rest", source }
}
