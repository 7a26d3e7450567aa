//! Training images and batches: CIFAR-10 from files or synthetic images, their order, augmentation, and a prefetcher
//! that prepares batches ahead of the compute threads. Never downloads anything.
//!
//! # Reading order
//!
//! [`open`] loads a [`Dataset`]: `cifar` from files, unpacked by `archive`, or `synthetic`. [`BatchPrefetcher`] makes
//! batches of its images in the order of [`epoch_order`], augmented by [`augment`]. [`unaugmented_batch`] is for
//! validation.

mod archive;
pub mod augment;
mod cifar;
pub mod epoch_order;
mod error;
mod parallel;
mod prefetch;
mod synthetic;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

pub use error::DataError;
pub use prefetch::{BatchPlan, BatchPrefetcher, EpochShare, PrefetchedBatch};

use crate::network::{Batch, IMAGE};

/// Source of the training images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory with the binary batch files, or the official archive.
    Cifar10(PathBuf),
    /// Generated images.
    Synthetic { train: usize, test: usize, seed: u64 },
}

#[derive(Clone, Debug)]
pub struct Dataset {
    pub train: Arc<Images>,
    pub test: Arc<Images>,
    /// Class names, by label.
    pub classes: Vec<String>,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// [`IMAGE`] bytes per image, NHWC.
    pub pixels: Vec<u8>,
    pub labels: Vec<u8>,
}

impl Images {
    fn blank(n_images: usize) -> Images {
        Images { pixels: vec![0; n_images * IMAGE], labels: vec![0; n_images] }
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of one image.
    pub fn image(&self, index: usize) -> &[u8] {
        &self.pixels[index * IMAGE..][..IMAGE]
    }
}

pub fn open(source: &Source) -> Result<Dataset, DataError> {
    match source {
        Source::Cifar10(path) => cifar::open(path, &cifar::OFFICIAL),
        Source::Synthetic { train, test, seed } => Ok(synthetic::dataset(*train, *test, *seed)),
    }
}

/// A batch of images, scaled but not augmented; `into` is its buffer.
pub fn unaugmented_batch<'a>(images: &'a Images, range: Range<usize>, into: &'a mut Vec<f32>) -> Batch<'a> {
    into.resize(range.len() * IMAGE, 0.0);
    augment::scale(&images.pixels[range.start * IMAGE..range.end * IMAGE], into);
    Batch { images: into, labels: &images.labels[range] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaugmented_batches_are_scaled_and_in_order() {
        let mut images = Images::blank(4);
        images.labels = vec![4, 3, 2, 1];
        images.pixels[2 * IMAGE] = 255;
        images.pixels[3 * IMAGE - 1] = 51;
        let mut buffer = vec![7.0; 5];
        let batch = unaugmented_batch(&images, 1..3, &mut buffer);
        assert_eq!(batch.labels, [3, 2]);
        assert_eq!(batch.images.len(), 2 * IMAGE);
        assert_eq!((batch.images[0], batch.images[IMAGE], batch.images[2 * IMAGE - 1]), (0.0, 1.0, 0.2));
        let batch = unaugmented_batch(&images, 2..3, &mut buffer);
        assert_eq!((batch.len(), batch.images.len(), batch.images[0], batch.images[IMAGE - 1]), (1, IMAGE, 1.0, 0.2));
    }
}
