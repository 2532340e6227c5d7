//! Tensors as the bytes of a safetensors file, and back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Serialize;

use super::error::CheckpointError;
use super::manifest::Sealed;
use super::tensor::{Memory, Tensor};

/// The length of the header stands before it, in so many bytes.
const PREFIX: usize = 8;
/// The header's longest length, as all readers of the format have it.
const LONGEST_HEADER: usize = 100_000_000;
/// The header's key for remarks.
const REMARKS: &str = "__metadata__";

/// A safetensors file in memory, in parts: the header, then each tensor.
pub(super) struct Encoded {
    header: Bytes,
    tensors: Vec<Tensor>,
}

/// What stands in the header. Its keys are in order, so that equal tensors make equal files.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__", skip_serializing_if = "BTreeMap::is_empty")]
    remarks: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    tensors: BTreeMap<&'a str, TensorInfo>,
}

impl Encoded {
    pub fn new(
        mut tensors: Vec<Tensor>,
        remarks: &BTreeMap<String, String>,
    ) -> Result<Self, CheckpointError> {
        // Wide types first: so each tensor is aligned to its own type.
        tensors.sort_by(|left, right| {
            (Reverse(left.dtype()), left.name()).cmp(&(Reverse(right.dtype()), right.name()))
        });
        let mut infos = BTreeMap::new();
        let mut offset = 0;
        for tensor in &tensors {
            let end = offset + tensor.data().len();
            let info = TensorInfo {
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                data_offsets: (offset, end),
            };
            offset = end;
            if tensor.name() == REMARKS || infos.insert(tensor.name(), info).is_some() {
                let why = "the name is taken: give each tensor of a file a name of its own".to_owned();
                let name = tensor.name().to_owned();
                return Err(CheckpointError::Tensor { name, why });
            }
        }
        let header = header(&Header {
            remarks,
            tensors: infos,
        });
        let header = header.map_err(|why| CheckpointError::Tensor {
            name: "(all of a file)".to_owned(),
            why,
        })?;
        Ok(Self { header, tensors })
    }

    /// The parts of the file, in order. None is copied.
    pub fn parts(&self) -> impl Iterator<Item = Bytes> {
        let tensors = self
            .tensors
            .iter()
            .map(|tensor| Bytes::from_owner(tensor.clone()));
        std::iter::once(self.header.clone()).chain(tensors)
    }

    /// Length and checksum of the file.
    pub fn seal(&self) -> Sealed {
        let empty = Sealed { bytes: 0, crc32c: 0 };
        self.parts().fold(empty, |sealed, part| Sealed {
            bytes: sealed.bytes + part.len() as u64,
            crc32c: crc32c::crc32c_append(sealed.crc32c, &part),
        })
    }
}

fn header(header: &Header<'_>) -> Result<Bytes, String> {
    let mut text = serde_json::to_vec(header).map_err(|error| error.to_string())?;
    text.resize(text.len().next_multiple_of(PREFIX), b' ');
    if text.len() > LONGEST_HEADER {
        return Err(format!(
            "the names take {} bytes of at most {LONGEST_HEADER}: use several files",
            text.len()
        ));
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    Ok(bytes.into())
}

/// The tensors in the bytes of a safetensors file, in the order of the bytes, and its remarks; or what is wrong.
///
/// All lengths are held against that of the file before anything is done with them.
pub(super) fn decode(memory: Memory) -> Result<(Vec<Tensor>, BTreeMap<String, String>), String> {
    let bytes = memory.bytes();
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(format!(
            "{} bytes are too few for a safetensors file",
            bytes.len()
        ));
    };
    let length = u64::from_le_bytes(*prefix);
    let length = usize::try_from(length)
        .ok()
        .filter(|length| *length <= rest.len().min(LONGEST_HEADER));
    let Some((header, data)) = length.and_then(|length| rest.split_at_checked(length)) else {
        return Err("its header is longer than the file: it is cut off, or no safetensors file".to_owned());
    };
    // Checks that the tensors lie end to end and that each has the length of its type and shape.
    let metadata: Metadata =
        serde_json::from_slice(header).map_err(|error| format!("its header is wrong ({error})"))?;
    if metadata.data_len() != data.len() {
        return Err(format!(
            "its header promises {} bytes of tensors, but {} are there",
            metadata.data_len(),
            data.len()
        ));
    }
    let start = PREFIX + header.len();
    let remarks: HashMap<String, String> = metadata.metadata().clone().unwrap_or_default();
    let memory = Arc::new(memory);
    let mut tensors = Vec::with_capacity(metadata.tensors().len());
    for name in metadata.offset_keys() {
        if let Some(info) = metadata.info(&name) {
            let range = start + info.data_offsets.0..start + info.data_offsets.1;
            tensors.push(Tensor::part(name, info.dtype, info.shape.clone(), &memory, range));
        }
    }
    Ok((tensors, remarks.into_iter().collect()))
}
