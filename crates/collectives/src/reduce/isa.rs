//! Which vector instructions the machine has. Kernels are written once, as plain loops over short arrays, and are
//! compiled once per instruction set; [`dispatch`] chooses. Everyone in `reduce` enters here.
//!
//! Never changes a result: each instruction set gives the same bits (no fused multiply-add, no reassociation).

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

#[cfg(target_arch = "x86_64")]
use super::simd_x86 as x86;
use super::{half_bits, number};

/// An instruction set the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Isa {
    /// What every machine of the target has.
    Portable = 1,
    /// AVX2 and F16C.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512 = 3,
}

impl Isa {
    /// Those of this machine, the best one last.
    pub fn available() -> &'static [Isa] {
        const ALL: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];
        &ALL[..Isa::best() as usize]
    }

    /// The one that is used. Asked of the processor once.
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

/// A loop to be compiled for each instruction set. `run` and all that it calls must be `#[inline(always)]`: only
/// what is inlined into one of the functions below is compiled with its instructions.
pub(super) trait Kernel {
    type Output;
    fn run<M: Machine>(self, machine: M) -> Self::Output;
}

/// Runs `kernel` with the instructions of `isa`, which is capped by what the machine has.
#[inline(always)]
pub(super) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    match (isa as u8).min(Isa::best() as u8) {
        // SAFETY: `Isa::best` saw all the features that the function was compiled with.
        3 => return unsafe { x86::with_avx512(kernel) },
        // SAFETY: as above; a machine whose best is AVX-512 has AVX2 and F16C too.
        2 => return unsafe { x86::with_avx2(kernel) },
        _ => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    with_portable(kernel)
}

#[inline(never)]
fn with_portable<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Plain)
}

/// What compilers do not make vectors of, and the proof, held by a running kernel, that instructions by name may be
/// used. Unless a machine has better, these are the plain loops.
pub(super) trait Machine: Copy {
    #[inline(always)]
    fn widen_f16<const N: usize>(self, halves: [u16; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for lane in 0..N {
            out[lane] = half_bits::widen(halves[lane]);
        }
        out
    }

    #[inline(always)]
    fn narrow_f16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        let mut out = [0; N];
        for lane in 0..N {
            out[lane] = half_bits::narrow(singles[lane]);
        }
        out
    }

    #[inline(always)]
    fn widen_bf16<const N: usize>(self, brains: [u16; N]) -> [f32; N] {
        let mut out = [0.0; N];
        for lane in 0..N {
            out[lane] = half_bits::widen_brain(brains[lane]);
        }
        out
    }

    #[inline(always)]
    fn narrow_bf16<const N: usize>(self, singles: [f32; N]) -> [u16; N] {
        let mut out = [0; N];
        for lane in 0..N {
            out[lane] = half_bits::narrow_brain(singles[lane]);
        }
        out
    }

    /// As [`number`] says.
    #[inline(always)]
    fn min_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        let mut out = left;
        for lane in 0..N {
            out[lane] = number::min_f32(left[lane], right[lane]);
        }
        out
    }

    /// As [`number`] says.
    #[inline(always)]
    fn max_f32<const N: usize>(self, left: [f32; N], right: [f32; N]) -> [f32; N] {
        let mut out = left;
        for lane in 0..N {
            out[lane] = number::max_f32(left[lane], right[lane]);
        }
        out
    }
}

#[derive(Clone, Copy)]
struct Plain;

impl Machine for Plain {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_last_of_those_available() {
        assert_eq!(Isa::available()[0], Isa::Portable);
        assert_eq!(Isa::available().last(), Some(&Isa::best()));
    }
}
