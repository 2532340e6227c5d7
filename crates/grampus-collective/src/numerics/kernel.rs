//! The hot loops: read some operands, combine them in a tree, write the result to one or two places.
//!
//! The loops are written over small arrays, all read before any is written: that is what lets the compiler use
//! whole registers although an output may be one of the inputs.

use half::{bf16, f16};

use super::dtype::{DType, Op};
use super::element::{And, Combine, Element, Max, Min, Or, Product, Sum, Truth, Work, each};
#[cfg(target_arch = "x86_64")]
use super::level::{Avx2, Avx512};
use super::level::{Level, Plain, Width};

/// The most operands that one kernel combines.
pub(super) const MAX_OPERANDS: usize = 8;
/// Elements per turn of a loop: a cache line of f32.
const TURN: usize = 16;

/// One more operand, combined with what the others make.
#[derive(Clone, Copy)]
pub(super) enum Extra {
    Nothing,
    /// In the form of users' buffers.
    Native(*const u8),
    /// In the form of partial results.
    Partial(*const u8),
}

/// What a whole result is scaled by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    Nothing,
    Multiply(f64),
    Divide(f64),
}

/// The arguments of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// As many as the kernel is for; the rest is not looked at.
    pub operands: [*const u8; MAX_OPERANDS],
    pub extra: Extra,
    pub out: *mut u8,
    /// Null if the result is wanted once.
    pub second: *mut u8,
    pub count: usize,
    pub scale: Scale,
}

/// A compiled loop. Unsafe: the pointers of the call are good for its count, in the forms the kernel is for, and
/// the machine has the level the kernel is for.
pub(super) type Kernel = unsafe fn(&Call);

/// Which kernel is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub level: Level,
    pub dtype: DType,
    pub op: Op,
    /// How many operands: one of those that `fuses` allows.
    pub operands: usize,
    /// The operands are in the form of users' buffers rather than of partial results.
    pub native: bool,
    /// The result is what users get rather than a partial result.
    pub whole: bool,
}

/// Whether there is a kernel that combines so many operands in one pass.
///
/// All but the sums get by with one operand and an extra one: they are rare, and every kernel is code to carry.
pub(super) fn fuses(op: Op, dtype: DType, operands: usize) -> bool {
    let summed = matches!(op, Op::Sum | Op::Mean) && dtype.is_float();
    operands == 1 || (summed && matches!(operands, 2 | 4 | 8))
}

/// Find the kernel. The operation must be one that `check` allows.
pub(super) fn find(wanted: Wanted) -> Kernel {
    match wanted.dtype {
        DType::F32 => of_float::<f32>(wanted),
        DType::F64 => of_float::<f64>(wanted),
        DType::F16 => of_float::<f16>(wanted),
        DType::Bf16 => of_float::<bf16>(wanted),
        DType::I8 => of_integer::<i8>(wanted),
        DType::U8 => of_integer::<u8>(wanted),
        DType::I32 => of_integer::<i32>(wanted),
        DType::I64 => of_integer::<i64>(wanted),
        DType::Bool => of_bool(wanted),
    }
}

fn of_float<E: Element>(wanted: Wanted) -> Kernel
where
    Sum: Combine<E::Work>,
    Product: Combine<E::Work>,
    Min: Combine<E::Work>,
    Max: Combine<E::Work>,
{
    match (wanted.op, wanted.operands) {
        (Op::Min, _) => of_form::<E, Min, 1>(wanted),
        (Op::Max, _) => of_form::<E, Max, 1>(wanted),
        (Op::Product, _) => of_form::<E, Product, 1>(wanted),
        (_, 2) => of_form::<E, Sum, 2>(wanted),
        (_, 4) => of_form::<E, Sum, 4>(wanted),
        (_, 8) => of_form::<E, Sum, 8>(wanted),
        (_, _) => of_form::<E, Sum, 1>(wanted),
    }
}

fn of_integer<E: Element<Work = E>>(wanted: Wanted) -> Kernel
where
    Sum: Combine<E>,
    Product: Combine<E>,
    Min: Combine<E>,
    Max: Combine<E>,
    And: Combine<E>,
    Or: Combine<E>,
{
    match wanted.op {
        Op::Min => of_level::<E, Min, 1, true, true>(wanted.level),
        Op::Max => of_level::<E, Max, 1, true, true>(wanted.level),
        Op::Product => of_level::<E, Product, 1, true, true>(wanted.level),
        Op::And => of_level::<E, And, 1, true, true>(wanted.level),
        Op::Or => of_level::<E, Or, 1, true, true>(wanted.level),
        Op::Sum | Op::Mean => of_level::<E, Sum, 1, true, true>(wanted.level),
    }
}

fn of_bool(wanted: Wanted) -> Kernel {
    match wanted.op {
        Op::Product | Op::Min | Op::And => of_level::<Truth, And, 1, true, true>(wanted.level),
        Op::Sum | Op::Mean | Op::Max | Op::Or => of_level::<Truth, Or, 1, true, true>(wanted.level),
    }
}

