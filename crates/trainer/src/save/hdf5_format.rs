//! Low-level part of Keras' HDF5 format: builds the groups and attributes of a model, and reads datasets and name lists.
//! `keras` describes the layout.

use std::path::Path;

use corro_collectives::optimizer::ParamStorage;
use hdf5_pure::{AttrValue, DType, File, FileBuilder, Group, GroupBuilder, LibVer};

use super::config::{self, LAYERS};
use super::{MAX_FILE_BYTES, ReadError, Schedule, WriteError, atomic_write};
use crate::network::{PARAMETERS, Parameter, Weights};

/// Keras version whose file format is written.
const KERAS_VERSION: &str = "2.2.4";
/// Backend with this kernel layout.
const BACKEND: &str = "tensorflow";

/// A model as Keras expects it. The caller may add more groups.
pub(super) fn model(weights: &Weights, schedule: Schedule) -> FileBuilder {
    let mut file = FileBuilder::new();
    // HDF5 1.8 format, which the libraries of Keras 2.2's time read.
    file.with_libver_bounds(LibVer::Earliest, LibVer::V18);
    file.set_attr("keras_version", text(KERAS_VERSION));
    file.set_attr("backend", text(BACKEND));
    file.set_attr("model_config", text(&config::model().to_string()));
    file.set_attr("training_config", text(&config::training(schedule).to_string()));
    let mut group = file.create_group("model_weights");
    group.set_attr("keras_version", text(KERAS_VERSION));
    group.set_attr("backend", text(BACKEND));
    group.set_attr("layer_names", texts(LAYERS.iter().map(|layer| layer.name.to_owned())));
    for layer in LAYERS {
        let parameters = PARAMETERS.iter().zip(&weights.0).filter(|(parameter, _)| parameter.layer == layer.name);
        add_layer(&mut group, layer.name, parameters);
    }
    file.add_group(group.finish());
    file
}

fn add_layer<'a>(
    group: &mut GroupBuilder,
    name: &str,
    parameters: impl Iterator<Item = (&'a Parameter, &'a ParamStorage)>,
) {
    let mut outer = group.create_group(name);
    let mut inner = outer.create_group(name);
    let mut names = Vec::new();
    for (parameter, values) in parameters {
        add_values(&mut inner, &format!("{}:0", parameter.kind), parameter, values);
        names.push(format!("{}:0", parameter.name()));
    }
    if !names.is_empty() {
        outer.add_group(inner.finish());
    }
    outer.set_attr("weight_names", texts(names));
    group.add_group(outer.finish());
}

pub(super) fn add_values(group: &mut GroupBuilder, name: &str, parameter: &Parameter, values: &[f32]) {
    let shape: Vec<u64> = parameter.shape.iter().map(|side| *side as u64).collect();
    group.create_dataset(name).with_f32_data(values).with_shape(&shape);
}

pub(super) fn finish(path: &Path, file: FileBuilder) -> Result<(), WriteError> {
    let bytes = file.finish().map_err(|error| WriteError::Format { path: path.to_owned(), source: error.into() })?;
    atomic_write::write(path, &bytes)
}

pub(super) fn text(text: &str) -> AttrValue {
    AttrValue::AsciiString(text.to_owned())
}

/// A string list. An empty one is an empty float array, as NumPy writes it.
pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> AttrValue {
    let texts: Vec<String> = texts.into_iter().collect();
    if texts.is_empty() { AttrValue::F64Array(Vec::new()) } else { AttrValue::AsciiStringArray(texts) }
}

/// An HDF5 file file for reading, at most [`MAX_FILE_BYTES`] long.
pub(super) struct KerasFile<'a> {
    pub path: &'a Path,
    file: File,
}

impl<'a> KerasFile<'a> {
    pub fn open(path: &'a Path) -> Result<KerasFile<'a>, ReadError> {
        let disk = |source| ReadError::Disk { path: path.to_owned(), source };
        let bytes = std::fs::metadata(path).map_err(disk)?.len();
        if bytes > MAX_FILE_BYTES {
            return Err(ReadError::TooLarge { path: path.to_owned(), bytes });
        }
        KerasFile::from_bytes(path, std::fs::read(path).map_err(disk)?)
    }

    pub fn from_bytes(path: &'a Path, bytes: Vec<u8>) -> Result<KerasFile<'a>, ReadError> {
        let file = File::from_bytes(bytes).map_err(|error| ReadError::format(path, "it as HDF5", error))?;
        Ok(KerasFile { path, file })
    }

    pub fn group(&self, name: &str) -> Result<Group, ReadError> {
        self.file.group(name).map_err(|error| ReadError::format(self.path, &format!("the group {name}"), error))
    }

    /// Whether the root has a group with that name.
    pub fn has_group(&self, name: &str) -> Result<bool, ReadError> {
        let names = self.file.root().groups().map_err(|error| ReadError::format(self.path, "its groups", error))?;
        Ok(names.iter().any(|group| group == name))
    }

    /// The weights of all layers in order, which must be the parameters of the network.
    pub fn weights(&self) -> Result<Weights, ReadError> {
        let mut paths = Vec::new();
        for layer in self.names("model_weights", "layer_names")? {
            let group = format!("model_weights/{layer}");
            paths.extend(self.names(&group, "weight_names")?.into_iter().map(|name| format!("{group}/{name}")));
        }
        self.parameters(&paths)
    }

    /// Reads one dataset per parameter.
    pub fn parameters(&self, paths: &[String]) -> Result<Weights, ReadError> {
        if paths.len() != PARAMETERS.len() {
            let what = format!("it has {} tensors instead of {}", paths.len(), PARAMETERS.len());
            return Err(ReadError::OtherNetwork { path: self.path.to_owned(), what });
        }
        Ok(Weights(
            PARAMETERS
                .iter()
                .zip(paths)
                .map(|(parameter, path)| Ok(self.values(path, parameter)?.into()))
                .collect::<Result<_, _>>()?,
        ))
    }

    pub fn names(&self, group: &str, list: &str) -> Result<Vec<String>, ReadError> {
        let failed = |error: hdf5_pure::Error| ReadError::format(self.path, &format!("{list} of {group}"), error);
        let attributes = self.group(group)?.attrs().map_err(failed)?;
        match attributes.get(list) {
            Some(AttrValue::F64Array(none)) if none.is_empty() => Ok(Vec::new()),
            Some(names) if names.as_strings().is_some() => Ok(names.as_strings().unwrap_or_default().to_vec()),
            _ => Err(ReadError::format(self.path, &format!("{list} of {group}"), "the list of names is missing")),
        }
    }

    fn values(&self, path: &str, parameter: &Parameter) -> Result<Vec<f32>, ReadError> {
        let failed = |error: hdf5_pure::Error| ReadError::format(self.path, path, error);
        let dataset = self.file.dataset(path).map_err(failed)?;
        let (shape, dtype) = (dataset.shape().map_err(failed)?, dataset.dtype().map_err(failed)?);
        let fits = shape.iter().copied().eq(parameter.shape.iter().map(|side| *side as u64));
        if !fits || dtype != DType::F32 {
            let what = format!("{path} is {dtype:?} {shape:?} instead of F32 {:?}", parameter.shape);
            return Err(ReadError::OtherNetwork { path: self.path.to_owned(), what });
        }
        // Keras never compresses weights; compressed data could expand to any size.
        if dataset.is_chunked() {
            return Err(ReadError::format(self.path, path, "its values are chunked"));
        }
        dataset.read_f32().map_err(failed)
    }
}
