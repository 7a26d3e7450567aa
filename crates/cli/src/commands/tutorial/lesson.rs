//! What the tutorial trains: a little for a first look, more for a good model, or the tutorial's own training on the real images.

use std::path::{Path, PathBuf};

use corro_trainer::data::{self, Source};
use serde_json::json;

use super::stage::quoted;
use crate::error::CliError;

/// Where the tutorial has its script.
pub const SETTINGS: &str = "cifar_cnn_distributed.json";

const ARCHIVE: &str = "cifar-10-binary.tar.gz";
const WHERE: &str = "https://www.cs.toronto.edu/~kriz/cifar.html";

pub struct Lesson {
    settings: serde_json::Value,
    data: Option<Images>,
}

/// The real images, as the user has them.
enum Images {
    Archive(PathBuf),
    /// With the six files in it.
    Directory(PathBuf),
}

impl Lesson {
    /// Looks at the images first, so that nothing is started in vain.
    pub fn choose(quick: bool, full: bool, data: Option<PathBuf>) -> Result<Lesson, CliError> {
        match (full, data) {
            (false, _) => Ok(Lesson { settings: if quick { little() } else { more() }, data: None }),
            (true, None) => Err(CliError::usage("--full trains on CIFAR-10: --data has to say where it is")
                .hint(format!("get {ARCHIVE} from {WHERE}, then: corro tutorial --full --data {ARCHIVE}"))),
            (true, Some(path)) => {
                let path = std::path::absolute(&path).map_err(|error| CliError::from_error(&error))?;
                data::open(&Source::Cifar10(path.clone())).map_err(|error| CliError::from_error(&error))?;
                Ok(Lesson { settings: json!({ "epochs": 100 }), data: Some(Images::find(path)) })
            }
        }
    }

    pub fn settings_json(&self) -> String {
        serde_json::to_string_pretty(&self.settings).expect("plain data")
    }

    /// What brings the images to the share, into the directory `cifar/data`.
    pub fn upload(&self) -> Option<String> {
        let to = "--account-name mystorageaccount";
        Some(match self.data.as_ref()? {
            Images::Archive(path) => {
                let path = quoted(path);
                format!("storage file upload --path cifar/data/{ARCHIVE} --share-name myshare --source {path} {to}")
            }
            Images::Directory(path) => {
                let path = quoted(path);
                format!(
                    "storage file upload-batch --source {path} --pattern '*_batch*' --destination myshare --destination-path cifar/data {to}"
                )
            }
        })
    }

    /// The tutorial's own `job.json`, with `corro train` in place of Python and the container.
    pub fn job_json(&self) -> Result<String, CliError> {
        let exe = std::env::current_exe().map_err(|error| CliError::from_error(&error))?;
        let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar";
        let data = self.data.as_ref().map(|_| format!(" --data={share}/data")).unwrap_or_default();
        let job = json!({
            "properties": {
                "nodeCount": 4,
                "horovodSettings": {
                    "pythonScriptFilePath": format!("{share}/{SETTINGS}"),
                    "pythonInterpreterPath": format!("{} train", quoted(&exe)),
                    "commandLineArgs": format!("--dir={share}{data}")
                },
                "stdOutErrPathPrefix": share,
                "mountVolumes": {
                    "azureFileShares": [{
                        "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                        "relativeMountPath": "myshare"
                    }]
                },
                "jobPreparation": { "commandLine": "echo \"node ready: $(uname -srm)\"" }
            }
        });
        Ok(serde_json::to_string_pretty(&job).expect("plain data"))
    }
}

impl Images {
    /// Where [`data::open`] has found them.
    fn find(path: PathBuf) -> Images {
        let holds = |directory: &Path| {
            ["test_batch.bin", "test_batch.bin.zst"].iter().any(|name| directory.join(name).is_file())
        };
        let below = path.join("cifar-10-batches-bin");
        match () {
            () if path.is_file() => Images::Archive(path),
            () if holds(&path) => Images::Directory(path),
            () if holds(&below) => Images::Directory(below),
            () => Images::Archive(path.join(ARCHIVE)),
        }
    }
}

/// Enough to see that it learns. Few images a step make many steps.
fn little() -> serde_json::Value {
    json!({ "epochs": 16, "batch": 8, "learningRate": 0.00025, "synthetic": { "train": 400, "test": 400 } })
}

/// Enough for a good model.
fn more() -> serde_json::Value {
    json!({ "epochs": 20, "batch": 32, "learningRate": 0.0003, "synthetic": { "train": 5000, "test": 2000 } })
}
