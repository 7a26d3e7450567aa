//! Conversion of half precision and bfloat16 by integer arithmetic without branches, so that loops over it vectorise. Used
//! where there is no instruction: for half precision without F16C, and always for bfloat16 (the AVX-512 instruction flushes
//! subnormal numbers).
//!
//! A NaN keeps the upper bits of its payload and becomes quiet, except from bfloat16 to f32; as F16C does.

/// f16 to f32, exact.
#[inline(always)]
pub(super) fn widen_f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff);
    // After the shift, the exponent of normal numbers is 112 too small.
    let normal = (magnitude << 13) + (112 << 23);
    // A subnormal number is its significand times 2^-24, which f32 holds exactly.
    let subnormal = (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let infinite = (magnitude << 13) | 0x7f80_0000;
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
    let bits = if magnitude >= 0x7c00 {
        infinite | quiet
    } else if magnitude >= 0x0400 {
        normal
    } else {
        subnormal
    };
    f32::from_bits(bits | sign)
}

/// f32 to f16, to the nearest, ties to even.
#[inline(always)]
pub(super) fn narrow_f16(single: f32) -> u16 {
    let bits = single.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Adding half a unit in the last place minus one, plus the last kept bit, carries exactly when rounding goes up. Overflow
    // carries into the exponent of infinity. For subnormal numbers it wraps, and is not used.
    let rounded = magnitude.wrapping_sub(112 << 23).wrapping_add(0x0fff + ((magnitude >> 13) & 1)) >> 13;
    // For subnormal numbers, adding 0.5 makes f32's rounding leave multiples of 2^-24 in the low bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
    let result = if magnitude > 0x7f80_0000 {
        nan
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else if magnitude >= 0x3880_0000 {
        rounded
    } else {
        subnormal
    };
    result as u16 | sign
}

/// bfloat16 to f32, exact, NaNs as they are.
#[inline(always)]
pub(super) fn widen_bf16(bf16_bits: u16) -> f32 {
    f32::from_bits(u32::from(bf16_bits) << 16)
}

/// f32 to bfloat16, to the nearest, ties to even.
#[inline(always)]
pub(super) fn narrow_bf16(single: f32) -> u16 {
    let bits = single.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x0040;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_halves_round_trip() {
        for bits in 0..=u16::MAX {
            assert_eq!(widen_f16(bits).to_bits(), f16::from_bits(bits).to_f32().to_bits(), "{bits:#x}");
            assert_eq!(widen_bf16(bits).to_bits(), u32::from(bits) << 16, "{bits:#x}");
            assert_eq!(
                narrow_f16(widen_f16(bits)),
                f16::from_f32(f16::from_bits(bits).to_f32()).to_bits(),
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn values_between_two_halves_round_to_nearest_even() {
        for bits in 0..0x7c00u16 {
            let (low, high) =
                (f64::from(widen_f16(bits)), if bits == 0x7bff { 65536.0 } else { widen_f16(bits + 1).into() });
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(narrow_f16(middle), bits + (bits & 1), "{bits:#x}");
            assert_eq!(narrow_f16(f32::from_bits(middle.to_bits() - 1)), bits, "{bits:#x}");
            assert_eq!(narrow_f16(-f32::from_bits(middle.to_bits() + 1)), 0x8000 | (bits + 1), "{bits:#x}");
        }
    }

    proptest! {
        #[test]
        fn any_single_narrows_as_the_reference_does(bits: u32) {
            let single = f32::from_bits(bits);
            prop_assert_eq!(narrow_f16(single), f16::from_f32(single).to_bits());
            prop_assert_eq!(narrow_bf16(single), bf16::from_f32(single).to_bits());
        }
    }
}
