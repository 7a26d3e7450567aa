//! AMX: eight tile registers per thread, each of 16 rows of 64 bytes, and the instruction that multiplies two of them.
//! Knows rows, strides and bytes, nothing of layers.
//!
//! An accumulator tile is 16 x 16 `f32`. The product of a left tile (16 rows of 32 bfloat16) and a right tile (32 rows
//! of 16 columns) is added to it. A right tile stores two matrix rows interleaved in one tile row: row `i` holds,
//! column by column, the values of rows `2i` and `2i + 1`. A block of 2 x 2 accumulator tiles needs as many loads as
//! products, which keeps the multiplier busy.
//!
//! Stable Rust has no AMX intrinsics, hence the inline assembly. A thread must load a tile configuration before it uses
//! a tile. It should release it afterwards: while tiles are in use, the kernel saves 8 KiB per context switch.
//! [`AmxTiles`] does both.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::OnceLock;

/// Location of the left tiles of a product, in bytes: the second tile is `down` after the first, rows are `stride`
/// apart.
#[derive(Clone, Copy)]
pub struct LeftOperand {
    pub first: *const u8,
    pub down: usize,
    pub stride: usize,
}

/// Location of the right tiles, in bytes: the second tile is `across` after the first, rows are `stride` apart, and the
/// tiles of the next step are `step` further.
#[derive(Clone, Copy)]
pub struct RightOperand {
    pub first: *const u8,
    pub across: usize,
    pub stride: usize,
    pub step: usize,
}

/// Destination of the accumulator tiles, in bytes. With `accumulate` the product is added to the values there, without
/// it they are overwritten.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AccOutput {
    pub first: *mut f32,
    pub across: usize,
    pub down: usize,
    pub stride: usize,
    pub accumulate: bool,
}

// The assembly below accesses the fields at these offsets.
const _: () = assert!(
    offset_of!(AccOutput, across) == 8 && offset_of!(AccOutput, down) == 16 && offset_of!(AccOutput, stride) == 24
);
const _: () = assert!(offset_of!(AccOutput, first) == 0 && offset_of!(AccOutput, accumulate) == 32);

/// Proof that this thread has loaded the tile configuration. Not `Send`: the configuration is in the registers of this
/// thread.
pub struct AmxTiles(PhantomData<*const ()>);

/// Configuration of eight full-size tiles (`ldtilecfg` format).
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static FULL_TILES: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

impl AmxTiles {
    /// Loads the tile configuration into this thread.
    ///
    /// # Safety
    ///
    /// [`has_amx`] must have returned true, and this thread must hold no other `AmxTiles`.
    pub unsafe fn configure() -> AmxTiles {
        // SAFETY: the caller guarantees that AMX is available and permitted; the configuration is 64 valid bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &FULL_TILES, options(nostack, readonly)) };
        AmxTiles(PhantomData)
    }

    /// Computes a block of 2 x 2 accumulator tiles: the sum over all steps of the left tiles, `steps[i]` bytes after
    /// [`LeftOperand::first`], times the right tiles of that step.
    ///
    /// # Safety
    ///
    /// All rows addressed by the arguments must be readable, those of `sums` also writable and accessed by no other
    /// thread.
    #[inline]
    pub unsafe fn multiply(&self, left: LeftOperand, steps: &[usize], right: RightOperand, sums: AccOutput) {
        debug_assert!(!steps.is_empty());
        // SAFETY: `self` proves that the configuration is loaded; all tile registers are declared clobbered; the caller
        // guarantees that the addressed memory is valid.
        unsafe {
            asm!(
                "mov {t}, [{sums}]",
                "mov {u}, [{sums} + 24]",
                "cmp byte ptr [{sums} + 32], 0",
                "je 2f",
                "tileloadd tmm0, [{t} + {u}]",
                "add {t}, [{sums} + 8]",
                "tileloadd tmm1, [{t} + {u}]",
                "mov {t}, [{sums}]",
                "add {t}, [{sums} + 16]",
                "tileloadd tmm2, [{t} + {u}]",
                "add {t}, [{sums} + 8]",
                "tileloadd tmm3, [{t} + {u}]",
                "jmp 3f",
                "2:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "3:",
                "mov {t}, [{steps}]",
                "lea {u}, [{second_left} + {t}]",
                "add {t}, {first_left}",
                "tileloadd tmm4, [{t} + {left_stride}]",
                "tileloadd tmm6, [{first_right} + {right_stride}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{second_right} + {right_stride}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{u} + {left_stride}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {first_right}, {right_step}",
                "add {second_right}, {right_step}",
                "add {steps}, 8",
                "cmp {steps}, {end}",
                "jne 3b",
                "mov {t}, [{sums}]",
                "mov {u}, [{sums} + 24]",
                "tilestored [{t} + {u}], tmm0",
                "add {t}, [{sums} + 8]",
                "tilestored [{t} + {u}], tmm1",
                "mov {t}, [{sums}]",
                "add {t}, [{sums} + 16]",
                "tilestored [{t} + {u}], tmm2",
                "add {t}, [{sums} + 8]",
                "tilestored [{t} + {u}], tmm3",
                sums = in(reg) &raw const sums,
                steps = inout(reg) steps.as_ptr() => _,
                end = in(reg) steps.as_ptr_range().end,
                first_left = in(reg) left.first,
                second_left = in(reg) left.first.wrapping_add(left.down),
                left_stride = in(reg) left.stride,
                first_right = inout(reg) right.first => _,
                second_right = inout(reg) right.first.wrapping_add(right.across) => _,
                right_stride = in(reg) right.stride,
                right_step = in(reg) right.step,
                t = out(reg) _,
                u = out(reg) _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Drop for AmxTiles {
    fn drop(&mut self) {
        // SAFETY: `self` proves that AMX is available, and it was this thread's only `AmxTiles`.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Whether this CPU has AMX for bfloat16 and the AVX-512 extensions used beside it, and the kernel permits this process
/// to use AMX. The permission is requested once; from then on the kernel reserves space for the tile state of each
/// thread.
pub fn has_amx() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_instructions() && is_permitted())
}

fn has_instructions() -> bool {
    let vectors = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("xsave");
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const STATE: u64 = 0b11 << 17;
    // Every CPU with AVX-512 has CPUID leaf 7.
    vectors && __cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE && {
        // SAFETY: `xsave` was detected above.
        unsafe { _xgetbv(0) & STATE == STATE }
    }
}

fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const TILE_CONTENTS: libc::c_ulong = 18;
    // SAFETY: the call requests a permission and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_CONTENTS) == 0 }
}
