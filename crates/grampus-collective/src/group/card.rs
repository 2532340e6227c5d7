//! What a process tells others so that they can form groups with it.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use grampus_net::random_key;
use serde::{Deserialize, Serialize};

use crate::CollectiveError;

/// Where a process can be met. It travels as bytes, through whatever brings the members together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Name of the host, for people.
    pub host: String,
    /// Equal for processes that can share memory.
    pub(crate) place: u64,
    /// Start of the names of its sockets on the host.
    pub(crate) door: String,
    /// Where other hosts reach it.
    pub(crate) address: String,
    pub(crate) port: u16,
}

impl Card {
    /// A new one for this process.
    pub(crate) fn new(host: &str, place: u64, address: IpAddr, port: u16) -> Result<Self, CollectiveError> {
        let mut door = random_key()?.to_hex();
        door.truncate(32);
        Ok(Self {
            host: host.to_owned(),
            place,
            door,
            address: match address.is_unspecified() {
                true => "127.0.0.1".into(),
                false => address.to_string(),
            },
            port,
        })
    }

    /// As bytes, for stores and messages.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_stdvec(self).unwrap_or_default()
    }

    /// Reads what [`Card::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CollectiveError> {
        postcard::from_bytes(bytes).map_err(|_| CollectiveError::Form {
            why: "what a member says of itself cannot be read: run the same version of grampus everywhere"
                .into(),
        })
    }

    /// The same card with the address under which other hosts reach its process.
    pub fn at(self, address: &str) -> Self {
        Self {
            address: address.to_owned(),
            ..self
        }
    }

    /// Whether both are of one process.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.door == other.door
    }

    /// What its process is called where other hosts reach it.
    pub(crate) fn lobby(&self) -> String {
        format!("lobby-{}", self.door)
    }

    /// Name of the socket for one group.
    pub(crate) fn door(&self, group: u64) -> String {
        format!("grampus-{}-{group:016x}", self.door)
    }
}

/// One kernel, one network namespace: what sockets without a file can reach.
pub(super) fn place() -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (boot, network).hash(&mut hasher);
    hasher.finish()
}
