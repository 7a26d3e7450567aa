//! Small data sets with checksums of their own, in all supported forms; and the real data set, if it is available
//! beside the project.

use std::fs;
use std::io::Write;

use corro_test_support::skip;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tar::{EntryType, Header};
use tempfile::TempDir;

use super::*;
use crate::random::Random;

/// A data set like CIFAR-10 with few images per file.
struct Small {
    batches: Vec<Vec<u8>>,
    checksums: Vec<String>,
}

impl Small {
    fn new() -> Small {
        let mut random = Random::from_key(&[1]);
        let mut record = || {
            let mut record: Vec<u8> = (0..RECORD_BYTES).map(|_| random.draw() as u8).collect();
            record[0] = random.below(CLASSES) as u8;
            record
        };
        let batches = (1..=6).map(|n_images| (0..n_images).flat_map(|_| record()).collect()).collect();
        Small { batches, checksums: Vec::new() }.checked()
    }

    /// Recomputes the checksums.
    fn checked(mut self) -> Small {
        self.checksums = self.batches.iter().map(|bytes| hex(&Sha256::digest(bytes))).collect();
        self
    }

    fn files(&self) -> [BatchFile<'_>; 6] {
        std::array::from_fn(|index| BatchFile {
            name: OFFICIAL[index].name,
            sha256: &self.checksums[index],
            n_images: index + 1,
        })
    }

    fn open(&self, path: &Path) -> Result<Dataset, DataError> {
        open(path, &self.files())
    }

    fn refused(&self, path: &Path) -> String {
        self.open(path).expect_err("this set is not whole").to_string()
    }

    fn write(&self, directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        for (file, bytes) in OFFICIAL.iter().zip(&self.batches) {
            fs::write(directory.join(file.name), bytes).unwrap();
        }
    }

    fn write_zstandard(&self, directory: &Path) {
        for (file, bytes) in OFFICIAL.iter().zip(&self.batches) {
            let packed = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
            fs::write(directory.join(format!("{}.zst", file.name)), packed).unwrap();
        }
    }

