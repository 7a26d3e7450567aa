//! Fingerprint of a run: everything that its weights depend on. It is stored in every checkpoint; a checkpoint with
//! another fingerprint is not resumed.
//!
//! The number of epochs is not included: a finished training may be continued with more of them. Nor are threads and
//! the path of the data, which do not affect the result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Settings;
use super::settings::Precision;
use crate::data::Dataset;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunFingerprint {
    seed: u64,
    /// Determines the learning rate and the order of images, too. 0: an elastic training, in which they change.
    ranks: usize,
    batch: usize,
    learning_rate: f32,
    decay: f32,
    augmentation: bool,
    dropout: bool,
    precision: Precision,
    data: String,
    train: usize,
    test: usize,
}

impl RunFingerprint {
    pub fn new(settings: &Settings, dataset: &Dataset, ranks: usize) -> RunFingerprint {
        RunFingerprint {
            seed: settings.seed,
            ranks,
            batch: settings.batch,
            learning_rate: settings.learning_rate,
            decay: settings.decay,
            augmentation: settings.augmentation,
            dropout: settings.dropout,
            precision: settings.precision,
            data: dataset.name.clone(),
            train: dataset.train.labels.len(),
            test: dataset.test.labels.len(),
        }
    }

    /// As stored in a checkpoint.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// Describes the differences to the fingerprint of a checkpoint; `None` if there are none.
    pub fn differences(&self, theirs: &str) -> Option<String> {
        // Both are parsed from text, so that numbers are formatted alike.
        let [own, theirs] =
            [self.to_json().as_str(), theirs].map(|text| serde_json::from_str(text).unwrap_or(Value::Null));
        let fields = own.as_object().expect("it has fields").iter();
        let differing = fields.filter(|(field, value)| **value != theirs[field.as_str()]);
        let descriptions: Vec<String> =
            differing.map(|(field, value)| format!("{field} {}, not {value}", theirs[field.as_str()])).collect();
        (!descriptions.is_empty()).then(|| descriptions.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let own = RunFingerprint {
            seed: 1,
            ranks: 4,
            batch: 32,
            learning_rate: 0.0001,
            decay: 1e-6,
            augmentation: true,
            dropout: true,
            precision: Precision::F32,
            data: "synthetic".into(),
            train: 10,
            test: 5,
        };
        assert_eq!(own.differences(&own.to_json()), None);
        let other = RunFingerprint { seed: 2, data: "cifar10".into(), ..own.clone() };
        let expected = r#"data "cifar10", not "synthetic"; seed 2, not 1"#;
        assert_eq!(own.differences(&other.to_json()).as_deref(), Some(expected));
        assert!(own.differences("").is_some_and(|all| all.contains("ranks null, not 4")));
    }
}
