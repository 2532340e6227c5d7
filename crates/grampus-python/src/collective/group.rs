//! The calls of a group on Python buffers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use grampus_collective::{DType, Kind, Op, Request, SharedBytes, Way};
use grampus_train::whereabouts::Wait;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::buffer::{Buffer, Use};
use super::error::{CollectiveError, raise};
use super::handle::{Handle, interruptible};

/// A group of processes that call collectives together.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct Group(Mutex<Option<Arc<grampus_collective::Group>>>);

type Answer = PyResult<Option<Handle>>;
type Objects<'py> = Vec<Bound<'py, PyAny>>;

#[pymethods]
impl Group {
    #[getter]
    fn rank(&self) -> PyResult<usize> {
        Ok(self.get()?.rank())
    }

    #[getter]
    fn size(&self) -> PyResult<usize> {
        Ok(self.get()?.size())
    }

    #[getter]
    fn generation(&self) -> PyResult<u64> {
        Ok(self.get()?.id().generation)
    }

    fn all_reduce(&self, buffer: &Bound<'_, PyAny>, op: &str, block: bool) -> Answer {
        let py = buffer.py();
        let buffer = Buffer::of(buffer, Use::Write)?;
        let request = Request::AllReduce {
            dtype: buffer.dtype,
            op: parse(op)?,
            buffer: buffer.part(),
        };
        self.make(py, request, vec![buffer], block)
    }

    fn all_reduce_lanes(&self, py: Python<'_>, lanes: &Bound<'_, PyDict>, op: &str, block: bool) -> Answer {
        let mut numbers = Vec::with_capacity(lanes.len());
        let mut buffers = Vec::with_capacity(lanes.len());
        for (lane, buffer) in lanes {
            let number = lane.extract::<u32>().map_err(|_| {
                PyValueError::new_err(format!("{lane} is no lane: lanes are whole numbers from 0 on"))
            })?;
            numbers.push(number);
            buffers.push(Buffer::of(&buffer, Use::Write)?);
        }
        let (dtype, count) = alike(&buffers, "lanes")?.unwrap_or((DType::F32, 0));
        let request = Request::AllReduceLanes {
            dtype,
            op: parse(op)?,
            lanes: numbers
                .into_iter()
                .zip(buffers.iter().map(|buffer| buffer.part().0))
                .collect(),
            count,
        };
        self.make(py, request, buffers, block)
    }

    fn reduce(&self, buffer: &Bound<'_, PyAny>, root: u32, op: &str, block: bool) -> Answer {
        let py = buffer.py();
        let buffer = Buffer::of(buffer, Use::Write)?;
        let request = Request::Reduce {
            dtype: buffer.dtype,
            op: parse(op)?,
            buffer: buffer.part(),
            root,
        };
        self.make(py, request, vec![buffer], block)
    }

    fn reduce_scatter(
        &self,
        source: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
        op: &str,
        block: bool,
    ) -> Answer {
        let py = source.py();
        let (source, target) = (Buffer::of(source, Use::Read)?, Buffer::of(target, Use::Write)?);
        same_type(&source, &target)?;
        let size = self.get()?.size();
        if source.count != target.count * size {
            return Err(PyValueError::new_err(format!(
                "reduce_scatter cuts {} elements into {size} parts, and the target has {}: let the sizes fit",
                source.count, target.count
            )));
        }
        let request = Request::ReduceScatter {
            dtype: source.dtype,
            op: parse(op)?,
            source: source.part().0,
            target: target.part(),
        };
        self.make(py, request, vec![source, target], block)
    }

    fn all_gather(&self, source: &Bound<'_, PyAny>, targets: Objects<'_>, block: bool) -> Answer {
        let py = source.py();
        let source = Buffer::of(source, Use::Read)?;
        let mut buffers = all(&targets, Use::Write)?;
        one_type(&source, &buffers)?;
        let request = Request::AllGather {
            dtype: source.dtype,
            source: source.part(),
            targets: buffers.iter().map(Buffer::part).collect(),
        };
        buffers.push(source);
        self.make(py, request, buffers, block)
    }

    fn gather(&self, source: &Bound<'_, PyAny>, targets: Objects<'_>, root: u32, block: bool) -> Answer {
        let py = source.py();
        let source = Buffer::of(source, Use::Read)?;
        let mut buffers = all(&targets, Use::Write)?;
        one_size(&source, &buffers)?;
        let request = Request::Gather {
            dtype: source.dtype,
            source: source.part(),
            targets: buffers.iter().map(|buffer| buffer.part().0).collect(),
            root,
        };
        buffers.push(source);
        self.make(py, request, buffers, block)
    }

