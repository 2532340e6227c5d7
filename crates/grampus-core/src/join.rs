//! The join string: all that a process needs to become a member of a job.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{JobId, JobKey, KeyError};

/// Where a coordinator listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// A Unix socket in a private folder, for members on the coordinator's host.
    Unix(PathBuf),
    /// A Unix socket with a name instead of a file, for processes of one host and one network namespace. The kernel
    /// forgets the name with the last process that holds the socket, so that nothing is ever left of it. See
    /// [`Address::is_abstract_name`].
    Abstract(String),
    /// A host (name or address) and port, for members anywhere; under TLS.
    Tcp {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// Port, never 0.
        port: u16,
    },
}

/// The one secret text that a launcher hands to a new process: job, key and address.
///
/// ```
/// use grampus_core::{Address, JobId, JobKey, JoinString};
/// let join = JoinString {
///     job: JobId(1),
///     key: JobKey::from_bytes([9; 32]),
///     address: Address::Tcp { host: "node-1".into(), port: 4000 },
/// };
/// assert_eq!(join.reveal().parse(), Ok(join));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinString {
    /// The job to join.
    pub job: JobId,
    /// The proof of membership.
    pub key: JobKey,
    /// Where to connect.
    pub address: Address,
}

/// Why a text is not a join string.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Not ours, or of a version that this build does not know.
    #[error("a join string starts with `{FORMAT}/`: pass the string exactly as the driver gave it")]
    Format,
    /// Fewer parts than job, key and address.
    #[error("a join string has the form `{FORMAT}/job/key/address`: part of it is missing")]
    Parts,
    /// The job id is not 16 hexadecimal digits.
    #[error("the job id in the join string is not 16 hexadecimal digits")]
    Job,
    /// The key cannot be read.
    #[error("the key in the join string cannot be read: {0}")]
    Key(#[from] KeyError),
    /// The address cannot be read.
    #[error(
        "the address in the join string must be `unix:/path`, `abstract:name` or `tcp:host:port`, it is `{0}`"
    )]
    Address(String),
}

const FORMAT: &str = "grampus1";
/// Longest name of an abstract socket: with the zero byte before it, it fits the kernel's 108 bytes.
const LONGEST_ABSTRACT: usize = 100;

impl Address {
    /// Whether this can name an abstract socket: 1 to 100 of `a` to `z`, `0` to `9` and `-`.
    pub fn is_abstract_name(name: &str) -> bool {
        let plain = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        (1..=LONGEST_ABSTRACT).contains(&name.len()) && name.bytes().all(plain)
    }
}

impl JoinString {
    /// The text itself. It holds the job's key: write it only where other users cannot read.
    pub fn reveal(&self) -> String {
        format!("{FORMAT}/{}/{}/{}", self.job, self.key.to_hex(), self.address)
    }
}

impl FromStr for JoinString {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let rest = text
            .trim()
            .strip_prefix(FORMAT)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(JoinError::Format)?;
        let mut parts = rest.splitn(3, '/');
        let (Some(job), Some(key), Some(address)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(JoinError::Parts);
        };
        if job.len() != 16 || !job.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(JoinError::Job);
        }
        let job = JobId(u64::from_str_radix(job, 16).map_err(|_| JoinError::Job)?);
        Ok(Self {
            job,
            key: JobKey::from_hex(key)?,
            address: address.parse()?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "abstract:{name}"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = JoinError;

    fn from_str(text: &str) -> Result<Self, JoinError> {
        let wrong = || JoinError::Address(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err(wrong())
            };
        }
        if let Some(name) = text.strip_prefix("abstract:") {
            return if Self::is_abstract_name(name) {
                Ok(Self::Abstract(name.to_owned()))
            } else {
                Err(wrong())
            };
        }
        let (host, port) = text
            .strip_prefix("tcp:")
            .and_then(|rest| rest.rsplit_once(':'))
            .ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bracketed.unwrap_or(host);
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let plain =
            !host.is_empty() && !host.contains(['[', ']', '/']) && !host.contains(char::is_whitespace);
        if !plain || port == 0 || (bracketed.is_some() != host.contains(':')) {
            return Err(wrong());
        }
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = Address> {
        prop_oneof![
            "/[a-zA-Z0-9_./ -]{0,60}".prop_map(|path| Address::Unix(path.into())),
            "[a-z0-9-]{1,100}".prop_map(Address::Abstract),
            ("[a-z0-9.-]{1,40}", 1..=u16::MAX).prop_map(|(host, port)| Address::Tcp { host, port }),
            ("[0-9a-f]{1,4}::[0-9a-f]{1,4}", 1..=u16::MAX)
                .prop_map(|(host, port)| Address::Tcp { host, port }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(job: u64, key: [u8; 32], address in address()) {
            prop_assume!(!matches!(&address, Address::Unix(path) if path.to_string_lossy().ends_with(' ')));
            let join = JoinString { job: JobId(job), key: JobKey::from_bytes(key), address };
            prop_assert_eq!(join.reveal().parse::<JoinString>(), Ok(join));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            if let Ok(join) = text.parse::<JoinString>() {
                prop_assert_eq!(join.reveal().parse::<JoinString>(), Ok(join));
            }
        }
    }

    #[test]
    fn each_broken_part_is_named() {
        let key = "0".repeat(64);
        let parse = |text: String| text.parse::<JoinString>();
        assert_eq!(parse("hello".into()), Err(JoinError::Format));
        assert_eq!(parse("grampus1/00".into()), Err(JoinError::Parts));
        assert_eq!(parse(format!("grampus1/zz/{key}/unix:/a")), Err(JoinError::Job));
        assert!(matches!(
            parse("grampus1/0000000000000000/00/unix:/a".into()),
            Err(JoinError::Key(_))
        ));
        for address in [
            "unix:a",
            "abstract:",
            "abstract:A",
            "abstract:a/b",
            &format!("abstract:{}", "a".repeat(101)),
            "tcp:a",
            "tcp:a:0",
            "tcp:a:70000",
            "tcp::1",
            "ftp:a:1",
            "tcp:[a]:1",
        ] {
            let text = format!("grampus1/0000000000000000/{key}/{address}");
            assert_eq!(parse(text), Err(JoinError::Address(address.into())), "{address}");
        }
    }

    #[test]
    fn debug_hides_the_key() {
        let join = JoinString {
            job: JobId(1),
            key: JobKey::from_bytes([0xab; 32]),
            address: Address::Unix("/s".into()),
        };
        assert!(!format!("{join:?}").contains("abab"));
    }
}
