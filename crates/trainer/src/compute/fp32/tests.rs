//! Kernels with sizes that no layer of the network has, on every instruction set of this CPU, against the reference
//! layers.

use super::convolution::{Convolution, Epilogue, flip_kernel};
use super::kernel_gradient::{KernelGradient, add_bias};
use super::pooling::{DropoutMask, Pool, Unpool};
use crate::compute::Isa;
#[cfg(target_arch = "x86_64")]
use crate::compute::simd::{Avx2, Avx512};
use crate::compute::simd::{Portable, Simd};
use crate::network::reference::{Layer, LinearLayer};
use crate::network::{DROPOUTS, DropoutSeed};
use crate::random::Random;

fn draw(random: &mut Random, n: usize) -> Vec<f32> {
    (0..n).map(|_| random.normal()).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn check(what: &str, given: &[f32], wanted: &[f64]) {
    assert_eq!(given.len(), wanted.len(), "{what}");
    for (index, (given, wanted)) in given.iter().zip(wanted).enumerate() {
        assert!((f64::from(*given) - wanted).abs() < 1e-3, "{what}, value {index}: {given} instead of {wanted}");
    }
}

/// A square of pixels with `frame` rows and columns of zeros around it.
fn padded(pixels: &[f32], channels: usize, side: usize, frame: usize) -> Vec<f32> {
    let framed_side = side + 2 * frame;
    let mut padded = vec![0.0; framed_side * framed_side * channels];
    for (row, pixels) in pixels.chunks_exact(side * channels).enumerate() {
        padded[((row + frame) * framed_side + frame) * channels..][..side * channels].copy_from_slice(pixels);
    }
    padded
}

/// A convolution of a square, forward and backward, in tiles of 5 pixels or 3 values.
fn convolution<S: Simd, const CIN: usize, const COUT: usize>(isa: Isa, side: usize, padding: usize) {
    let what = |part: &str| format!("{isa:?}, {CIN} to {COUT}, side {side}, padding {padding}: {part}");
    let random = &mut Random::from_key(&[side as u64, CIN as u64]);
    let out = side + 2 * padding - 2;
    let (input, kernel, bias) = (draw(random, side * side * CIN), draw(random, 9 * CIN * COUT), draw(random, COUT));
    let output_gradient = draw(random, out * out * COUT);
    let layer = Layer::Convolution { weights: LinearLayer { kernel: 0, inputs: CIN, outputs: COUT }, side, padding };
    let parameters = [wide(&kernel), wide(&bias)];

    let framed_input = padded(&input, CIN, side, padding);
    let mut output = vec![0.0; out * out * COUT];
    let forward = Convolution::<CIN, COUT> {
        input: &framed_input,
        input_row: (side + 2 * padding) * CIN,
        nonzero_rows: padding..side + padding,
        kernel: &kernel,
        rows: out,
        columns: out,
        output: &mut output,
        output_row: out * COUT,
        epilogue: Epilogue::Relu { bias: &bias },
    };
    forward.run::<S, 5, 2>();
    let sums = layer.forward(&parameters, &wide(&input), None);
    check(&what("forward"), &output, &sums.iter().map(|sum| sum.max(0.0)).collect::<Vec<_>>());

    let mut flipped = vec![0.0; kernel.len()];
    flip_kernel(&kernel, CIN, COUT, &mut flipped);
    let mut wanted = [vec![0.0; kernel.len()], vec![0.0; COUT]];
    let back = layer.backward(&parameters, &wide(&input), &wide(&output_gradient), None, &mut wanted);
    if CIN.is_multiple_of(32) {
        let frame = 2 - padding;
        let backward = |epilogue, output: &mut [f32]| {
            let backward = Convolution::<COUT, CIN> {
                input: &padded(&output_gradient, COUT, out, frame),
                input_row: (out + 2 * frame) * COUT,
                nonzero_rows: frame..out + frame,
                kernel: &flipped,
                rows: side,
                columns: side,
                output,
                output_row: side * CIN,
                epilogue,
            };
            backward.run::<S, 5, 2>();
        };
        let mut given = vec![0.0; input.len()];
        backward(Epilogue::Store, &mut given);
        check(&what("backward"), &given, &back);
        backward(Epilogue::ReluMask { activations: &input }, &mut given);
        let gated: Vec<f64> =
            back.iter().zip(&input).map(|(back, input)| if *input > 0.0 { *back } else { 0.0 }).collect();
        check(&what("gated"), &given, &gated);
    }

    let (mut kernel_gradient, mut bias_gradient) = (vec![1.0; kernel.len()], vec![1.0; COUT]);
    let gradient = KernelGradient::<CIN, COUT> {
        input: &framed_input,
        input_row: (side + 2 * padding) * CIN,
        output_gradient: &output_gradient,
        output_row: out * COUT,
        rows: out,
        columns: out,
        gradient: &mut kernel_gradient,
    };
    gradient.run::<S, 3, 2>();
    add_bias::<COUT>(&output_gradient, out * COUT, out, out, &mut bias_gradient);
    // The kernels add to existing values.
    let [kernel_wanted, bias_wanted] =
        wanted.map(|wanted| wanted.into_iter().map(|value| value + 1.0).collect::<Vec<_>>());
    check(&what("gradient of the kernel"), &kernel_gradient, &kernel_wanted);
    check(&what("gradient of the bias"), &bias_gradient, &bias_wanted);
}

fn convolutions<S: Simd>(isa: Isa) {
    convolution::<S, 3, 32>(isa, 7, 1);
    convolution::<S, 32, 32>(isa, 7, 0);
    convolution::<S, 32, 64>(isa, 9, 1);
    convolution::<S, 64, 32>(isa, 11, 0);
}

#[test]
fn convolutions_match_the_reference_on_every_instruction_set() {
    for_each_isa(|isa| match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => convolutions::<Avx512>(isa),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => convolutions::<Avx2>(isa),
        _ => convolutions::<Portable>(isa),
    });
}

