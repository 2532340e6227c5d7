//! The secret of a job.

use std::fmt;

use thiserror::Error;

/// 256 random bits that every member of a job knows and nobody else. Never printed: `Debug` hides it.
///
/// ```
/// let key = grampus_core::JobKey::from_bytes([7; 32]);
/// assert_eq!(format!("{key:?}"), "JobKey(hidden)");
/// assert_eq!(grampus_core::JobKey::from_hex(&key.to_hex()), Ok(key));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

/// Why a text is not a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Too short or too long.
    #[error("a job key has 64 hexadecimal digits, this one has {0} characters: copy the whole key")]
    Length(usize),
    /// A character that is no hexadecimal digit.
    #[error("a job key is made of hexadecimal digits, character {0} is not one: copy the key as it is")]
    Digit(usize),
}

impl JobKey {
    /// A key from its bytes; they must come from a random source of cryptographic strength.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for deriving proofs and certificates.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits. Whoever reads them can join the job.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`JobKey::to_hex`] wrote.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        if text.len() != 64 {
            return Err(KeyError::Length(text.chars().count()));
        }
        let mut bytes = [0; 32];
        for (place, digit) in text.bytes().enumerate() {
            let value = (digit as char).to_digit(16).ok_or(KeyError::Digit(place + 1))? as u8;
            bytes[place / 2] = bytes[place / 2] << 4 | value;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(hidden)")
    }
}
