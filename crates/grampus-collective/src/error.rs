//! What can go wrong in a collective call.

use std::fmt;
use std::time::Duration;

use grampus_net::NetError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call::Said;
use crate::numerics::{PlanError, Unsupported};

/// Why a collective call failed. Members of a group that fail together fail with equal errors.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
pub enum CollectiveError {
    /// Two ranks called different things.
    #[error("{first}, but {second}: let all ranks make the same calls in the same order")]
    Mismatch {
        /// The call of the lowest rank.
        first: Said,
        /// The call of the first rank that differs from it.
        second: Said,
    },
    /// What two ranks want to exchange does not fit together.
    #[error("{0}")]
    Disagree(String),
    /// A member is gone or stands still.
    #[error("lost rank {rank} on {host} during {during}: {how}, last seen {} ago: {}", age(last_seen), how.advice())]
    PeerLost {
        /// Which member.
        rank: u32,
        /// Name of its host.
        host: String,
        /// How long ago it gave its last sign of life.
        last_seen: Duration,
        /// What is known of its end.
        how: Loss,
        /// The call that ended with it.
        during: String,
    },
    /// A member gave up a call, such as on Ctrl-C.
    #[error("rank {rank} gave up during {during}")]
    GaveUp {
        /// Which member.
        rank: u32,
        /// The call that it gave up.
        during: String,
    },
    /// The group had already ended when this call came.
    #[error("the group has ended ({why}): form it again in a new generation")]
    Ended {
        /// What ended it.
        why: String,
    },
    /// Not all members came together.
    #[error("the group could not form: {why}")]
    Form {
        /// Who is missing or what failed.
        why: String,
    },
    /// The lanes that the members passed do not make a whole.
    #[error("the members' lanes do not make a whole: {0}")]
    Lanes(String),
    /// An argument that no member can do anything with.
    #[error("{0}")]
    Argument(String),
    /// Shared memory or the network refused.
    #[error("{0}")]
    System(String),
}

/// What is known of the end of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// Its process ended.
    Died,
    /// Its process gives no sign of life.
    Silent,
    /// Its process lives but did not make the call within the deadline.
    Late,
    /// It left the group.
    Left,
    /// The connection to it broke.
    Cut,
    /// Whoever watches over it has given it up.
    GivenUp,
}

impl Loss {
    fn advice(self) -> &'static str {
        match self {
            Self::Died | Self::Cut | Self::GivenUp => "look for its own error, or at what killed it",
            Self::Silent => "it may be stopped, or its host out of memory",
            Self::Late => "look at what it does instead, or allow more time",
            Self::Left => "let all members make the same calls before they leave",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "its process ended",
            Self::Silent => "its process gives no sign of life",
            Self::Late => "it did not make the call in time",
            Self::Left => "it left the group",
            Self::Cut => "the connection to it broke",
            Self::GivenUp => "it was given up",
        })
    }
}

fn age(length: &Duration) -> String {
    format!("{:.1} s", length.as_secs_f64())
}

impl From<NetError> for CollectiveError {
    fn from(error: NetError) -> Self {
        Self::System(error.to_string())
    }
}

impl From<Unsupported> for CollectiveError {
    fn from(error: Unsupported) -> Self {
        Self::Argument(error.to_string())
    }
}

impl From<PlanError> for CollectiveError {
    fn from(error: PlanError) -> Self {
        Self::Lanes(error.to_string())
    }
}
