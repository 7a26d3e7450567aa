//! Detection of the instruction set, and dispatch of kernels. Kernels are written once, as loops over short arrays, and
//! compiled once for each instruction set.
//!
//! The instruction set never changes a result: no fused multiply-add, no reassociation.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use super::simd_backend::{Kernel, Portable};
#[cfg(target_arch = "x86_64")]
use super::simd_x86 as x86;

/// An instruction set for which the kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Isa {
    /// The baseline of the target.
    Portable = 1,
    /// AVX2 and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

impl Isa {
    /// The instruction sets of this machine, the best one last.
    pub fn available() -> &'static [Isa] {
        const ALL: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];
        &ALL[..Isa::best() as usize]
    }

    /// The best instruction set of this machine, which is used by default. Detected once.
    #[inline]
    pub fn best() -> Isa {
        static BEST: AtomicU8 = AtomicU8::new(0);
        match BEST.load(Relaxed) {
            1 => Isa::Portable,
            2 => Isa::Avx2,
            3 => Isa::Avx512,
            _ => {
                let best = detect();
                BEST.store(best as u8, Relaxed);
                best
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Isa::Avx512,
        (true, false) => Isa::Avx2,
        (false, _) => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
}

/// Runs `kernel` with the instructions of `isa`, or the best ones of the machine if that has less.
#[inline(always)]
pub(super) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    match (isa as u8).min(Isa::best() as u8) {
        // SAFETY: `Isa::best` has detected all the target features of the function.
        3 => return unsafe { x86::with_avx512(kernel) },
        // SAFETY: `Isa::best` has detected AVX2 and F16C, also where the best is AVX-512.
        2 => return unsafe { x86::with_avx2(kernel) },
        _ => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    with_portable(kernel)
}

#[inline(never)]
fn with_portable<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Portable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_last_of_those_available() {
        assert_eq!(Isa::available()[0], Isa::Portable);
        assert_eq!(Isa::available().last(), Some(&Isa::best()));
    }
}
