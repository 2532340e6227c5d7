//! The hot loops: read some operands, combine them in a tree, write the result.
//!
//! Each is one simple loop over elements, which the compiler turns into whole registers and a rest, with the same
//! operations on every element. For that it must know that the output is none of the operands; `Program` sees to it.

use half::{bf16, f16};

use super::dtype::{DType, Op};
use super::element::{And, Combine, Element, Max, Min, Or, Product, Sum, Truth, Work};
use super::level::Level;

/// The most operands that one kernel combines.
pub(super) const MAX_OPERANDS: usize = 8;

/// What a whole result is scaled by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// By a power of two: the same bits as dividing by its inverse, and faster. One changes nothing.
    Multiply(f64),
    Divide(f64),
}

/// The arguments of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// As many as the kernel is for; the rest is not looked at.
    pub operands: [*const u8; MAX_OPERANDS],
    /// One more operand in the form of partial results, combined with what the others make; null if there is none.
    pub extra: *const u8,
    pub out: *mut u8,
    pub count: usize,
    pub scale: Scale,
}

/// A compiled loop. Unsafe: the pointers of the call are aligned and good for its count, in the forms the kernel is
/// for; the output overlaps no operand; the machine has the level the kernel is for.
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
        DType::F16 => of_f16(wanted),
        DType::Bf16 => of_float::<bf16>(wanted),
        DType::I8 => of_integer::<i8>(wanted),
        DType::U8 => of_integer::<u8>(wanted),
        DType::I32 => of_integer::<i32>(wanted),
        DType::I64 => of_integer::<i64>(wanted),
        DType::Bool => of_bool(wanted),
    }
}

fn of_f16(wanted: Wanted) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if let Some(kernel) = super::f16c::find(wanted) {
        return kernel;
    }
    of_float::<f16>(wanted)
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
    unsafe { fold::<E, O, K, NATIVE, WHOLE>(call) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    call: &Call,
) {
    // SAFETY: as the caller promises.
    unsafe { fold::<E, O, K, NATIVE, WHOLE>(call) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<E: Element, O: Combine<E::Work>, const K: usize, const NATIVE: bool, const WHOLE: bool>(
    call: &Call,
) {
    // SAFETY: as the caller promises.
    unsafe { fold::<E, O, K, NATIVE, WHOLE>(call) }
}

/// One loop for each kind of call, so that none has to ask in the middle of it. Unsafe as a `Kernel` is.
#[inline(always)]
pub(super) unsafe fn fold<E, O, const K: usize, const NATIVE: bool, const WHOLE: bool>(call: &Call)
where
    E: Element,
    O: Combine<E::Work>,
{
    let Call {
        operands,
        extra,
        out,
        count,
        scale,
    } = *call;
    let extra = extra.cast::<E::Work>();
    // SAFETY: every index is below the count, for which the caller promises all pointers to be good.
    unsafe {
        let result = |at: usize| tree::<E, O, K, NATIVE>(&operands, at);
        let with_extra = |at: usize| O::combine(extra.add(at).read(), result(at));
        if !WHOLE {
            let out = std::slice::from_raw_parts_mut(out.cast::<E::Work>(), count);
            return if extra.is_null() {
                fill(out, result)
            } else {
                fill(out, with_extra)
            };
        }
        let out = std::slice::from_raw_parts_mut(out.cast::<E>(), count);
        match scale {
            Scale::Multiply(by) => {
                let factor = E::Work::from_f64(by);
                if extra.is_null() {
                    fill(out, |at| E::seal(result(at).multiplied(factor)));
                } else {
                    fill(out, |at| E::seal(with_extra(at).multiplied(factor)));
                }
            }
            Scale::Divide(by) => {
                let divisor = E::Work::from_f64(by);
                if extra.is_null() {
                    fill(out, |at| E::seal(result(at).divided(divisor)));
                } else {
                    fill(out, |at| E::seal(with_extra(at).divided(divisor)));
                }
            }
        }
    }
}

#[inline(always)]
fn fill<T>(out: &mut [T], make: impl Fn(usize) -> T) {
    for (at, value) in out.iter_mut().enumerate() {
        *value = make(at);
    }
}

/// Combine element `at` of all operands, of which there are 1, 2, 4 or 8.
#[inline(always)]
unsafe fn tree<E, O, const K: usize, const NATIVE: bool>(
    operands: &[*const u8; MAX_OPERANDS],
    at: usize,
) -> E::Work
where
    E: Element,
    O: Combine<E::Work>,
{
    // SAFETY: as the caller promises.
    let one = |index: usize| unsafe {
        let from = operands[index];
        if NATIVE {
            from.cast::<E>().add(at).read().widen()
        } else {
            from.cast::<E::Work>().add(at).read()
        }
    };
    let two = |index: usize| O::combine(one(2 * index), one(2 * index + 1));
    let four = |index: usize| O::combine(two(2 * index), two(2 * index + 1));
    match K {
        8 => O::combine(four(0), four(1)),
        4 => four(0),
        2 => two(0),
        _ => one(0),
    }
}