fn of_form<E: Element, O: Combine<E::Work>, const K: usize>(wanted: Wanted) -> Kernel {
    // Where the two forms are one type, the kernel for the native form does for both.
    let native = wanted.native || wanted.dtype.partial() == wanted.dtype;
    match (native, wanted.whole) {
        (true, true) => of_level::<E, O, K, true, true>(wanted.level),
        (true, false) => of_level::<E, O, K, true, false>(wanted.level),
        (false, true) => of_level::<E, O, K, false, true>(wanted.level),
        (false, false) => of_level::<E, O, K, false, false>(wanted.level),
    }
}

fn of_level<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    level: Level,
) -> Kernel {
    match level {
        Level::Plain => plain::<E, O, K, NATIVE, WHOLE>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::<E, O, K, NATIVE, WHOLE>,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::<E, O, K, NATIVE, WHOLE>,
    }
}

unsafe fn plain<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    call: &Call,
) {
    // SAFETY: as the caller promises.
    unsafe { fold::<Plain, E, O, K, NATIVE, WHOLE>(call) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    call: &Call,
) {
    // SAFETY: as the caller promises.
    unsafe { fold::<Avx2, E, O, K, NATIVE, WHOLE>(call) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn avx512<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    call: &Call,
) {
    // SAFETY: as the caller promises.
    unsafe { fold::<Avx512, E, O, K, NATIVE, WHOLE>(call) }
}

#[inline(always)]
unsafe fn fold<L, E, O, const K: usize, const NATIVE: bool, const WHOLE: bool>(call: &Call)
where
    L: Width,
    E: Element,
    O: Combine<E::Work>,
{
    // A copy, so that the compiler need not fear that a store changes it.
    let call = *call;
    let mut at = 0;
    while at + TURN <= call.count {
        // SAFETY: elements `at` to `at + TURN` are below the count, for which all pointers are good.
        unsafe { turn::<L, E, O, K, NATIVE, WHOLE, TURN>(&call, at) };
        at += TURN;
    }
    while at < call.count {
        // SAFETY: element `at` is below the count, for which all pointers are good.
        unsafe { turn::<L, E, O, K, NATIVE, WHOLE, 1>(&call, at) };
        at += 1;
    }
}

/// Elements `at` to `at + N`. Body and tail of the loops share it, so that they do the same to every element.
#[inline(always)]
unsafe fn turn<L, E, O, const K: usize, const NATIVE: bool, const WHOLE: bool, const N: usize>(
    call: &Call,
    at: usize,
) where
    L: Width,
    E: Element,
    O: Combine<E::Work>,
{
    // SAFETY: as the caller promises, each pointer is good for N elements of its form from `at` on.
    unsafe {
        let mut values = [[E::Work::default(); N]; K];
        for (value, &from) in values.iter_mut().zip(&call.operands) {
            *value = if NATIVE {
                native::<L, E, N>(from, at)
            } else {
                read::<E::Work, N>(from, at)
            };
        }
        let mut width = K;
        while width > 1 {
            for pair in 0..width / 2 {
                values[pair] = combined::<E::Work, O, N>(values[2 * pair], values[2 * pair + 1]);
            }
            width /= 2;
        }
        let mut result = values[0];
        match call.extra {
            Extra::Nothing => {}
            Extra::Native(from) => result = combined::<_, O, N>(native::<L, E, N>(from, at), result),
            Extra::Partial(from) => result = combined::<_, O, N>(read::<E::Work, N>(from, at), result),
        }
        if !WHOLE {
            return write(call, at, result);
        }
        match call.scale {
            Scale::Nothing => {}
            Scale::Multiply(by) => result = each(|index| result[index].multiplied(by)),
            Scale::Divide(by) => result = each(|index| result[index].divided(by)),
        }
        write(call, at, E::seal::<L, N>(result));
    }
}

#[inline(always)]
fn combined<W: Copy + Default, O: Combine<W>, const N: usize>(left: [W; N], right: [W; N]) -> [W; N] {
    each(|index| O::combine(left[index], right[index]))
}

#[inline(always)]
unsafe fn native<L: Width, E: Element, const N: usize>(from: *const u8, at: usize) -> [E::Work; N] {
    // SAFETY: as the caller promises.
    E::widen::<L, N>(unsafe { read::<E, N>(from, at) })
}

#[inline(always)]
unsafe fn read<T: Copy, const N: usize>(from: *const u8, at: usize) -> [T; N] {
    // SAFETY: as the caller promises.
    unsafe { from.cast::<T>().add(at).cast::<[T; N]>().read_unaligned() }
}

#[inline(always)]
unsafe fn write<T: Copy, const N: usize>(call: &Call, at: usize, values: [T; N]) {
    // SAFETY: as the caller promises.
    unsafe {
        call.out
            .cast::<T>()
            .add(at)
            .cast::<[T; N]>()
            .write_unaligned(values);
        if !call.second.is_null() {
            call.second
                .cast::<T>()
                .add(at)
                .cast::<[T; N]>()
                .write_unaligned(values);
        }
    }
}
