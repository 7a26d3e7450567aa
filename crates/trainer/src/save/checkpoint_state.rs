//! Training state in a checkpoint: RMSprop's accumulators, where Keras expects them (`optimizer_weights`), and the
//! progress of the training in the group `corro`. A model without state also has that group, with only the format
//! version and a checksum: HDF5 itself does not detect corrupted weights.

use std::collections::HashMap;

use hdf5_pure::{AttrValue, FileBuilder, GroupBuilder};
use sha2::{Digest, Sha256};

use super::config::OPTIMIZER;
use super::hdf5_format::{KerasFile, add_values, text, texts};
use super::{Checkpoint, FORMAT_VERSION, ReadError, Schedule};
use crate::network::{PARAMETERS, Parameter, Weights};

/// The group `corro` with the format version and the checksum of the given values.
pub fn checksum_group(all: &[&Weights]) -> GroupBuilder {
    let mut group = FileBuilder::new().create_group(GROUP);
    group.set_attr("format", AttrValue::U64(FORMAT_VERSION));
    group.set_attr("sha256", text(&checksum(all)));
    group
}

/// Verifies the checksum; files written by Keras have none. Returns RMSprop's accumulators if the file is a checkpoint,
/// since the checksum covers both.
pub fn verify(file: &KerasFile<'_>, weights: &Weights) -> Result<Option<Weights>, ReadError> {
    if !file.has_group(GROUP)? {
        return Ok(None);
    }
    let attributes = Attributes::read(file)?;
    let format = attributes.number("format")?;
    if format > FORMAT_VERSION {
        return Err(ReadError::Newer { path: file.path.to_owned(), format });
    }
    let accumulators = if attributes.has("epoch") { Some(accumulators(file)?) } else { None };
    let all: Vec<&Weights> = std::iter::once(weights).chain(&accumulators).collect();
    if attributes.text("sha256")? != checksum(&all) {
        return Err(ReadError::Damaged { path: file.path.to_owned() });
    }
    Ok(accumulators)
}

/// Adds the training state to a model.
pub fn add_state(file: &mut FileBuilder, checkpoint: &Checkpoint) {
    let mut optimizer = file.create_group(OPTIMIZER);
    // Keras stores 32 bits; the exact number is in the group `corro`.
    let iterations = i32::try_from(checkpoint.iterations).unwrap_or(i32::MAX);
    optimizer.create_dataset(ITERATION).with_i32_data(&[iterations]).with_shape(&[]);
    for (parameter, values) in PARAMETERS.iter().zip(&checkpoint.accumulators.0) {
        add_values(&mut optimizer, &accumulator_name(parameter), parameter, values);
    }
    let mut group = file.create_group("optimizer_weights");
    let names = std::iter::once(ITERATION.to_owned()).chain(PARAMETERS.iter().map(accumulator_name));
    group.set_attr("weight_names", texts(names.map(|name| format!("{OPTIMIZER}/{name}"))));
    group.add_group(optimizer.finish());
    file.add_group(group.finish());

    let mut group = checksum_group(&[&checkpoint.weights, &checkpoint.accumulators]);
    group.set_attr("epoch", AttrValue::U64(checkpoint.epoch as u64));
    group.set_attr("iterations", AttrValue::U64(checkpoint.iterations));
    group.set_attr("seed", AttrValue::U64(checkpoint.seed));
    group.set_attr("ranks", AttrValue::U64(checkpoint.ranks as u64));
    group.set_attr("precision", text(&checkpoint.precision));
    group.set_attr("training", text(&checkpoint.training));
    group.set_attr("rate", AttrValue::F64(checkpoint.schedule.rate));
    group.set_attr("decay", AttrValue::F64(checkpoint.schedule.decay));
    file.add_group(group.finish());
}

/// Reads a checkpoint whose weights were read before.
pub fn read(file: &KerasFile<'_>, weights: Weights) -> Result<Checkpoint, ReadError> {
    let Some(accumulators) = verify(file, &weights)? else {
        return Err(ReadError::NoState { path: file.path.to_owned() });
    };
    let attributes = Attributes::read(file)?;
    Ok(Checkpoint {
        weights,
        accumulators,
        iterations: attributes.number("iterations")?,
        epoch: attributes.number("epoch")? as usize,
        seed: attributes.number("seed")?,
        ranks: attributes.number("ranks")? as usize,
        precision: attributes.text("precision")?.to_owned(),
        training: attributes.text("training")?.to_owned(),
        schedule: Schedule { rate: attributes.real("rate")?, decay: attributes.real("decay")? },
    })
}

const GROUP: &str = "corro";
const ITERATION: &str = "iteration";

fn accumulator_name(parameter: &Parameter) -> String {
    format!("{}_{}_velocity", parameter.layer, parameter.kind)
}

fn accumulators(file: &KerasFile<'_>) -> Result<Weights, ReadError> {
    let paths: Vec<String> = PARAMETERS
        .iter()
        .map(|parameter| format!("optimizer_weights/{OPTIMIZER}/{}", accumulator_name(parameter)))
        .collect();
    file.parameters(&paths)
}

fn checksum(all: &[&Weights]) -> String {
    let mut digest = Sha256::new();
    let mut bytes = Vec::new();
    for values in all.iter().flat_map(|weights| &weights.0) {
        bytes.clear();
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        digest.update(&bytes);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Attributes of the group `corro`.
struct Attributes<'a> {
    file: &'a KerasFile<'a>,
    values: HashMap<String, AttrValue>,
}

impl<'a> Attributes<'a> {
    fn read(file: &'a KerasFile<'a>) -> Result<Attributes<'a>, ReadError> {
        let values = file
            .group(GROUP)?
            .attrs()
            .map_err(|error| ReadError::format(file.path, "the attributes of corro", error))?;
        Ok(Attributes { file, values })
    }

    fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    fn number(&self, name: &str) -> Result<u64, ReadError> {
        self.get(name, AttrValue::as_u64, "it is not an integer")
    }

    fn real(&self, name: &str) -> Result<f64, ReadError> {
        self.get(name, AttrValue::as_f64, "it is not a number")
    }

    fn text(&self, name: &str) -> Result<&str, ReadError> {
        self.get(name, AttrValue::as_str, "it is not a string")
    }

    fn get<'b, T>(
        &'b self,
        name: &str,
        convert: impl Fn(&'b AttrValue) -> Option<T>,
        error: &'static str,
    ) -> Result<T, ReadError> {
        self.values
            .get(name)
            .and_then(convert)
            .ok_or_else(|| ReadError::format(self.file.path, &format!("{name} of corro"), error))
    }
}
