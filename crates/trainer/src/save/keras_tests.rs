//! Models written and read back, and invalid files.

use std::fs;
use std::io::Read;
use std::sync::LazyLock;

use proptest::prelude::*;

use hdf5_pure::{AttrValue, FileBuilder};

use super::super::hdf5_format::texts;
use super::super::{FORMAT_VERSION, MAX_FILE_BYTES};
use super::*;
use crate::network::PARAMETERS;
use crate::random::Random;

/// Random weights that depend on the seed.
pub fn some_weights(seed: u64) -> Weights {
    let mut weights = Weights::zeros();
    let mut random = Random::from_key(&[seed]);
    for part in weights.slices_mut() {
        part.fill_with(|| random.uniform() - 0.5);
    }
    weights
}

pub const SCHEDULE: Schedule = Schedule { rate: 1e-4, decay: 1e-6 };

#[test]
fn weights_survive_a_round_trip() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("model.h5");
    let weights = some_weights(1);
    write(&path, &weights, SCHEDULE).expect("it can be written");
    assert_eq!(read(&path).expect("it can be read"), weights);
    let bytes = std::fs::metadata(&path).expect("it is there").len();
    assert!((5_003_432..5_100_000).contains(&bytes), "{bytes} bytes for 5,003,432 of weights");
}

/// This network saved by Keras 3.15, with ones in the first tensor, twos in the second, and so on.
const BY_KERAS: &[u8] = include_bytes!("by_keras.h5.gz");

fn by_keras() -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(BY_KERAS).read_to_end(&mut bytes).expect("it is whole");
    bytes
}

fn by_us() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("model.h5");
    write(&path, &Weights::zeros(), SCHEDULE).expect("it can be written");
    fs::read(&path).expect("it is there")
}

fn read_bytes(bytes: Vec<u8>) -> Result<Weights, ReadError> {
    read_verified(&KerasFile::from_bytes(Path::new("model.h5"), bytes)?)
}

/// The error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", with_causes(cause)))
}

#[test]
fn models_written_by_keras_are_read() {
    let weights = read_bytes(by_keras()).expect("it can be read");
    for (index, values) in weights.0.iter().enumerate() {
        assert!(values.iter().all(|value| *value == (index + 1) as f32), "{}", PARAMETERS[index].name());
    }
}

#[test]
fn invalid_files_are_rejected_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("model.h5");
    let check = |start: &str| {
        let error = with_causes(&read(&path).expect_err("no model"));
        let wanted = format!("{}{start}", path.display());
        assert!(error.contains(&wanted), "{error:?} does not have {wanted:?}");
    };
    check(": No such file or directory");
    fs::write(&path, "no HDF5 at all").expect("a file");
    check(" is damaged or not a Keras model: cannot read it as HDF5: ");
    FileBuilder::new().write(&path).expect("an empty HDF5 file");
    check(" is damaged or not a Keras model: cannot read the group model_weights: ");
    fs::File::create(&path).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("a file with a hole");
    check(" has 67108865 bytes, too many for this network: at most 67108864 are read");

    let mut later = model(&Weights::zeros(), SCHEDULE);
    later.add_group(sealed_by(FORMAT_VERSION + 1));
    later.write(&path).expect("a model of a later format");
    check(" has format 2, written by a newer version: this version reads up to 1");
}

fn sealed_by(format: u64) -> hdf5_pure::FinishedGroup {
    let mut group = FileBuilder::new().create_group("corro");
    group.set_attr("format", AttrValue::U64(format));
    group.finish()
}

/// Checks the error for a network with these tensors in one layer.
fn check_other_network(tensors: &[(&str, &[u64])], reason: &str) {
    let mut file = FileBuilder::new();
    let mut group = file.create_group("model_weights");
    group.set_attr("layer_names", texts(["only".to_owned()]));
    let mut layer = group.create_group("only");
    layer.set_attr("weight_names", texts(tensors.iter().map(|(name, _)| (*name).to_owned())));
    for (name, shape) in tensors {
        layer.create_dataset(name).with_f32_data(&vec![0.0; shape.iter().product::<u64>() as usize]).with_shape(shape);
    }
    group.add_group(layer.finish());
    file.add_group(group.finish());
    let error = read_bytes(file.finish().expect("a file")).expect_err("another network").to_string();
    assert_eq!(error, format!("model.h5 contains another network than the tutorial's: {reason}"));
}

#[test]
fn another_network_is_rejected() {
    check_other_network(&[], "it has 0 tensors instead of 12");
    check_other_network(&[("a", &[3, 3, 3, 32]), ("b", &[32])], "it has 2 tensors instead of 12");
    let names: Vec<String> = (0..12).map(|index| format!("tensor{index}")).collect();
    let transposed: Vec<(&str, &[u64])> = names.iter().map(|name| (name.as_str(), &[32, 3, 3, 3][..])).collect();
    check_other_network(&transposed, "model_weights/only/tensor0 is F32 [32, 3, 3, 3] instead of F32 [3, 3, 3, 32]");
}

#[test]
fn a_corrupted_weight_is_detected() {
    let mut bytes = by_us();
    // The weights are zeros, so a long run of zeros lies among them.
    let zeros = bytes.windows(4096).position(|window| window.iter().all(|byte| *byte == 0)).expect("weights");
    bytes[zeros + 2048] ^= 1;
    assert_eq!(
        read_bytes(bytes).expect_err("it is damaged").to_string(),
        "model.h5 is damaged: its checksum does not match"
    );
}

/// A file and the positions of its nonzero bytes, which are mostly metadata.
struct Sample {
    bytes: Vec<u8>,
    metadata_positions: Vec<usize>,
}

impl Sample {
    fn of(bytes: Vec<u8>) -> Sample {
        let metadata_positions = (0..bytes.len()).filter(|index| bytes[*index] != 0).collect();
        Sample { bytes, metadata_positions }
    }
}

/// With and without checksums.
static SAMPLES: LazyLock<[Sample; 2]> = LazyLock::new(|| [Sample::of(by_us()), Sample::of(by_keras())]);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A damaged file of ours never yields other weights. Keras' file has no checksum: reading it must only not panic.
    #[test]
    fn damaged_files_are_rejected(
        sample in 0..2usize,
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
    ) {
        let Sample { bytes, metadata_positions } = &SAMPLES[sample];
        let mut damaged = bytes.clone();
        for (place, flip) in flips {
            damaged[*place.get(metadata_positions)] ^= flip;
        }
        if let Some(cut) = cut {
            damaged.truncate(*cut.get(metadata_positions));
        }
        let read = read_bytes(damaged);
        if sample == 0 && let Ok(weights) = read {
            prop_assert!(weights == Weights::zeros(), "other weights");
        }
    }
}