    /// An archive with its directory and additional entries.
    fn archive(&self) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut add = |kind: EntryType, name: &str, bytes: &[u8]| {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(bytes.len() as u64);
            if kind == EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
            }
            tar.append_data(&mut header, format!("{DIRECTORY}/{name}"), bytes).unwrap();
        };
        add(EntryType::Directory, "", b"");
        add(EntryType::Regular, "readme.html", b"<html>");
        add(EntryType::Symlink, "data_batch_1.bin", b"");
        add(EntryType::Directory, "test_batch.bin", b"");
        // The order in the real archive differs from the table, too.
        for index in [3, 0, 5, 4, 2, 1] {
            add(EntryType::Regular, OFFICIAL[index].name, &self.batches[index]);
        }
        gzip(&tar.into_inner().unwrap())
    }

    fn check(&self, path: &Path) {
        let dataset = self.open(path).unwrap();
        assert_eq!((dataset.train.len(), dataset.test.len()), (15, 6));
        let records = self.batches.iter().flat_map(|bytes| bytes.chunks(RECORD_BYTES)).enumerate();
        for (index, record) in records {
            let (images, index) = if index < 15 { (&dataset.train, index) } else { (&dataset.test, index - 15) };
            assert_eq!(images.labels[index], record[0]);
            for (place, pixel) in images.image(index).chunks(3).enumerate() {
                assert_eq!(pixel, [record[1 + place], record[1025 + place], record[2049 + place]]);
            }
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn plain_files_are_read() {
    let (set, directory) = (Small::new(), directory());
    set.write(directory.path());
    set.check(directory.path());
}

#[test]
fn files_are_found_in_the_unpacked_directory() {
    let (set, directory) = (Small::new(), directory());
    set.write(&directory.path().join(DIRECTORY));
    set.check(directory.path());
}

#[test]
fn compressed_files_are_read_beside_plain_ones() {
    let (set, directory) = (Small::new(), directory());
    set.write_zstandard(directory.path());
    set.check(directory.path());
    fs::write(directory.path().join("data_batch_2.bin"), &set.batches[1]).unwrap();
    fs::remove_file(directory.path().join("data_batch_2.bin.zst")).unwrap();
    set.check(directory.path());
}

#[test]
fn the_archive_is_found_by_path_and_in_a_directory() {
    let (set, directory) = (Small::new(), directory());
    fs::write(directory.path().join(ARCHIVE), set.archive()).unwrap();
    set.check(directory.path());
    set.check(&directory.path().join(ARCHIVE));
}

#[test]
fn a_missing_data_set_names_the_paths_and_the_download() {
    let directory = directory();
    for path in [directory.path().to_owned(), directory.path().join("nowhere")] {
        let message = Small::new().refused(&path);
        for part in [
            path.to_str().unwrap(),
            "data_batch_1.bin",
            ".zst",
            ARCHIVE,
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "synthetic",
        ] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}

#[test]
fn missing_files_are_named() {
    let (set, directory) = (Small::new(), directory());
    set.write(directory.path());
    fs::remove_file(directory.path().join("data_batch_2.bin")).unwrap();
    fs::remove_file(directory.path().join("test_batch.bin")).unwrap();
    let message = set.refused(directory.path());
    assert!(message.contains("lacks data_batch_2.bin, test_batch.bin;"), "{message}");
    let empty = directory.path().join("empty.tar.gz");
    fs::write(&empty, gzip(&[0; 1024])).unwrap();
    assert!(set.refused(&empty).contains("lacks data_batch_1.bin, data_batch_2.bin"));
}

#[test]
fn unofficial_files_are_rejected() {
    let (mut set, directory) = (Small::new(), directory());
    let found = set.checksums[2].clone();
    set.checksums[2].replace_range(..2, "zz");
    set.write(directory.path());
    let message = set.refused(directory.path());
    let expected =
        format!("data_batch_3.bin of CIFAR-10 is not the official one: its sha256 is {found} and should be zz");
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn short_and_long_files_are_rejected_in_every_form() {
    let whole = Small::new();
    for (len, part) in [
        (2 * RECORD_BYTES - 1, "ends after 6145 of 6146 bytes"),
        (2 * RECORD_BYTES + 9, "is longer than its 6146 bytes"),
    ] {
        let mut set = Small::new();
        set.batches[1].resize(len, 0);
        let directories = [directory(), directory(), directory()];
        set.write(directories[0].path());
        set.write_zstandard(directories[1].path());
        fs::write(directories[2].path().join(ARCHIVE), set.archive()).unwrap();
        for directory in directories {
            let message = whole.refused(directory.path());
            assert!(message.contains(part) && message.contains("data_batch_2.bin"), "{message}");
        }
    }
}

#[test]
fn an_invalid_label_is_rejected() {
    let mut set = Small::new();
    set.batches[4][2 * RECORD_BYTES] = 10;
    let (set, directory) = (set.checked(), directory());
    set.write(directory.path());
    assert!(set.refused(directory.path()).starts_with("image 2 of data_batch_5.bin of CIFAR-10 has label 10"));
}

#[test]
fn decompression_bombs_are_not_unpacked() {
    let (set, directory) = (Small::new(), directory());
    set.write(directory.path());
    let plain = directory.path().join("test_batch.bin");
    fs::remove_file(&plain).unwrap();
    let zeros = vec![0; 16 << 20];
    fs::write(plain.with_extension("bin.zst"), compress_to_vec(zeros.as_slice(), CompressionLevel::Fastest)).unwrap();
    assert!(set.refused(directory.path()).contains("test_batch.bin of CIFAR-10 is longer"));
    // An archive of zeros is an empty one of any length: reading stops at the size limit of a real one.
    let archive = directory.path().join("zeros.tar.gz");
    fs::write(&archive, gzip(&zeros)).unwrap();
    assert!(set.refused(&archive).contains("lacks"));
}

#[test]
fn the_real_data_set_is_read_if_available() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/cifar10");
    let path = std::env::var_os("CORRO_CIFAR10").map_or(beside, PathBuf::from);
    if !path.exists() {
        skip::unsupported_machine(format_args!("no CIFAR-10 at {}; CORRO_CIFAR10 may say where it is", path.display()));
        return;
    }
    let dataset = open(&path, &OFFICIAL).unwrap();
    assert_eq!((dataset.train.len(), dataset.test.len()), (50_000, 10_000));
    let of_class = |images: &Images, class| images.labels.iter().filter(|label| **label == class).count();
    assert!((0..10).all(|class| of_class(&dataset.train, class) == 5000 && of_class(&dataset.test, class) == 1000));
    // The well-known channel means: channels are in the right order.
    for (channel, expected) in [0.49140, 0.48216, 0.44653].into_iter().enumerate() {
        let sum: f64 = dataset.train.pixels.iter().skip(channel).step_by(CHANNELS).map(|pixel| f64::from(*pixel)).sum();
        assert!((sum / 255.0 / (50_000 * SIDE * SIDE) as f64 - expected).abs() < 1e-5);
    }
}

/// Random bytes, or nearly valid ones.
fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let few = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    let spoilt = (few, any::<prop::sample::Index>(), any::<bool>()).prop_map(move |(changes, end, cut)| {
        let mut bytes = good.clone();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        bytes
    });
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..2000), spoilt]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(
        plain in damaged(Small::new().batches[0].clone()),
        zstandard in damaged(compress_to_vec(Small::new().batches[1].as_slice(), CompressionLevel::Fastest)),
        archive in damaged(Small::new().archive()),
        tar in damaged(vec![0; 2048]),
    ) {
        let (set, directory) = (Small::new(), directory());
        set.write(directory.path());
        let at = |name: &str| directory.path().join(name);
        fs::write(at("data_batch_1.bin"), &plain).unwrap();
        prop_assert!(set.open(directory.path()).is_err() || plain == set.batches[0]);
        fs::write(at("data_batch_1.bin"), &set.batches[0]).unwrap();
        fs::remove_file(at("data_batch_2.bin")).unwrap();
        fs::write(at("data_batch_2.bin.zst"), &zstandard).unwrap();
        let _ = set.open(directory.path());
        fs::write(at("archive"), &archive).unwrap();
        let _ = set.open(&at("archive"));
        fs::write(at("archive"), gzip(&tar)).unwrap();
        prop_assert!(set.open(&at("archive")).is_err());
    }
}