/// Two rows of 14 pixels of 32 channels with many equal values, positioned as the third pooled row of the first dropout
/// layer.
fn pooling<S: Simd>(isa: Isa, dropout_seed: Option<DropoutSeed>) {
    let (pixels, first, image) = (7, 2 * 15 * 32, 3);
    let random = &mut Random::from_key(&[5]);
    let rows: Vec<f32> = (0..4 * pixels * 32).map(|_| random.below(3) as f32).collect();
    let (upper, lower) = rows.split_at(2 * pixels * 32);
    let gradient = draw(random, pixels * 32);
    let dropout = dropout_seed.map(|dropout_seed| DropoutMask::new(dropout_seed, image, 0));
    let (mut output, mut argmax) = (vec![9.0; pixels * 32], vec![[0; 4]; pixels * 32 / S::LANES]);
    Pool::<32> { upper, lower, dropout, first, output: &mut output, argmax: &mut argmax }.run::<S>();
    let (mut back, mut bias) = (vec![9.0; rows.len()], vec![0.0; 32]);
    let (upper, lower) = back.split_at_mut(2 * pixels * 32);
    let scale = dropout_seed.map_or(1.0, |_| DROPOUTS[0].scale());
    Unpool::<32> { gradient: &gradient, argmax: &argmax, scale, upper, lower, bias: &mut bias }.run::<S>();

    let (mut wanted_output, mut wanted_back, mut wanted_bias) = (Vec::new(), vec![0.0; rows.len()], vec![0.0; 32]);
    for value in 0..pixels * 32 {
        let corner = value / 32 * 64 + value % 32;
        let places = [0, 32, 2 * pixels * 32, 2 * pixels * 32 + 32].map(|offset| corner + offset);
        let largest = places.into_iter().reduce(|a, b| if rows[b] > rows[a] { b } else { a }).expect("four places");
        let dropped = dropout_seed.is_some_and(|dropout_seed| dropout_seed.drops(image, 0, first + value));
        wanted_output.push(if dropped { 0.0 } else { f64::from(rows[largest] * scale) });
        if rows[largest] > 0.0 && !dropped {
            wanted_back[largest] = f64::from(gradient[value] * scale);
            wanted_bias[value % 32] += f64::from(gradient[value] * scale);
        }
    }
    check(&format!("{isa:?}: pooling"), &output, &wanted_output);
    check(&format!("{isa:?}: their gradient"), &back, &wanted_back);
    check(&format!("{isa:?}: gradient of the bias before"), &bias, &wanted_bias);
}

#[test]
fn pooling_and_dropout_match_the_reference_on_every_instruction_set() {
    for dropout_seed in [None, Some(DropoutSeed { seed: 1, step: 2, first: 3 })] {
        for_each_isa(|isa| match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => pooling::<Avx512>(isa, dropout_seed),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => pooling::<Avx2>(isa, dropout_seed),
            _ => pooling::<Portable>(isa, dropout_seed),
        });
    }
}

fn for_each_isa(check: impl Fn(Isa)) {
    Isa::ALL.into_iter().filter(|isa| isa.is_supported()).for_each(check);
}
