//! Errors of reading a data set from disk. Every message says how to fix it.

use std::path::PathBuf;

use thiserror::Error;

/// Download instructions.
macro_rules! get_it {
    () => {
        "cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html \
         (sha256 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd)"
    };
}

#[derive(Debug, Error)]
pub enum DataError {
    #[error(
        "no CIFAR-10 at {}: expected data_batch_1.bin to data_batch_5.bin and test_batch.bin there and in cifar-10-batches-bin, each \
         plain or as .zst, or the archive cifar-10-binary.tar.gz; get {}, and pass its path or that of its directory; \
         without --data (and, in the tutorial, without --full) training is on synthetic images", path.display(), get_it!()
    )]
    Missing { path: PathBuf },
    #[error("CIFAR-10 at {} lacks {missing}; get {}", path.display(), get_it!())]
    Incomplete { path: PathBuf, missing: String },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot unpack {}: it is damaged or not the CIFAR-10 archive; get {}", path.display(), get_it!())]
    Unpack { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{file} of CIFAR-10 ends after {found} of {expected} bytes; get {}", get_it!())]
    Short { file: String, expected: usize, found: usize },
    #[error("{file} of CIFAR-10 is longer than its {expected} bytes; get {}", get_it!())]
    Long { file: String, expected: usize },
    #[error("{file} of CIFAR-10 is not the official one: its sha256 is {found} and should be {expected}; get {}", get_it!())]
    Checksum { file: String, expected: String, found: String },
    #[error("image {image} of {file} of CIFAR-10 has label {label}, beyond the ten classes; get {}", get_it!())]
    Label { file: String, image: usize, label: u8 },
}
