//! Typed ids, so that a rank can never be handed over where a worker is meant.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// One process that joined (or should join) a job. Never used again after its process ended.
    WorkerId(u64)
);
id!(
    /// A position in the world of one generation, from 0.
    Rank(u32)
);
id!(
    /// Who is in, and with which rank. Grows by one with every change of members.
    GenerationId(u64)
);
id!(
    /// One call that the driver gave to the workers.
    TaskId(u64)
);

/// One job: a driver, its coordinator and its workers. Shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
