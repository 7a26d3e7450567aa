//! Instruction sets with kernels, and detection of those that this CPU supports.

/// Instruction sets, widest vectors first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    Avx512,
    /// Includes FMA, which every CPU with AVX2 has.
    Avx2,
    Portable,
}

impl Isa {
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// The fastest instruction set of this CPU.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().find(|isa| isa.is_supported()).expect("portable code runs everywhere")
    }

    pub fn is_supported(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
        }
    }
}
