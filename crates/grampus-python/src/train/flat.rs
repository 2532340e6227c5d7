//! Optimizers of Grampus for parameters that lie in the memory of another framework.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use grampus_collective::Element;
use grampus_native::Real;
use grampus_native::optim::{Clip, Optimizer};
use grampus_train::native::{Held, Memory, Sum};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::native::{Failed, numbers, parsed, wrong};
use crate::collective::{Buffer, Group, Use, raise};
use crate::locked;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<FlatOptimizer>()
}

enum Kept {
    Single(Memory<f32>),
    Double(Memory<f64>),
}

/// Does the same with numbers of either precision.
macro_rules! with {
    ($kept:expr, $memory:ident => $body:expr) => {
        match &mut *$kept {
            Kept::Single($memory) => $body,
            Kept::Double($memory) => $body,
        }
    };
}

/// Gradients of all parameters, and which tensors have one.
type Summed<'py> = (Bound<'py, PyAny>, Vec<usize>);

/// An optimizer of parameters that lie one behind the other in one buffer.
#[pyclass(module = "grampus._native", frozen)]
pub(crate) struct FlatOptimizer(Mutex<Kept>);

#[pymethods]
impl FlatOptimizer {
    /// `optimizer` is JSON, `tensors` are the first element of each tensor and that behind its last, and `count` is how many elements
    /// there are.
    #[new]
    fn new(
        py: Python<'_>,
        optimizer: &str,
        tensors: Vec<(usize, usize)>,
        count: usize,
        double: bool,
    ) -> PyResult<Self> {
        let optimizer: Optimizer = parsed(optimizer)?;
        let tensors = tensors.into_iter().map(|(start, end)| start..end).collect();
        let kept = match double {
            false => Memory::new(optimizer, tensors, count).map(Kept::Single),
            true => Memory::new(optimizer, tensors, count).map(Kept::Double),
        };
        kept.map(|kept| Self(Mutex::new(kept)))
            .map_err(|error| wrong(py, &error))
    }

    /// Divides what it remembers among so many workers, of which this is one.
    fn divide(&self, py: Python<'_>, owners: usize, me: usize) {
        with!(self.get(py), memory => memory.divide(owners, me));
    }

    /// The parts that this worker keeps: first element, and that behind the last.
    fn kept(&self, py: Python<'_>) -> Vec<(usize, usize)> {
        let ranges: Vec<Range<usize>> = with!(self.get(py), memory => memory.kept().collect());
        ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }

    /// Bytes of what this worker remembers.
    fn remembered(&self, py: Python<'_>) -> usize {
        with!(self.get(py), memory => memory.bytes())
    }

    /// Steps that each tensor has had.
    fn steps(&self, py: Python<'_>) -> Vec<u64> {
        with!(self.get(py), memory => memory.steps())
    }

