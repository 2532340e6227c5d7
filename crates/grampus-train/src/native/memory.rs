//! An optimizer with what it remembers: all of it, or the parts that this worker keeps.

use std::ops::Range;

use grampus_collective::{CollectiveError, Element, Group};
use grampus_native::optim::{Clip, Group as Tensors, Optimizer, State, Step, update_alone};
use grampus_native::{NativeError, Real};

use super::learner::LearnError;
use super::sharing::{Held, Next, Rule, Share, count_missed, heal, spread, update_kept};

/// The sum of the gradients of a step.
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a, T> {
    /// One number for each parameter.
    pub numbers: &'a [T],
    /// The tensors that have a gradient; others are left as they are.
    pub tensors: &'a [Range<usize>],
    /// What is done to each number before it is used.
    pub clip: Clip,
}

/// An optimizer of parameters that lie one behind the other, with what it remembers of them.
pub struct Memory<T> {
    /// How parameters follow from gradients.
    pub optimizer: Optimizer,
    /// What it remembers; where that is divided among workers, of the parts that this one keeps.
    pub state: State<T>,
    /// Which parts it keeps, where the memory is divided.
    pub share: Option<Share>,
    /// Where tensors are among the parameters, the first first.
    pub tensors: Vec<Range<usize>>,
    pub(super) groups: Vec<Tensors>,
    /// How many steps each tensor has missed, since it had no gradient.
    missed: Vec<u64>,
    count: usize,
}

impl<T: Real + Element> Memory<T> {
    /// Before the first step, for so many parameters.
    pub fn new(optimizer: Optimizer, tensors: Vec<Range<usize>>, count: usize) -> Result<Self, NativeError> {
        optimizer.check()?;
        Ok(Self {
            state: State::new(&optimizer, count),
            optimizer,
            share: None,
            missed: vec![0; tensors.len()],
            tensors,
            groups: Vec::new(),
            count,
        })
    }

    /// How many parameters there are, with those between tensors.
    pub fn count(&self) -> usize {
        self.count
    }

    /// From now on it is divided among so many workers, of which this is one; what this one need not keep, it forgets.
    pub fn divide(&mut self, owners: usize, me: usize) {
        let count = self.count;
        let share = Share { count, owners, me };
        // Memory that was never written takes no room.
        let mut fresh = State::empty(&self.optimizer, count);
        fresh.set_steps(self.state.steps());
        for ((_, to), (_, from)) in fresh.slots_mut().zip(self.state.slots()) {
            for range in share.kept_ranges() {
                to[range.clone()].copy_from_slice(&from[range]);
            }
        }
        self.state = fresh;
        self.share = Some(share);
    }

    /// Applies a sum to the parts that this worker keeps: to all of them where nothing is divided. [`Memory::spread`] then gives all
    /// parts to all.
    pub fn update(
        &mut self,
        parameters: &mut [T],
        sum: Sum<'_, T>,
        rate: f64,
        group: &Group,
    ) -> Result<(), LearnError> {
        let Some(share) = self.share else {
            return Ok(self.update_alone(parameters, sum, rate)?);
        };
        let missed = count_missed(&self.tensors, sum.tensors, &mut self.missed);
        let rule = Rule {
            optimizer: &self.optimizer,
            groups: &self.groups,
            tensors: sum.tensors,
            missed: &missed,
        };
        let both = (parameters, sum.numbers);
        update_kept(rule, &share, (rate, sum.clip), &mut self.state, both, group)
    }

    /// The same for one who keeps everything.
    pub fn update_alone(
        &mut self,
        parameters: &mut [T],
        sum: Sum<'_, T>,
        rate: f64,
    ) -> Result<(), NativeError> {
        let missed = count_missed(&self.tensors, sum.tensors, &mut self.missed);
        let step = Step {
            clip: sum.clip,
            groups: &self.groups,
            missed: &missed,
            ..Step::new(rate, sum.tensors)
        };
        update_alone(&self.optimizer, step, &mut self.state, parameters, sum.numbers)
    }

