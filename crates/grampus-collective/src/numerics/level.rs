//! How wide the registers are. It decides the speed of a kernel, never its bits.

/// The instruction sets that kernels are compiled for. Found once per program.
///
/// None of them has fused multiply-add: where the compiler may use it depends on the width, and so would bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// What every machine of the architecture has.
    Plain,
    /// AVX2.
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
    #[cfg(target_arch = "x86_64")]
    pub(super) fn available() -> &'static [Self] {
        const ALL: [Level; 3] = [Level::Plain, Level::Avx2, Level::Avx512];
        let avx512 = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl");
        match (std::is_x86_feature_detected!("avx2"), avx512) {
            (true, true) => &ALL,
            (true, false) => &ALL[..2],
            (false, _) => &ALL[..1],
        }
    }

    /// All levels of this machine.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn available() -> &'static [Self] {
        &[Self::Plain]
    }
}
