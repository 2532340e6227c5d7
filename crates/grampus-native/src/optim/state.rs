//! What an optimizer remembers from step to step.

use crate::error::NativeError;
use crate::real::Real;

use super::Optimizer;

/// The name of something that is remembered for each parameter, and its numbers.
pub(super) type Slot<T> = (&'static str, Vec<T>);

/// What an optimizer remembers: numbers for each parameter, and how many steps there were.
///
/// Slots have the names of PyTorch's. Each is as long as the flat parameters; where an owner has only a part
/// of them, the rest is never touched, and takes up no memory if it begins with zero.
#[derive(Clone, Debug, PartialEq)]
pub struct State<T> {
    steps: u64,
    slots: Vec<Slot<T>>,
}

impl<T: Real> State<T> {
    /// Before the first step, for this many parameters.
    pub fn new(optimizer: &Optimizer, length: usize) -> Self {
        let slots = optimizer.slots().into_iter();
        Self {
            steps: 0,
            slots: slots
                .map(|(name, start)| (name, vec![T::of(start); length]))
                .collect(),
        }
    }

    /// Of this many parameters, with all numbers zero, which take up no memory until they are written.
    pub fn empty(optimizer: &Optimizer, length: usize) -> Self {
        let slots = optimizer.slots().into_iter();
        Self {
            steps: 0,
            slots: slots.map(|(name, _)| (name, vec![T::zero(); length])).collect(),
        }
    }

    /// Counts a step. Each has one call of this, then updates of ranges that do not overlap.
    pub fn begin_step(&mut self) {
        self.steps += 1;
    }

    /// How many steps have begun.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes on after this many steps.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// The slots: what each is called, and its numbers.
    pub fn slots(&self) -> &[(&'static str, Vec<T>)] {
        &self.slots
    }

    /// The slots, to write their numbers.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut [T])> {
        self.slots
            .iter_mut()
            .map(|(name, numbers)| (*name, numbers.as_mut_slice()))
    }

    /// Goes on with what one of the same kind remembered, for as many parameters: steps, and numbers by name, in order.
    pub fn restore(&mut self, steps: u64, saved: &[(&str, &[T])]) -> Result<(), NativeError> {
        let names = |slots: Vec<&str>| match slots.is_empty() {
            true => "nothing".to_owned(),
            false => slots.join(", "),
        };
        let own: Vec<&str> = self.slots.iter().map(|(name, _)| *name).collect();
        let found: Vec<&str> = saved.iter().map(|(name, _)| *name).collect();
        if own != found {
            return Err(NativeError::Input(format!(
                "the saved optimizer remembers {}, this one {}: build it as the saved one was",
                names(found),
                names(own)
            )));
        }
        let mut both = self.slots.iter().zip(saved);
        if let Some(((name, _), _)) = both.find(|((_, own), (_, saved))| own.len() != saved.len()) {
            let reason = format!("{name}: what was saved is of another model");
            return Err(NativeError::Input(reason));
        }
        for ((_, own), (_, saved)) in self.slots.iter_mut().zip(saved) {
            own.copy_from_slice(saved);
        }
        self.steps = steps;
        Ok(())
    }

    pub(super) fn raw_slots(&mut self) -> &mut [Slot<T>] {
        &mut self.slots
    }

    /// Whether it is one of this optimizer, with a step begun, and for this many parameters.
    pub(super) fn check(&self, optimizer: &Optimizer, length: usize) -> Result<(), NativeError> {
        let names = optimizer.slots().into_iter().map(|(name, _)| name);
        if !self.slots.iter().map(|(name, _)| *name).eq(names) {
            return Err(strange());
        }
        if self.steps == 0 {
            return Err(NativeError::Input(
                "no step has begun: call begin_step before the first update".into(),
            ));
        }
        match self.slots.iter().find(|(_, numbers)| numbers.len() != length) {
            Some((name, numbers)) => Err(NativeError::Input(format!(
                "the optimizer's {name} is for {} parameters, and {length} came",
                numbers.len()
            ))),
            None => Ok(()),
        }
    }
}

/// A state that was made for another kind.
pub(super) fn strange() -> NativeError {
    NativeError::Input("the state is not one of this optimizer: make it from the same settings".into())
}
