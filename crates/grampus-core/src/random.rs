//! Seeded randomness: a generator that is the same on every machine and in every version.

/// SplitMix64. Small, fast, and good enough for schedules, shuffles and seeds; not for secrets.
///
/// ```
/// use grampus_core::Random;
/// let mut first = Random::from_parts(&[42, 7]);
/// let mut again = Random::from_parts(&[42, 7]);
/// assert_eq!(first.next_u64(), again.next_u64());
/// assert_ne!(Random::from_parts(&[42, 8]).next_u64(), Random::from_parts(&[42, 7]).next_u64());
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A generator for one seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for a tuple such as (seed, epoch, step, lane): each part changes all that follows.
    pub fn from_parts(parts: &[u64]) -> Self {
        let mut random = Self::new(parts.len() as u64);
        for part in parts {
            random.state = random.next_u64() ^ part.wrapping_mul(GOLDEN);
        }
        random
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, without bias worth naming; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_never_changes() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                0x910a_2dec_8902_5cc1,
                0xbeeb_8da1_658e_ec67,
                0xf893_a2ee_fb32_555e
            ]
        );
    }

    #[test]
    fn below_reaches_every_value_and_no_other() {
        let mut random = Random::new(3);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