    fn scatter(&self, sources: Objects<'_>, target: &Bound<'_, PyAny>, root: u32, block: bool) -> Answer {
        let py = target.py();
        let target = Buffer::of(target, Use::Write)?;
        let mut buffers = all(&sources, Use::Read)?;
        one_size(&target, &buffers)?;
        let request = Request::Scatter {
            dtype: target.dtype,
            sources: buffers.iter().map(|buffer| buffer.part().0).collect(),
            target: target.part(),
            root,
        };
        buffers.push(target);
        self.make(py, request, buffers, block)
    }

    fn broadcast(&self, buffer: &Bound<'_, PyAny>, root: u32, block: bool) -> Answer {
        let py = buffer.py();
        let usage = if self.get()?.rank() == root as usize {
            Use::Read
        } else {
            Use::Write
        };
        let buffer = Buffer::of(buffer, usage)?;
        let request = Request::Broadcast {
            dtype: buffer.dtype,
            buffer: buffer.part(),
            root,
        };
        self.make(py, request, vec![buffer], block)
    }

    fn all_to_all(&self, py: Python<'_>, sources: Objects<'_>, targets: Objects<'_>, block: bool) -> Answer {
        let (mut sources, targets) = (all(&sources, Use::Read)?, all(&targets, Use::Write)?);
        if let Some(first) = sources.first() {
            one_type(first, &sources)?;
            one_type(first, &targets)?;
        }
        let request = Request::AllToAll {
            dtype: sources.first().map_or(DType::U8, |source| source.dtype),
            sources: sources.iter().map(Buffer::part).collect(),
            targets: targets.iter().map(Buffer::part).collect(),
        };
        sources.extend(targets);
        self.make(py, request, sources, block)
    }

    fn barrier(&self, py: Python<'_>, block: bool) -> Answer {
        self.make(py, Request::Barrier, Vec::new(), block)
    }

    /// Sends to another rank; returns when it has arrived.
    fn send(&self, buffer: &Bound<'_, PyAny>, to: usize, tag: u32, block: bool) -> Answer {
        let sent = Buffer::of(buffer, Use::Read)?;
        self.mail(buffer.py(), sent, Way::To(to), tag, block)
    }

    /// Receives from another rank.
    fn recv(&self, buffer: &Bound<'_, PyAny>, source: usize, tag: u32, block: bool) -> Answer {
        let filled = Buffer::of(buffer, Use::Write)?;
        self.mail(buffer.py(), filled, Way::From(source), tag, block)
    }

    fn norm(&self, buffer: &Bound<'_, PyAny>) -> PyResult<f64> {
        let py = buffer.py();
        let buffer = Buffer::of(buffer, Use::Read)?;
        let answer = Arc::new(AtomicU64::new(0));
        let request = Request::Norm {
            dtype: buffer.dtype,
            buffer: buffer.part(),
            answer: Arc::clone(&answer),
        };
        self.make(py, request, vec![buffer], true)?;
        Ok(f64::from_bits(answer.load(Ordering::Acquire)))
    }

    /// Everyone's bytes, whatever their number.
    fn gather_bytes(&self, py: Python<'_>, mine: Vec<u8>) -> PyResult<Vec<Vec<u8>>> {
        let group = self.get()?;
        interruptible(py, Wait::Call(Kind::AllGather), |gives_up| {
            group.gather_bytes_while(&mine, gives_up)
        })
    }

    /// Bytes in shared memory, which calls reduce where they lie.
    fn shared(&self, py: Python<'_>, length: usize) -> PyResult<SharedMemory> {
        let bytes = self
            .get()?
            .shared_bytes(length)
            .map_err(|error| raise(py, &error))?;
        Ok(SharedMemory(bytes))
    }

    /// Leaves the group, whatever else refers to it; calls on their way are given up.
    fn close(&self, py: Python<'_>) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| {
            if let Some(group) = group {
                group.close();
            }
        });
    }
}

/// A request whose memory is kept alive by `buffers`, wherever it goes.
struct Kept(Request);

// SAFETY: the buffers beside it keep the memory alive, whichever thread works on it.
unsafe impl Send for Kept {}

impl Kept {
    fn into_request(self) -> Request {
        self.0
    }
}

impl Group {
    pub fn new(group: grampus_collective::Group) -> Self {
        Self(Mutex::new(Some(Arc::new(group))))
    }

    pub fn get(&self) -> PyResult<Arc<grampus_collective::Group>> {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        group.clone().ok_or_else(|| {
            CollectiveError::new_err("the group has ended: it was closed here; form a new one")
        })
    }