    /// Gives all workers the parameters that each has updated.
    pub fn spread(&self, parameters: &mut [T], group: &Group) -> Result<(), CollectiveError> {
        match &self.share {
            Some(share) => spread(share, parameters, group),
            None => Ok(()),
        }
    }

    /// How many steps each tensor has had.
    pub fn steps(&self) -> Vec<u64> {
        let all = self.state.steps();
        self.missed.iter().map(|missed| all - missed).collect()
    }

    /// Goes on with what one of the same kind remembered after so many steps of each tensor: numbers by name, in order.
    pub fn restore(&mut self, steps: &[u64], saved: &[(&str, &[T])]) -> Result<(), NativeError> {
        if steps.len() != self.tensors.len() {
            let reason = format!("steps of {} tensors came for {}", steps.len(), self.tensors.len());
            return Err(NativeError::Input(reason));
        }
        let all = steps.iter().copied().max().unwrap_or(0);
        self.state.restore(all, saved)?;
        self.missed = steps.iter().map(|steps| all - steps).collect();
        Ok(())
    }

    /// Names of what it remembers.
    pub fn slots(&self) -> impl Iterator<Item = &'static str> {
        self.state.slots().iter().map(|(name, _)| *name)
    }

    /// All numbers of one slot; all workers must ask at once where they are divided.
    pub fn slot(&self, place: usize, whole: &mut [T], group: &Group) -> Result<(), CollectiveError> {
        let numbers = self.state.slots().get(place).map(|(_, numbers)| numbers);
        let Some(numbers) = numbers.filter(|numbers| numbers.len() == whole.len()) else {
            let reason = format!("there is no slot {place} of {} numbers", whole.len());
            return Err(CollectiveError::Argument(reason));
        };
        match &self.share {
            // The rest was never written, and need not be read.
            Some(share) => {
                let mine = share.range(share.me);
                whole[mine.clone()].copy_from_slice(&numbers[mine]);
                spread(share, whole, group)
            }
            None => {
                whole.copy_from_slice(numbers);
                Ok(())
            }
        }
    }

    /// The parts that this worker keeps.
    pub fn kept(&self) -> impl Iterator<Item = Range<usize>> {
        let alone = Share {
            count: self.count,
            owners: 1,
            me: 0,
        };
        self.share.unwrap_or(alone).kept_ranges()
    }

    /// Bytes of what this worker remembers.
    pub fn bytes(&self) -> usize {
        self.kept().map(|range| range.len()).sum::<usize>() * self.state.slots().len() * size_of::<T>()
    }

    /// What this worker has of a run whose memory is divided. With `next`, what it needs to do one more step: the sum, the rate, and
    /// what layers will keep then.
    pub fn held(
        &self,
        parameters: &[T],
        buffers: &[T],
        next: Option<(Sum<'_, T>, f64, &[T])>,
    ) -> Option<Held<T>> {
        let share = self.share?;
        let next = next.map(|(sum, rate, buffers)| Next {
            rate,
            clip: sum.clip,
            tensors: sum.tensors.to_vec(),
            sums: share
                .kept_ranges()
                .map(|range| sum.numbers[range].to_vec())
                .collect(),
            buffers: buffers.to_vec(),
        });
        let state = (&self.state, &self.missed[..]);
        Some(Held::of(share, state, parameters, buffers, next))
    }

    /// Takes what all workers that are left have, put together: parameters and memory. Gives what layers keep besides; says which part
    /// is lost, if one is.
    pub fn heal(&mut self, held: Vec<Held<T>>, parameters: &mut [T]) -> Result<Vec<T>, String> {
        let rule = Rule {
            optimizer: &self.optimizer,
            groups: &self.groups,
            tensors: &self.tensors,
            missed: &[],
        };
        let healed = heal(rule, held)?;
        if healed.parameters.len() != parameters.len() {
            return Err("what was kept is of another model".into());
        }
        parameters.copy_from_slice(&healed.parameters);
        for ((_, numbers), slot) in self.state.slots_mut().zip(&healed.slots) {
            numbers.copy_from_slice(slot);
        }
        self.state.set_steps(healed.steps);
        self.missed = healed.missed;
        Ok(healed.buffers)
    }
}
