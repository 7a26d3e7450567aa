//! Gradient sizes of ResNet-50: the element count of each tensor, in the order in which the model declares them. Pure.

/// Residual blocks of each of the four stages.
const BLOCKS: [usize; 4] = [3, 4, 6, 3];
/// Output channels of a block, as a multiple of its inner channels.
const EXPANSION: usize = 4;
const CLASSES: usize = 1000;

/// 161 lengths, 25,557,032 numbers together.
pub fn gradients() -> Vec<usize> {
    let mut lengths = Vec::new();
    convolution(&mut lengths, 3, 64, 7);
    let mut channels = 64;
    for (stage, blocks) in BLOCKS.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            convolution(&mut lengths, channels, width, 1);
            convolution(&mut lengths, width, width, 3);
            convolution(&mut lengths, width, width * EXPANSION, 1);
            if block == 0 {
                // The shortcut has to change the number of channels too.
                convolution(&mut lengths, channels, width * EXPANSION, 1);
            }
            channels = width * EXPANSION;
        }
    }
    lengths.extend([channels * CLASSES, CLASSES]);
    lengths
}

/// A convolution without bias, and the weight and bias of the normalisation after it.
fn convolution(lengths: &mut Vec<usize>, from: usize, to: usize, kernel: usize) {
    lengths.extend([from * to * kernel * kernel, to, to]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_known_model() {
        let lengths = gradients();
        assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (161, 25_557_032));
        assert_eq!((lengths[0], *lengths.iter().max().expect("not empty")), (9408, 2_359_296));
    }
}
