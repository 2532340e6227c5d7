//! Memory of Python objects: numpy arrays, whatever speaks DLPack, or a bare address.

use std::ffi::{CStr, c_void};

use grampus_collective::{DType, Letter, RawPart, Way};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

/// Contiguous elements of a Python object.
pub(crate) struct Buffer {
    address: usize,
    pub count: usize,
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// What keeps the memory alive.
    pub owner: Py<PyAny>,
}

/// What will be done to the memory.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Use {
    Read,
    Write,
}

impl Buffer {
    /// The memory of `object`.
    pub fn of(object: &Bound<'_, PyAny>, usage: Use) -> PyResult<Self> {
        if let Ok(bare) = object.cast::<PyTuple>() {
            return Self::bare(bare);
        }
        let py = object.py();
        // Ten times cheaper than numpy's own interface, which knows more types and can say what is wrong.
        let quick = object
            .call_method0(pyo3::intern!(py, "__dlpack__"))
            .and_then(|capsule| Self::dlpack(object, &capsule));
        let refused = match quick {
            Ok(buffer) => return Ok(buffer),
            Err(refused) => refused,
        };
        if let Some(interface) = object.getattr_opt(pyo3::intern!(py, "__array_interface__"))? {
            return Self::array(object, interface.cast::<PyDict>()?, usage);
        }
        if refused.is_instance_of::<PyAttributeError>(py) {
            return Err(no_buffer(object)?);
        }
        Err(refused)
    }

    /// The bytes of all elements. Nobody may write to them as long as they are looked at.
    pub fn bytes(&self) -> &[u8] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the owner keeps so many elements alive at this address.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.count * self.dtype.size()) }
    }

    pub fn part(&self) -> RawPart {
        (self.address as *mut u8, self.count)
    }

    pub fn letter(&self, way: Way, tag: u32) -> Letter {
        Letter {
            dtype: self.dtype,
            buffer: self.part(),
            way,
            tag,
        }
    }

    /// Elements that are contiguous.
    fn at(address: usize, dtype: DType, shape: Vec<usize>, owner: &Bound<'_, PyAny>) -> PyResult<Self> {
        let count = shape.iter().product();
        // Kernels read and write elements, not bytes: the compiler and the processor rely on their alignment.
        if count > 0 && !address.is_multiple_of(dtype.size()) {
            return Err(PyValueError::new_err(format!(
                "the buffer is not aligned: {dtype} needs an address that {} divides, and this one leaves {}; pass a \
                 copy of it and copy the result back",
                dtype.size(),
                address % dtype.size()
            )));
        }
        Ok(Self {
            address,
            count,
            dtype,
            shape,
            owner: owner.clone().unbind(),
        })
    }

    /// Address, count, code of the type, owner and, where it matters, shape, from code that has already looked.
    fn bare(bare: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let (address, code, owner, shape): (usize, u8, Bound<'_, PyAny>, Vec<usize>) = match bare.len() {
            5 => {
                let (address, _, code, owner, shape): (usize, usize, u8, _, _) = bare.extract()?;
                (address, code, owner, shape)
            }
            _ => {
                let (address, count, code, owner): (usize, usize, u8, _) = bare.extract()?;
                (address, code, owner, vec![count])
            }
        };
        let dtype = DType::from_code(code)
            .ok_or_else(|| PyValueError::new_err(format!("no type has the code {code}")))?;
        Self::at(address, dtype, shape, &owner)
    }

    fn array(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>, usage: Use) -> PyResult<Self> {
        let found = Interface::of(object, interface)?;
        let kind = &found.kind;
        let dtype = numpy_type(kind).ok_or_else(|| unsupported(&format!("numpy type {kind:?}")))?;
        if found.read_only && usage == Use::Write {
            return Err(PyValueError::new_err("the array is read-only: pass a copy of it"));
        }
        Self::at(found.address, dtype, found.shape, object)
    }

    fn dlpack(object: &Bound<'_, PyAny>, capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let found = Managed::of(capsule)?;
        let dtype = dlpack_type(&found).ok_or_else(|| {
            let Managed { code, bits, .. } = &found;
            unsupported(&format!("DLPack type {code} of {bits} bits"))
        })?;
        Self::at(found.address, dtype, found.shape, object)
    }
}

/// Contiguous bytes of a Python object, whatever type its elements have.
pub(crate) struct RawBytes {
    address: usize,
    pub length: usize,
    /// What keeps the memory alive.
    _owner: Py<PyAny>,
}

impl RawBytes {
    /// The memory of `object`.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let (address, length, owner) = if let Ok(bare) = object.cast::<PyTuple>() {
            let buffer = Buffer::bare(bare)?;
            (buffer.address, buffer.count * buffer.dtype.size(), buffer.owner)
        } else if let Some(interface) = object.getattr_opt(pyo3::intern!(py, "__array_interface__"))? {
            let found = Interface::of(object, interface.cast::<PyDict>()?)?;
            (found.address, found.count * found.item, object.clone().unbind())
        } else if let Some(method) = object.getattr_opt(pyo3::intern!(py, "__dlpack__"))? {
            let found = Managed::of(&method.call0()?)?;
            let bits = usize::from(found.bits) * usize::from(found.lanes);
            (found.address, found.count * bits / 8, object.clone().unbind())
        } else {
            return Err(no_buffer(object)?);
        };
        Ok(Self {
            address,
            length,
            _owner: owner,
        })
    }

    /// A copy of the bytes.
    pub fn copy(&self) -> Vec<u8> {
        if self.length == 0 {
            return Vec::new();
        }
        // SAFETY: the owner keeps so many bytes from this address alive.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.length) }.to_vec()
    }
}

