//! A sum of floats that does not depend on the order of its terms.

use serde::{Deserialize, Serialize};

/// Bits of a limb.
const WIDTH: usize = 32;

/// A float is a whole multiple of 2^-1074 of up to 2,098 bits; two limbs more hold the sum of 2^63 of them.
const LIMBS: usize = 68;

/// So many terms may be added before a limb could overflow.
const CARRY_AFTER: u32 = 1 << 30;

/// The exact sum of any floats: a fixed-point number wide enough for all of them, rounded once, when it is read.
///
/// ```
/// use grampus_train::metrics::ExactSum;
///
/// let mut sum = ExactSum::default();
/// for term in [1e300, 1.0, -1e300] {
///     sum.add(term);
/// }
/// assert_eq!(sum.value(), 1.0);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Wire", try_from = "Wire")]
pub struct ExactSum {
    /// Lowest first; between two carries a limb may hold more than its width, and be negative.
    limbs: [i64; LIMBS],
    /// Terms since the last carry.
    pending: u32,
    /// The sum of the terms that are not finite: zero, infinite or NaN.
    special: f64,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self {
            limbs: [0; LIMBS],
            pending: 0,
            special: 0.0,
        }
    }
}

impl ExactSum {
    /// Adds a term.
    pub fn add(&mut self, term: f64) {
        let bits = term.to_bits();
        let exponent = ((bits >> 52) & 0x7ff) as usize;
        if exponent == 0x7ff {
            self.special += term;
            return;
        }
        let fraction = bits & ((1 << 52) - 1);
        // Where the exponent is zero, the leading one is missing and the step is that of exponent one.
        let (mantissa, position) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << 52, exponent - 1),
        };
        let (low, shift) = (position / WIDTH, position % WIDTH);
        // The mantissa, moved up by `shift`, covers three limbs.
        let above = mantissa >> (WIDTH - shift);
        let parts = [(mantissa << shift) as u32, above as u32, (above >> WIDTH) as u32];
        let sign = 1 - 2 * i64::from(term.is_sign_negative());
        for (at, part) in parts.into_iter().enumerate() {
            self.limbs[low + at] += sign * i64::from(part);
        }
        self.count_term();
    }

    /// Adds a product, without rounding it.
    pub(super) fn add_product(&mut self, one: f64, other: f64) {
        let near = one * other;
        self.add(near);
        // What rounding took away is a float, too.
        self.add(one.mul_add(other, -near));
    }

    /// Floats whose sum this is, the largest first.
    pub(super) fn parts(&self) -> Vec<f64> {
        let mut rest = self.clone();
        let mut parts = Vec::new();
        loop {
            let part = rest.value();
            if part == 0.0 {
                return parts;
            }
            parts.push(part);
            if !part.is_finite() {
                return parts;
            }
            rest.add(-part);
        }
    }

    /// Adds all terms of another sum.
    pub fn merge(&mut self, other: &Self) {
        let other = other.carried();
        for (limb, added) in self.limbs.iter_mut().zip(other.limbs) {
            *limb += added;
        }
        self.special += other.special;
        self.count_term();
    }

    /// The float nearest to the sum; of two, the even one.
    pub fn value(&self) -> f64 {
        if self.special.is_nan() {
            return f64::NAN;
        }
        if self.special != 0.0 {
            return self.special;
        }
        let mut sum = self.carried();
        let negative = sum.limbs[LIMBS - 1] < 0;
        if negative {
            sum.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            sum.carry();
        }
        let highest = sum.limbs.iter().rposition(|limb| *limb != 0).unwrap_or(0).max(2);
        let (below, top) = sum.limbs[..=highest].split_at(highest - 2);
        let mut wide = top
            .iter()
            .rev()
            .fold(0, |wide, limb| wide << WIDTH | *limb as u128);
        // More bits follow than a float holds; of those left out, it matters only whether there are any.
        if below.iter().any(|limb| *limb != 0) {
            wide |= 1;
        }
        let magnitude = wide as f64 * power_of_two((highest - 2) * WIDTH);
        if negative { -magnitude } else { magnitude }
    }

    fn count_term(&mut self) {
        self.pending += 1;
        if self.pending == CARRY_AFTER {
            self.carry();
        }
    }

    fn carried(&self) -> Self {
        let mut sum = self.clone();
        sum.carry();
        sum
    }

    /// Makes every limb but the last a number of its width, none of them negative: the one form of a sum.
    fn carry(&mut self) {
        let mut carry = 0;
        for limb in &mut self.limbs[..LIMBS - 1] {
            let full = *limb + carry;
            *limb = full & ((1 << WIDTH) - 1);
            carry = full >> WIDTH;
        }
        self.limbs[LIMBS - 1] += carry;
        self.pending = 0;
    }
}

/// 2 to the power of `steps - 1074`.
fn power_of_two(steps: usize) -> f64 {
    match steps {
        0..52 => f64::from_bits(1 << steps),
        _ => f64::from_bits((steps as u64 - 51) << 52),
    }
}

/// A sum on its way: its limbs without the zeros at the top.
#[derive(Serialize, Deserialize)]
struct Wire {
    limbs: Vec<i64>,
    special: f64,
}

impl From<ExactSum> for Wire {
    fn from(sum: ExactSum) -> Self {
        let sum = sum.carried();
        let used = sum
            .limbs
            .iter()
            .rposition(|limb| *limb != 0)
            .map_or(0, |last| last + 1);
        Self {
            limbs: sum.limbs[..used].to_vec(),
            special: sum.special,
        }
    }
}

impl TryFrom<Wire> for ExactSum {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<Self, Self::Error> {
        let mut sum = Self {
            special: wire.special,
            ..Self::default()
        };
        let target = sum.limbs.get_mut(..wire.limbs.len());
        target
            .ok_or("a sum has too many limbs")?
            .copy_from_slice(&wire.limbs);
        let narrow = |limb: &i64| (-1 << WIDTH..1 << WIDTH).contains(limb);
        if !sum.limbs.iter().all(narrow) {
            return Err("a limb of a sum is too wide");
        }
        Ok(sum)
    }
}
