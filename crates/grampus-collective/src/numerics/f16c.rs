//! Sums of f16 on machines that convert it in hardware.
//!
//! Rust cannot name the type whose conversions would be vectorised, so these are named themselves: a strip of every
//! operand is widened to the stack, the kernel of f32 does the rest, and the result is rounded. All strips stay in
//! the smallest cache.

use std::arch::x86_64::{
    _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_loadu_si256, _mm256_storeu_ps, _mm256_storeu_si256, _mm512_cvtph_ps,
    _mm512_cvtps_ph, _mm512_loadu_ps, _mm512_storeu_ps,
};
use std::mem::MaybeUninit;

use half::f16;

use super::convert::{f16_to_f32, f32_to_f16};
use super::dtype::Op;
use super::element::Sum;
use super::kernel::{Call, Kernel, MAX_OPERANDS, Wanted, fold};
use super::level::Level;

/// Elements of a strip.
const STRIP: usize = 512;
/// Elements that one instruction of AVX2 converts.
const GROUP: usize = 8;
/// Elements that one instruction of AVX-512 converts. What is written in halves is slow to read back whole, so
/// strips are written as wide as the kernel of f32 reads them.
const WIDE_GROUP: usize = 16;

type Strip = MaybeUninit<[f32; STRIP]>;

/// The kernel, if it is a sum and the machine can.
pub(super) fn find(wanted: Wanted) -> Option<Kernel> {
    let able = wanted.level != Level::Plain && std::is_x86_feature_detected!("f16c");
    if !able || !matches!(wanted.op, Op::Sum | Op::Mean) {
        return None;
    }
    Some(match wanted.operands {
        2 => of_form::<2>(wanted),
        4 => of_form::<4>(wanted),
        8 => of_form::<8>(wanted),
        _ => of_form::<1>(wanted),
    })
}

fn of_form<const K: usize>(wanted: Wanted) -> Kernel {
    match (wanted.level == Level::Avx512, wanted.native, wanted.whole) {
        (true, true, true) => avx512::<K, true, true>,
        (true, true, false) => avx512::<K, true, false>,
        (true, false, true) => avx512::<K, false, true>,
        (true, false, false) => avx512::<K, false, false>,
        (false, true, true) => avx2::<K, true, true>,
        (false, true, false) => avx2::<K, true, false>,
        (false, false, true) => avx2::<K, false, true>,
        (false, false, false) => avx2::<K, false, false>,
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<const K: usize, const NATIVE: bool, const WHOLE: bool>(call: &Call) {
    // SAFETY: as the caller promises.
    unsafe { strips::<K, NATIVE, WHOLE, false>(call) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn avx512<const K: usize, const NATIVE: bool, const WHOLE: bool>(call: &Call) {
    // SAFETY: as the caller promises.
    unsafe { strips::<K, NATIVE, WHOLE, true>(call) }
}

#[inline(always)]
unsafe fn strips<const K: usize, const NATIVE: bool, const WHOLE: bool, const WIDE: bool>(call: &Call) {
    let mut wide: [Strip; K] = [MaybeUninit::uninit(); K];
    let mut sum: Strip = MaybeUninit::uninit();
    for at in (0..call.count).step_by(STRIP) {
        let count = STRIP.min(call.count - at);
        // SAFETY: the strip lies below the count, for which the caller promises all pointers to be good.
        unsafe {
            let mut operands = [std::ptr::null(); MAX_OPERANDS];
            for ((operand, &from), wide) in operands.iter_mut().zip(&call.operands).zip(&mut wide) {
                *operand = if NATIVE {
                    widen::<WIDE>(from.cast::<f16>().add(at), wide.as_mut_ptr().cast(), count);
                    wide.as_ptr().cast()
                } else {
                    from.cast::<f32>().add(at).cast()
                };
            }
            let extra = if call.extra.is_null() {
                call.extra
            } else {
                call.extra.cast::<f32>().add(at).cast()
            };
            let out = if WHOLE {
                sum.as_mut_ptr().cast()
            } else {
                call.out.cast::<f32>().add(at).cast()
            };
            fold::<f32, Sum, K, true, WHOLE>(&Call {
                operands,
                extra,
                out,
                count,
                scale: call.scale,
            });
            if WHOLE {
                narrow::<WIDE>(sum.as_ptr().cast(), call.out.cast::<f16>().add(at), count);
            }
        }
    }
}

#[inline(always)]
unsafe fn widen<const WIDE: bool>(from: *const f16, to: *mut f32, count: usize) {
    let group = if WIDE { WIDE_GROUP } else { GROUP };
    let groups = count / group * group;
    // SAFETY: as the caller promises, both are good for the count.
    unsafe {
        for at in (0..groups).step_by(group) {
            if WIDE {
                _mm512_storeu_ps(
                    to.add(at),
                    _mm512_cvtph_ps(_mm256_loadu_si256(from.add(at).cast())),
                );
            } else {
                _mm256_storeu_ps(to.add(at), _mm256_cvtph_ps(_mm_loadu_si128(from.add(at).cast())));
            }
        }
        for at in groups..count {
            to.add(at).write(f16_to_f32(from.add(at).read()));
        }
    }
}

/// Round to nearest even. A NaN is the canonical one already, and becomes that of f16.
#[inline(always)]
unsafe fn narrow<const WIDE: bool>(from: *const f32, to: *mut f16, count: usize) {
    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
    let group = if WIDE { WIDE_GROUP } else { GROUP };
    let groups = count / group * group;
    // SAFETY: as the caller promises, both are good for the count.
    unsafe {
        for at in (0..groups).step_by(group) {
            let (from, to) = (from.add(at), to.add(at));
            if WIDE {
                _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(from)));
            } else {
                _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from)));
            }
        }
        for at in groups..count {
            to.add(at).write(f32_to_f16(from.add(at).read()));
        }
    }
}