    /// Names of what it remembers.
    fn slots(&self, py: Python<'_>) -> Vec<&'static str> {
        with!(self.get(py), memory => memory.slots().collect())
    }

    /// Writes all numbers of one slot; all workers ask at once where they are divided.
    fn slot(&self, py: Python<'_>, place: usize, whole: &Bound<'_, PyAny>, group: &Group) -> PyResult<()> {
        let (mut whole, group) = (Buffer::of(whole, Use::Write)?, group.get()?);
        with!(self.get(py), memory => {
            // SAFETY: the caller has made the buffer for this call.
            let whole = unsafe { numbers_mut(memory, &mut whole) }?;
            py.detach(|| memory.slot(place, whole, &group)).map_err(|error| raise(py, &error))
        })
    }

    /// Goes on with what an optimizer remembered, after so many steps of each tensor.
    fn set_state(
        &self,
        py: Python<'_>,
        steps: Vec<u64>,
        slots: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let slots: PyResult<Vec<(String, Buffer)>> = slots
            .into_iter()
            .map(|(name, array)| Ok((name, Buffer::of(&array, Use::Read)?)))
            .collect();
        let slots = slots?;
        with!(self.get(py), memory => {
            let mut saved = Vec::with_capacity(slots.len());
            for (name, array) in &slots {
                saved.push((name.as_str(), numbers(array).map_err(PyTypeError::new_err)?));
            }
            memory.restore(&steps, &saved).map_err(|error| wrong(py, &error))
        })
    }

    /// Applies a sum to the parts that this worker keeps.
    fn update(
        &self,
        py: Python<'_>,
        parameters: &Bound<'_, PyAny>,
        summed: Summed<'_>,
        rate: f64,
        group: &Group,
    ) -> PyResult<()> {
        let mut parameters = Buffer::of(parameters, Use::Write)?;
        let (sums, used, group) = (Buffer::of(&summed.0, Use::Read)?, summed.1, group.get()?);
        with!(self.get(py), memory => {
            let tensors = tensors(memory, &used)?;
            let sum = sum_of(memory, &sums, &tensors)?;
            // SAFETY: parameters are written by their optimizer alone, and are not those that are read.
            let parameters = unsafe { numbers_mut(memory, &mut parameters) }?;
            let updated = py.detach(|| memory.update(parameters, sum, rate, &group));
            updated.map_err(|error| Failed::Learning(error).raised(py))
        })
    }

    /// Gives all workers the parameters that each has updated.
    fn spread(&self, py: Python<'_>, parameters: &Bound<'_, PyAny>, group: &Group) -> PyResult<()> {
        let (mut parameters, group) = (Buffer::of(parameters, Use::Write)?, group.get()?);
        with!(self.get(py), memory => {
            // SAFETY: as above.
            let parameters = unsafe { numbers_mut(memory, &mut parameters) }?;
            py.detach(|| memory.spread(parameters, &group)).map_err(|error| raise(py, &error))
        })
    }

    /// What this worker has; with a sum and its rate, it can do one more step.
    fn held<'py>(
        &self,
        py: Python<'py>,
        parameters: &Bound<'py, PyAny>,
        next: Option<(Summed<'py>, f64)>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let parameters = Buffer::of(parameters, Use::Read)?;
        let sums = next.as_ref().map(|((sums, _), _)| Buffer::of(sums, Use::Read));
        let sums = sums.transpose()?;
        let used = next.as_ref().map_or(&[][..], |((_, used), _)| used);
        let held = with!(self.get(py), memory => {
            let parameters = sized(memory, &parameters)?;
            let tensors = tensors(memory, used)?;
            let sum = sums.as_ref().map(|sums| sum_of(memory, sums, &tensors)).transpose()?;
            let next = sum.zip(next.as_ref()).map(|(sum, (_, rate))| (sum, *rate, &[][..]));
            let held = memory.held(parameters, &[], next);
            held.map(|held| held.to_bytes()).transpose().map_err(PyValueError::new_err)?
        });
        Ok(PyBytes::new(py, &held.unwrap_or_default()))
    }

    /// Puts together what all workers that are left have, and writes the parameters; raises where a part is lost.
    fn heal(&self, held: Vec<Vec<u8>>, parameters: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, mut parameters) = (parameters.py(), Buffer::of(parameters, Use::Write)?);
        with!(self.get(py), memory => {
            // SAFETY: as above.
            let parameters = unsafe { numbers_mut(memory, &mut parameters) }?;
            let parts: Result<Vec<_>, String> = held.iter().map(|bytes| Held::from_bytes(bytes)).collect();
            let healed = parts.and_then(|parts| memory.heal(parts, parameters));
            healed.map(drop).map_err(PyValueError::new_err)
        })
    }
}

impl FlatOptimizer {
    fn get(&self, py: Python<'_>) -> MutexGuard<'_, Kept> {
        locked::attached(py, &self.0)
    }
}

/// Where the tensors are that have a gradient.
fn tensors<T: Real + Element>(memory: &Memory<T>, used: &[usize]) -> PyResult<Vec<Range<usize>>> {
    let found = used.iter().map(|place| memory.tensors.get(*place).cloned());
    let found: Option<Vec<_>> = found.collect();
    found.ok_or_else(|| {
        PyValueError::new_err(format!(
            "there are {} tensors, others have a gradient",
            memory.tensors.len()
        ))
    })
}

fn sum_of<'a, T: Real + Element>(
    memory: &Memory<T>,
    sums: &'a Buffer,
    tensors: &'a [Range<usize>],
) -> PyResult<Sum<'a, T>> {
    Ok(Sum {
        numbers: sized(memory, sums)?,
        tensors,
        clip: Clip::NONE,
    })
}

/// The numbers of a buffer, one for each parameter.
fn sized<'a, T: Real + Element>(memory: &Memory<T>, buffer: &'a Buffer) -> PyResult<&'a [T]> {
    let found = numbers(buffer).map_err(PyTypeError::new_err)?;
    if found.len() != memory.count() {
        return Err(PyValueError::new_err(format!(
            "{} numbers came for {} parameters",
            found.len(),
            memory.count()
        )));
    }
    Ok(found)
}

/// The same, to be written.
///
/// # Safety
///
/// Nobody else reads or writes them meanwhile.
unsafe fn numbers_mut<'a, T: Real + Element>(
    memory: &Memory<T>,
    buffer: &'a mut Buffer,
) -> PyResult<&'a mut [T]> {
    let count = sized(memory, buffer)?.len();
    // SAFETY: there are so many numbers of this type at this address, and nobody else looks at them.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.part().0.cast(), count) })
}
