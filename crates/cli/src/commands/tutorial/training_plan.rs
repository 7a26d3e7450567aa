//! Training of the tutorial: a small run (`--quick`), a better model, or the original training on CIFAR-10 (`--full`).

use std::path::{Path, PathBuf};

use corro_trainer::data::{self, Source};
use serde_json::json;

use super::sandbox::quote_path;
use crate::error::CliError;

/// File in the place of the tutorial's script.
pub const SETTINGS_FILE: &str = "cifar_cnn_distributed.json";

const ARCHIVE: &str = "cifar-10-binary.tar.gz";
const DOWNLOAD_PAGE: &str = "https://www.cs.toronto.edu/~kriz/cifar.html";

pub struct TrainingPlan {
    settings: serde_json::Value,
    data: Option<Images>,
}

/// CIFAR-10 on the user's disk.
enum Images {
    Archive(PathBuf),
    /// Contains the six files.
    Directory(PathBuf),
}

impl TrainingPlan {
    /// Checks the images before anything is started.
    pub fn choose(quick: bool, full: bool, data: Option<PathBuf>) -> Result<TrainingPlan, CliError> {
        match (full, data) {
            (false, _) => {
                Ok(TrainingPlan { settings: if quick { quick_settings() } else { default_settings() }, data: None })
            }
            (true, None) => Err(CliError::usage("--full trains on CIFAR-10: give its path with --data")
                .hint(format!("get {ARCHIVE} from {DOWNLOAD_PAGE}, then: corro tutorial --full --data {ARCHIVE}"))),
            (true, Some(path)) => {
                let path = std::path::absolute(&path).map_err(|error| CliError::from_error(&error))?;
                data::open(&Source::Cifar10(path.clone())).map_err(|error| CliError::from_error(&error))?;
                Ok(TrainingPlan { settings: json!({ "epochs": 100 }), data: Some(Images::locate(path)) })
            }
        }
    }

    pub fn settings_json(&self) -> String {
        serde_json::to_string_pretty(&self.settings).expect("plain data")
    }

    /// The command that uploads the images to `cifar/data` on the share.
    pub fn upload_command(&self) -> Option<String> {
        let account = "--account-name mystorageaccount";
        Some(match self.data.as_ref()? {
            Images::Archive(path) => {
                let path = quote_path(path);
                format!(
                    "storage file upload --path cifar/data/{ARCHIVE} --share-name myshare --source {path} {account}"
                )
            }
            Images::Directory(path) => {
                let path = quote_path(path);
                format!(
                    "storage file upload-batch --source {path} --pattern '*_batch*' --destination myshare --destination-path cifar/data {account}"
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
                    "pythonScriptFilePath": format!("{share}/{SETTINGS_FILE}"),
                    "pythonInterpreterPath": format!("{} train", quote_path(&exe)),
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
    /// The same locations as in [`data::open`].
    fn locate(path: PathBuf) -> Images {
        let has_images = |directory: &Path| {
            ["test_batch.bin", "test_batch.bin.zst"].iter().any(|name| directory.join(name).is_file())
        };
        let subdirectory = path.join("cifar-10-batches-bin");
        match () {
            () if path.is_file() => Images::Archive(path),
            () if has_images(&path) => Images::Directory(path),
            () if has_images(&subdirectory) => Images::Directory(subdirectory),
            () => Images::Archive(path.join(ARCHIVE)),
        }
    }
}

/// Enough to see that the model learns. Small batches make many steps.
fn quick_settings() -> serde_json::Value {
    json!({ "epochs": 16, "batch": 8, "learningRate": 0.00025, "synthetic": { "train": 400, "test": 400 } })
}

/// Enough for a good model.
fn default_settings() -> serde_json::Value {
    json!({ "epochs": 20, "batch": 32, "learningRate": 0.0003, "synthetic": { "train": 5000, "test": 2000 } })
}