    fn make(&self, py: Python<'_>, request: Request, buffers: Vec<Buffer>, block: bool) -> Answer {
        let group = self.get()?;
        let request = Kept(request);
        if block {
            // SAFETY: `buffers` live until the call is through.
            let wait = Wait::Call(request.0.kind());
            interruptible(py, wait, |gives_up| unsafe {
                group.call(request.into_request(), gives_up)
            })?;
            return Ok(None);
        }
        let owners: Vec<Py<PyAny>> = buffers.into_iter().map(|buffer| buffer.owner).collect();
        // SAFETY: the owners are kept until the call is through.
        let started = py.detach(|| unsafe { group.start_call(request.into_request(), Box::new(owners)) });
        started
            .map(|raw| Some(Handle(raw)))
            .map_err(|error| raise(py, &error))
    }
}

impl Group {
    fn mail(&self, py: Python<'_>, buffer: Buffer, way: Way, tag: u32, block: bool) -> Answer {
        let (group, letter) = (self.get()?, buffer.letter(way, tag));
        if block {
            // SAFETY: the buffer lives until the call is through.
            interruptible(py, Wait::Mail, |gives_up| unsafe { group.mail(letter, gives_up) })?;
            return Ok(None);
        }
        let keep = Box::new(buffer.owner);
        // SAFETY: the owner is kept until the call is through.
        let started = py.detach(|| unsafe { group.start_mail(letter, keep) });
        started
            .map(|raw| Some(Handle(raw)))
            .map_err(|error| raise(py, &error))
    }
}

/// Bytes in memory that the members of a host share; numpy sees them without a copy.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct SharedMemory(SharedBytes);

#[pymethods]
impl SharedMemory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, self.0.as_ptr() as usize, self.0.len())
    }
}

/// What numpy asks memory for.
pub(crate) fn array_interface(py: Python<'_>, address: usize, length: usize) -> PyResult<Bound<'_, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("data", (address, false))?;
    interface.set_item("shape", (length,))?;
    interface.set_item("typestr", "|u1")?;
    interface.set_item("version", 3)?;
    Ok(interface)
}

fn parse(op: &str) -> PyResult<Op> {
    Ok(match op {
        "sum" => Op::Sum,
        "mean" => Op::Mean,
        "min" => Op::Min,
        "max" => Op::Max,
        "product" => Op::Product,
        "and" => Op::And,
        "or" => Op::Or,
        _ => {
            return Err(PyValueError::new_err(format!(
                "there is no operation {op:?}: use sum, mean, min, max, product, and, or"
            )));
        }
    })
}

fn all(objects: &[Bound<'_, PyAny>], usage: Use) -> PyResult<Vec<Buffer>> {
    objects.iter().map(|object| Buffer::of(object, usage)).collect()
}

/// Raises what a call that reads these buffers would raise, for calls that tell the others something beforehand.
#[pyfunction]
pub(crate) fn check_buffers(buffers: Objects<'_>) -> PyResult<()> {
    let buffers = all(&buffers, Use::Read)?;
    buffers.first().map_or(Ok(()), |first| one_type(first, &buffers))
}

/// Type and count of buffers that must not differ.
fn alike(buffers: &[Buffer], what: &str) -> PyResult<Option<(DType, usize)>> {
    let Some(first) = buffers.first() else {
        return Ok(None);
    };
    match buffers
        .iter()
        .find(|buffer| (buffer.dtype, buffer.count) != (first.dtype, first.count))
    {
        None => Ok(Some((first.dtype, first.count))),
        Some(other) => Err(PyValueError::new_err(format!(
            "the {what} differ: {} {} and {} {}; pass buffers of one type and size",
            first.count, first.dtype, other.count, other.dtype
        ))),
    }
}

fn same_type(one: &Buffer, other: &Buffer) -> PyResult<()> {
    if one.dtype == other.dtype {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "the buffers are of {} and of {}: pass one type",
        one.dtype, other.dtype
    )))
}

fn one_type(first: &Buffer, others: &[Buffer]) -> PyResult<()> {
    others.iter().try_for_each(|other| same_type(first, other))
}

fn one_size(first: &Buffer, others: &[Buffer]) -> PyResult<()> {
    one_type(first, others)?;
    match others.iter().find(|other| other.count != first.count) {
        None => Ok(()),
        Some(other) => Err(PyValueError::new_err(format!(
            "the parts are of {} and of {} elements: pass parts of one size",
            first.count, other.count
        ))),
    }
}
