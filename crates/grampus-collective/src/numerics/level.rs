//! How wide the registers are. It decides the speed of a kernel, never its bits.

/// The instruction sets that kernels are compiled for. Found once per program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// What every machine of the architecture has.
    Plain,
    /// AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The widest level of this machine.
    pub(super) fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::Plain)
    }

    /// All levels of this machine, the widest last.
    pub(super) fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            const ALL: [Level; 3] = [Level::Plain, Level::Avx2, Level::Avx512];
            let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("f16c");
            let avx512 = std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512bw")
                && std::is_x86_feature_detected!("avx512dq")
                && std::is_x86_feature_detected!("avx512vl");
            match (avx2, avx512) {
                (true, true) => &ALL,
                (true, false) => &ALL[..2],
                (false, _) => &ALL[..1],
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            &[Self::Plain]
        }
    }
}

/// A level as a type, for code that is compiled once for each.
pub(super) trait Width {
    /// The level.
    const LEVEL: Level;
}

pub(super) struct Plain;
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

impl Width for Plain {
    const LEVEL: Level = Level::Plain;
}
#[cfg(target_arch = "x86_64")]
impl Width for Avx2 {
    const LEVEL: Level = Level::Avx2;
}
#[cfg(target_arch = "x86_64")]
impl Width for Avx512 {
    const LEVEL: Level = Level::Avx512;
}
