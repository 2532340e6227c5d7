//! The file that makes a folder a checkpoint: which files belong to it, and what they must hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

/// Its name.
pub const MANIFEST: &str = "manifest.json";
/// The one form that this version writes and reads.
const FORMAT: u64 = 1;

/// What a manifest says.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The version of Grampus that wrote it.
    pub grampus: String,
    /// The files of tensors.
    pub files: BTreeMap<String, Sealed>,
    /// The caller's own JSON, to the letter.
    pub meta: Box<RawValue>,
}

/// Length and checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Its length.
    pub bytes: u64,
    /// The CRC-32C of all its bytes.
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    pub crc32c: u32,
}

/// Why a manifest cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It is no manifest at all.
    #[error("this is no manifest of a checkpoint ({0}): use another checkpoint")]
    Shape(String),
    /// It was written by a version that this one does not know.
    #[error(
        "the manifest has format {0}, and this version of Grampus reads format {FORMAT}: use a newer version"
    )]
    Format(u64),
    /// It names a file that would lie elsewhere.
    #[error("the manifest names {0:?}, which is no file of a checkpoint: do not use this checkpoint")]
    File(String),
    /// The caller's JSON is not what was written.
    #[error(
        "the meta in the manifest is damaged (its checksum is {found}, not {wanted}): use another checkpoint"
    )]
    Meta {
        /// What it should be.
        wanted: String,
        /// What it is.
        found: String,
    },
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u64,
    grampus: String,
    files: BTreeMap<String, Sealed>,
    #[serde(serialize_with = "write_hex", deserialize_with = "read_hex")]
    meta_crc32c: u32,
    meta: Box<RawValue>,
}

/// The part of any format that can be read before the rest.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

impl Manifest {
    /// Reads and checks the bytes of a manifest.
    ///
    /// ```
    /// use grampus_train::checkpoint::Manifest;
    ///
    /// let error = Manifest::parse(br#"{"format": 7}"#).unwrap_err();
    /// assert!(error.to_string().contains("use a newer version"));
    /// ```
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let shape = |error: serde_json::Error| ManifestError::Shape(error.to_string());
        let Version { format } = serde_json::from_slice(bytes).map_err(shape)?;
        if format != FORMAT {
            return Err(ManifestError::Format(format));
        }
        let text: Text = serde_json::from_slice(bytes).map_err(shape)?;
        if let Some(name) = text.files.keys().find(|name| !is_file_name(name)) {
            return Err(ManifestError::File(name.clone()));
        }
        let found = crc32c::crc32c(text.meta.get().as_bytes());
        if found != text.meta_crc32c {
            return Err(ManifestError::Meta {
                wanted: hex(text.meta_crc32c),
                found: hex(found),
            });
        }
        Ok(Self {
            grampus: text.grampus,
            files: text.files,
            meta: text.meta,
        })
    }

    /// The bytes to be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Text {
            format: FORMAT,
            grampus: self.grampus.clone(),
            files: self.files.clone(),
            meta_crc32c: crc32c::crc32c(self.meta.get().as_bytes()),
            meta: self.meta.clone(),
        })
    }
}

/// Whether a file of tensors may be called so: a plain name can lead nowhere else.
pub(super) fn is_file_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= 200
        && !name.starts_with('.')
        && name.bytes().all(plain)
        && name
            .strip_suffix(".safetensors")
            .is_some_and(|stem| !stem.is_empty())
}

/// A checksum as users see it.
pub(super) fn hex(checksum: u32) -> String {
    format!("{checksum:08x}")
}

fn write_hex<S: Serializer>(checksum: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(*checksum))
}

fn read_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let text = String::deserialize(deserializer)?;
    let plain = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let value = u32::from_str_radix(&text, 16).ok().filter(|_| plain);
    value.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no checksum of eight digits")))
}
