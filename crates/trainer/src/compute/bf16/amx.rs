//! The tiles of AMX: eight registers a thread, each of 16 rows of 64 bytes, and the instruction that multiplies two of them. Entered by every
//! product of this room through [`AmxTiles::multiply`]; knows rows, strides and bytes, nothing of layers.
//!
//! A tile of sums is 16 x 16 single precision. It grows by the product of a left tile, 16 rows of 32 values of bfloat16, and a right tile
//! of 32 rows of 16 columns, in which two rows share a line: line `i` holds, column by column, the values of rows `2i` and `2i + 1`.
//! Four tiles of sums, two rows by two columns of tiles, need as many loads as products; that is what keeps the multiplier busy.
//!
//! The compiler has no intrinsics for tiles, so they are spelled out. A thread must load a configuration before it touches a tile, and
//! should release it when done, as long as tiles live the system saves eight kilobytes at each switch of threads: [`AmxTiles`] is both.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::OnceLock;

/// Where the left tiles of a product lie, in bytes: the second one `down` after the first, rows `stride` apart.
#[derive(Clone, Copy)]
pub struct LeftOperand {
    pub first: *const u8,
    pub down: usize,
    pub stride: usize,
}

/// Where the right tiles lie: the second `across` after the first, lines `stride` apart, those of the next step `step` further.
#[derive(Clone, Copy)]
pub struct RightOperand {
    pub first: *const u8,
    pub across: usize,
    pub stride: usize,
    pub step: usize,
}

/// Where the sums go. With `add` they grow, without it what was there is forgotten.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AccOutput {
    pub first: *mut f32,
    pub across: usize,
    pub down: usize,
    pub stride: usize,
    pub accumulate: bool,
}

// Where the instructions below look for them.
const _: () = assert!(
    offset_of!(AccOutput, across) == 8 && offset_of!(AccOutput, down) == 16 && offset_of!(AccOutput, stride) == 24
);
const _: () = assert!(offset_of!(AccOutput, first) == 0 && offset_of!(AccOutput, accumulate) == 32);

/// A thread's right to use tiles. Not to be sent to another thread: the configuration is in this one's registers.
pub struct AmxTiles(PhantomData<*const ()>);

/// All eight tiles are of full size.
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
    /// # Safety
    /// [`has_amx`] has said yes, and this thread holds no other `AmxTiles`.
    pub unsafe fn configure() -> AmxTiles {
        // SAFETY: the processor has tiles and the system lets us use them, says the caller; the configuration is 64 valid bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &FULL_TILES, options(nostack, readonly)) };
        AmxTiles(PhantomData)
    }

    /// Four tiles of sums: over all steps, the left tiles `step` bytes after [`LeftOperand::first`] times the right tiles of that step.
    ///
    /// # Safety
    /// All rows that follow from the arguments lie in memory that may be read, those of `sums` also written, by nobody else now.
    #[inline]
    pub unsafe fn multiply(&self, left: LeftOperand, steps: &[usize], right: RightOperand, sums: AccOutput) {
        debug_assert!(!steps.is_empty());
        // SAFETY: the configuration is loaded, as `self` exists; tiles are named as clobbered; memory is the caller's promise.
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
        // SAFETY: as for the load. No other value of this thread stands for the configuration.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Whether this processor has tiles for bfloat16 and the vectors this room wants beside them, and the system lets this process use them. The
/// system is asked once: it keeps room for the tiles of each thread only from then on.
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
    // A processor with AVX-512 has leaf 7.
    vectors && __cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE && {
        // SAFETY: `xsave` was just seen.
        unsafe { _xgetbv(0) & STATE == STATE }
    }
}

fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const TILE_CONTENTS: libc::c_ulong = 18;
    // SAFETY: asks for a permission; touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_CONTENTS) == 0 }
}
