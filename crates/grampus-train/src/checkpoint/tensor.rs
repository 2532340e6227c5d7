//! Named arrays of bytes, on the heap or mapped from a file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;
pub use safetensors::Dtype as DType;

use super::error::CheckpointError;

/// The type called so in safetensors files, such as "BF16".
///
/// ```
/// use grampus_train::checkpoint::{DType, dtype};
///
/// assert_eq!(dtype("BF16"), Some(DType::BF16));
/// assert_eq!(dtype("bfloat16"), None);
/// ```
pub fn dtype(name: &str) -> Option<DType> {
    serde_json::from_value(serde_json::Value::from(name)).ok()
}

/// A named array: its type, its shape and its bytes, which are little-endian and in row-major order.
///
/// ```
/// use grampus_train::checkpoint::{DType, Tensor};
///
/// let bias = Tensor::new("bias", DType::F32, vec![2], vec![0; 8])?;
/// assert_eq!(bias.data().len(), 8);
/// assert!(Tensor::new("bias", DType::F32, vec![3], vec![0; 8]).is_err());
/// # Ok::<(), grampus_train::checkpoint::CheckpointError>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    memory: Arc<Memory>,
    range: Range<usize>,
}

impl Tensor {
    /// A tensor that owns its bytes.
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        shape: Vec<usize>,
        data: Vec<u8>,
    ) -> Result<Self, CheckpointError> {
        let name = name.into();
        let elements = shape
            .iter()
            .try_fold(1_usize, |product, length| product.checked_mul(*length));
        let bits = elements.and_then(|elements| elements.checked_mul(dtype.bitsize()));
        if data.len().checked_mul(8) != bits {
            let why = format!("{} bytes do not make a {dtype} of shape {shape:?}", data.len());
            return Err(CheckpointError::Tensor { name, why });
        }
        let range = 0..data.len();
        let memory = Arc::new(Memory::heap(data));
        Ok(Self {
            name,
            dtype,
            shape,
            memory,
            range,
        })
    }

    /// A part of a file's memory, whose length fits type and shape.
    pub(super) fn part(
        name: String,
        dtype: DType,
        shape: Vec<usize>,
        memory: &Arc<Memory>,
        range: Range<usize>,
    ) -> Self {
        let mut tensor = Self {
            name,
            dtype,
            shape,
            memory: Arc::clone(memory),
            range,
        };
        // Our own files are aligned; other writers need not care, but whoever computes on the memory does.
        let alignment = (dtype.bitsize() / 8).max(1);
        if !(tensor.data_ptr() as usize).is_multiple_of(alignment) {
            let copy = tensor.data().to_vec();
            tensor.range = 0..copy.len();
            tensor.memory = Arc::new(Memory::heap(copy));
        }
        tensor
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each dimension; none for a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.memory.bytes()[self.range.clone()]
    }

    /// Where the bytes start. They may be written to, by whoever sees to it that nobody reads [`data`](Self::data)
    /// meanwhile: memory that was mapped from a file is private, so the file stays as it is.
    pub fn data_ptr(&self) -> *mut u8 {
        self.memory.start.wrapping_add(self.range.start)
    }
}

impl AsRef<[u8]> for Tensor {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?}, {} {:?})", self.name, self.dtype, self.shape)
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.dtype == other.dtype
            && self.shape == other.shape
            && self.data() == other.data()
    }
}

/// The bytes of a file.
pub(super) struct Memory {
    start: *mut u8,
    length: usize,
    _owner: Owner,
}

/// What keeps the bytes: nothing reads it but its destructor.
enum Owner {
    Heap(#[expect(dead_code, reason = "held for its destructor")] Vec<u8>),
    Map(#[expect(dead_code, reason = "held for its destructor")] MmapMut),
}

// SAFETY: the memory belongs to the value, wherever that goes, and nothing in this crate writes to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn heap(mut bytes: Vec<u8>) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            length: bytes.len(),
            _owner: Owner::Heap(bytes),
        }
    }

    /// `map` is private: writes stay in memory.
    pub fn map(mut map: MmapMut) -> Self {
        Self {
            start: map.as_mut_ptr(),
            length: map.len(),
            _owner: Owner::Map(map),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner holds so many bytes from here, as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}
