//! CIFAR-10 in its binary version, from six batch files in a directory (optionally compressed) or the official archive.
//! Every batch file must have the official checksum.
//!
//! A batch file consists of records: one byte for the label, then 3,072 bytes for the image as a red, a green and a
//! blue plane. Images are converted to NHWC.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::archive::{self, PackedFile};
use super::{DataError, Dataset, Images, parallel};
use crate::network::{CHANNELS, CLASSES, IMAGE, SIDE};

const RECORD_BYTES: usize = 1 + IMAGE;
const ARCHIVE: &str = "cifar-10-binary.tar.gz";
/// Directory inside of the archive.
const DIRECTORY: &str = "cifar-10-batches-bin";
const CLASS_NAMES: [&str; CLASSES] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Expected name, checksum and size of a batch file.
#[derive(Clone, Copy, Debug)]
pub struct BatchFile<'a> {
    pub name: &'a str,
    pub sha256: &'a str,
    pub n_images: usize,
}

impl BatchFile<'_> {
    fn len(&self) -> usize {
        self.n_images * RECORD_BYTES
    }
}

const fn official(name: &'static str, sha256: &'static str) -> BatchFile<'static> {
    BatchFile { name, sha256, n_images: 10_000 }
}

/// The official files; the last one is the test set.
pub const OFFICIAL: [BatchFile<'static>; 6] = [
    official("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    official("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    official("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    official("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    official("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    official("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
];

pub fn open(path: &Path, files: &[BatchFile<'_>; 6]) -> Result<Dataset, DataError> {
    let [training @ .., validation] = files;
    let mut train = Images::blank(training.iter().map(|file| file.n_images).sum());
    let mut test = Images::blank(validation.n_images);
    let mut targets = batch_targets(training, &mut train);
    targets.push(BatchTarget { file: *validation, pixels: &mut test.pixels, labels: &mut test.labels });
    match find(path, files)? {
        Location::Files(found) => {
            let jobs = found.into_iter().zip(targets).collect();
            let read = parallel::map(jobs, |(packed, mut target): (PackedFile, BatchTarget<'_>)| {
                target.fill(&packed.read(target.file.len())?)
            });
            read.into_iter().collect::<Result<(), _>>()?;
        }
        Location::Archive(archive) => fill_from_archive(&archive, &mut targets)?,
    }
    let classes = CLASS_NAMES.map(str::to_owned).to_vec();
    Ok(Dataset { train: Arc::new(train), test: Arc::new(test), classes, name: "CIFAR-10".to_owned() })
}

enum Location {
    /// In the order of the table.
    Files(Vec<PackedFile>),
    Archive(PathBuf),
}

fn find(path: &Path, files: &[BatchFile<'_>]) -> Result<Location, DataError> {
    if path.is_file() {
        return Ok(Location::Archive(path.to_owned()));
    }
    for directory in [path.to_owned(), path.join(DIRECTORY)] {
        let found: Vec<_> = files.iter().map(|file| PackedFile::find(&directory, file.name)).collect();
        if found.iter().any(Option::is_some) {
            let missing = names_where(files, |index| found[index].is_none());
            let found: Option<Vec<_>> = found.into_iter().collect();
            return found.map(Location::Files).ok_or(DataError::Incomplete { path: directory, missing });
        }
    }
    let archive = path.join(ARCHIVE);
    if archive.is_file() { Ok(Location::Archive(archive)) } else { Err(DataError::Missing { path: path.to_owned() }) }
}

fn names_where(files: &[BatchFile<'_>], holds: impl Fn(usize) -> bool) -> String {
    let names: Vec<_> =
        files.iter().enumerate().filter(|(index, _)| holds(*index)).map(|(_, file)| file.name).collect();
    names.join(", ")
}

fn fill_from_archive(path: &Path, targets: &mut [BatchTarget<'_>]) -> Result<(), DataError> {
    let files: Vec<_> = targets.iter().map(|target| target.file).collect();
    let wanted: Vec<_> = files.iter().map(|file| (file.name, file.len())).collect();
    let mut filled = vec![false; targets.len()];
    archive::read_archive(path, &wanted, |index, bytes| {
        filled[index] = true;
        targets[index].fill(bytes)
    })?;
    let missing = names_where(&files, |index| !filled[index]);
    if missing.is_empty() { Ok(()) } else { Err(DataError::Incomplete { path: path.to_owned(), missing }) }
}

/// Destination of one batch file's images.
struct BatchTarget<'a> {
    file: BatchFile<'a>,
    pixels: &'a mut [u8],
    labels: &'a mut [u8],
}

fn batch_targets<'a>(files: &[BatchFile<'a>], images: &'a mut Images) -> Vec<BatchTarget<'a>> {
    let (mut pixels, mut labels) = (images.pixels.as_mut_slice(), images.labels.as_mut_slice());
    let mut targets = Vec::with_capacity(files.len() + 1);
    for file in files {
        let (these_pixels, these_labels);
        (these_pixels, pixels) = pixels.split_at_mut(file.n_images * IMAGE);
        (these_labels, labels) = labels.split_at_mut(file.n_images);
        targets.push(BatchTarget { file: *file, pixels: these_pixels, labels: these_labels });
    }
    targets
}

impl BatchTarget<'_> {
    /// Verifies the bytes of the batch file and copies its images.
    fn fill(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        let (file, expected) = (self.file.name.to_owned(), self.file.len());
        if bytes.len() > expected {
            return Err(DataError::Long { file, expected });
        }
        if bytes.len() < expected {
            return Err(DataError::Short { file, expected, found: bytes.len() });
        }
        let found = hex(&Sha256::digest(bytes));
        if found != self.file.sha256 {
            return Err(DataError::Checksum { file, expected: self.file.sha256.to_owned(), found });
        }
        let targets = self.pixels.chunks_exact_mut(IMAGE).zip(self.labels.iter_mut());
        for (image, (record, (pixels, label))) in bytes.chunks_exact(RECORD_BYTES).zip(targets).enumerate() {
            *label = record[0];
            if usize::from(*label) >= CLASSES {
                return Err(DataError::Label { file, image, label: *label });
            }
            interleave(&record[1..], pixels);
        }
        Ok(())
    }
}

/// Converts three planes to interleaved pixels.
fn interleave(planes: &[u8], pixels: &mut [u8]) {
    let (red, rest) = planes.split_at(SIDE * SIDE);
    let (green, blue) = rest.split_at(SIDE * SIDE);
    let colours = red.iter().zip(green).zip(blue);
    for (pixel, ((red, green), blue)) in pixels.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(colours) {
        *pixel = [*red, *green, *blue];
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests;