fn no_buffer(object: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let kind = object.get_type().name()?;
    Ok(PyTypeError::new_err(format!(
        "a {kind} is no buffer: pass a numpy array or a tensor"
    )))
}

/// What numpy's interface says of contiguous memory.
struct Interface {
    address: usize,
    read_only: bool,
    count: usize,
    kind: String,
    /// Bytes of an element.
    item: usize,
    shape: Vec<usize>,
}

impl Interface {
    fn of(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = object.py();
        let item = |name: &str| -> PyResult<Bound<'_, PyAny>> {
            let found = interface.get_item(name)?;
            found.ok_or_else(|| PyTypeError::new_err("the array's interface is incomplete"))
        };
        let (address, read_only): (usize, bool) = item("data")?.extract()?;
        let shape: Vec<usize> = item("shape")?.extract()?;
        let kind: String = item("typestr")?.extract()?;
        let size = kind.get(2..).and_then(|digits| digits.parse().ok());
        let size: usize = size.ok_or_else(|| unsupported(&format!("numpy type {kind:?}")))?;
        if kind.starts_with(OTHER_ORDER) || kind.starts_with("|O") {
            return Err(unsupported(&format!("numpy type {kind:?}")));
        }
        // The memory of a number is gone as soon as it was asked for.
        if shape.is_empty() && !object.hasattr(pyo3::intern!(py, "__setitem__"))? {
            return Err(PyTypeError::new_err(format!(
                "a {} is a number and no buffer: pass a numpy array",
                object.get_type().name()?
            )));
        }
        if let Some(strides) = interface.get_item(pyo3::intern!(py, "strides"))?
            && !strides.is_none()
        {
            let strides: Vec<isize> = strides.extract()?;
            check_contiguous(&shape, &strides, size, "numpy.ascontiguousarray(array)")?;
        }
        Ok(Self {
            address,
            read_only,
            count: shape.iter().product(),
            kind,
            item: size,
            shape,
        })
    }
}

/// What DLPack says of contiguous memory in the host.
struct Managed {
    address: usize,
    count: usize,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: Vec<usize>,
}

impl Managed {
    fn of(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let capsule = capsule.cast::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(DLPACK))?;
        // SAFETY: a capsule of this name holds such a structure and lives until the end of this function.
        let tensor = unsafe { &pointer.cast::<DlTensor>().as_ref() };
        if !matches!(tensor.device, CPU | PINNED) {
            return Err(PyValueError::new_err(
                "the tensor is not in the host's memory: pass tensor.cpu(), or use the torch backend",
            ));
        }
        let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
        let list = |start: *const i64| -> Vec<isize> {
            // SAFETY: shape and strides have as many entries as the tensor has dimensions.
            let entries = unsafe { std::slice::from_raw_parts(start, dimensions) };
            entries.iter().map(|entry| *entry as isize).collect()
        };
        let shape: Vec<usize> = match dimensions {
            0 => Vec::new(),
            _ => list(tensor.shape).iter().map(|length| *length as usize).collect(),
        };
        if !tensor.strides.is_null() && dimensions > 0 {
            check_contiguous(&shape, &list(tensor.strides), 1, "tensor.contiguous()")?;
        }
        Ok(Self {
            address: tensor.data as usize + tensor.byte_offset as usize,
            count: shape.iter().product(),
            code: tensor.code,
            bits: tensor.bits,
            lanes: tensor.lanes,
            shape,
        })
    }
}

/// The start of a managed tensor of DLPack, as its specification lays it out.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// How numpy writes that the bytes of an element are not in the order of this machine.
const OTHER_ORDER: char = if cfg!(target_endian = "little") { '>' } else { '<' };

const DLPACK: &CStr = c"dltensor";
const CPU: i32 = 1;
const PINNED: i32 = 3;

fn dlpack_type(tensor: &Managed) -> Option<DType> {
    Some(match (tensor.code, tensor.bits, tensor.lanes) {
        (0, 8, 1) => DType::I8,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::Bf16,
        (6, 8, 1) => DType::Bool,
        _ => return None,
    })
}

fn numpy_type(kind: &str) -> Option<DType> {
    Some(match kind {
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        "<f2" => DType::F16,
        "|i1" => DType::I8,
        "|u1" => DType::U8,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|b1" => DType::Bool,
        _ => return None,
    })
}

fn unsupported(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "Grampus cannot work on {what}: use float16, float32, float64, bfloat16, int8, uint8, int32, int64 or bool"
    ))
}

/// `strides` count what an element has `unit` of: bytes, or elements themselves.
fn check_contiguous(shape: &[usize], strides: &[isize], unit: usize, instead: &str) -> PyResult<()> {
    let mut expected = unit as isize;
    for (length, stride) in shape.iter().zip(strides).rev() {
        if *length != 1 && *stride != expected && !shape.contains(&0) {
            return Err(PyValueError::new_err(format!(
                "the buffer is not contiguous (shape {shape:?}, strides {strides:?}): pass {instead} and copy the \
                 result back"
            )));
        }
        expected *= *length as isize;
    }
    Ok(())
}
