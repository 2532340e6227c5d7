//! The loops over parameters, gradients and slots: one pass over memory for all of them.

use std::ops::Range;

use crate::error::NativeError;
use crate::real::{Real, wide_loop};

use super::clip::{Clip, Clipper};
use super::state::{Slot, strange};

/// Parameters that lie together in one tensor, with all that it takes to update them.
pub(super) struct Part<'a, T> {
    pub(super) lr: f64,
    pub(super) weight_decay: f64,
    /// How long a step is for its direction, for rules that ask for it.
    pub(super) trust: f64,
    /// How many steps there were, with this one.
    pub(super) steps: u64,
    pub(super) clip: Clip,
    pub(super) parameters: &'a mut [T],
    pub(super) gradient: &'a [T],
    /// All of each slot; those of the part are at `place`.
    pub(super) slots: &'a mut [Slot<T>],
    pub(super) place: Range<usize>,
}

/// Each sweep is for as many slots as its name says. Loops are functions of their own, with a slice for each
/// buffer, because that is how the compiler knows that buffers do not overlap.
impl<T: Real> Part<'_, T> {
    pub(super) fn sweep0(self, rule: impl Fn(&mut T, T)) -> Result<(), NativeError> {
        let clip = self.clip.rounded();
        wide_loop(
            #[inline(always)]
            || loop0(self.parameters, self.gradient, clip, rule),
        );
        Ok(())
    }

    pub(super) fn sweep1(self, rule: impl Fn(&mut T, T, &mut T)) -> Result<(), NativeError> {
        let clip = self.clip.rounded();
        let [a] = views(self.slots, self.place)?;
        wide_loop(
            #[inline(always)]
            || loop1(self.parameters, self.gradient, clip, a, rule),
        );
        Ok(())
    }

    pub(super) fn sweep2(self, rule: impl Fn(&mut T, T, &mut T, &mut T)) -> Result<(), NativeError> {
        let clip = self.clip.rounded();
        let [a, b] = views(self.slots, self.place)?;
        wide_loop(
            #[inline(always)]
            || loop2(self.parameters, self.gradient, clip, a, b, rule),
        );
        Ok(())
    }

    pub(super) fn sweep3(self, rule: impl Fn(&mut T, T, &mut T, &mut T, &mut T)) -> Result<(), NativeError> {
        let clip = self.clip.rounded();
        let [a, b, c] = views(self.slots, self.place)?;
        wide_loop(
            #[inline(always)]
            || loop3(self.parameters, self.gradient, clip, a, b, c, rule),
        );
        Ok(())
    }
}

/// The numbers of slots at a place.
pub(super) fn views<T: Real, const N: usize>(
    slots: &mut [Slot<T>],
    place: Range<usize>,
) -> Result<[&mut [T]; N], NativeError> {
    let slots: &mut [Slot<T>; N] = slots.try_into().map_err(|_| strange())?;
    Ok(slots.each_mut().map(|slot| &mut slot.1[place.clone()]))
}

/// The greater of two; the other one if the first is no number, and none if the other is none.
#[inline(always)]
pub(super) fn greater<T: Real>(one: T, other: T) -> T {
    if one > other { one } else { other }
}

#[inline(always)]
fn loop0<T: Real>(parameters: &mut [T], gradient: &[T], clip: Clipper<T>, rule: impl Fn(&mut T, T)) {
    for (p, g) in parameters.iter_mut().zip(gradient) {
        rule(p, clip.apply(*g));
    }
}

#[inline(always)]
fn loop1<T: Real>(
    parameters: &mut [T],
    gradient: &[T],
    clip: Clipper<T>,
    a: &mut [T],
    rule: impl Fn(&mut T, T, &mut T),
) {
    for ((p, g), a) in parameters.iter_mut().zip(gradient).zip(a) {
        rule(p, clip.apply(*g), a);
    }
}

#[inline(always)]
fn loop2<T: Real>(
    parameters: &mut [T],
    gradient: &[T],
    clip: Clipper<T>,
    a: &mut [T],
    b: &mut [T],
    rule: impl Fn(&mut T, T, &mut T, &mut T),
) {
    for (((p, g), a), b) in parameters.iter_mut().zip(gradient).zip(a).zip(b) {
        rule(p, clip.apply(*g), a, b);
    }
}

#[inline(always)]
fn loop3<T: Real>(
    parameters: &mut [T],
    gradient: &[T],
    clip: Clipper<T>,
    a: &mut [T],
    b: &mut [T],
    c: &mut [T],
    rule: impl Fn(&mut T, T, &mut T, &mut T, &mut T),
) {
    for ((((p, g), a), b), c) in parameters.iter_mut().zip(gradient).zip(a).zip(b).zip(c) {
        rule(p, clip.apply(*g), a, b, c);
    }
}
