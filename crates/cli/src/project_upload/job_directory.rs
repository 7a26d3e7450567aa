//! The directory of a submitted job on a share: `WORKSPACE/EXPERIMENT/JOB`. It holds the project's files, is the working directory of the job's
//! processes, and receives what they write. Corro's own files are in its subdirectory `.corro`.

use std::collections::BTreeMap;

use corro_model::batchai::JobSpec;
use serde::{Deserialize, Serialize};

use super::files::ProjectFiles;

/// Subdirectory with requirements, logs and the list of sent files.
pub const OWN_DIRECTORY: &str = ".corro";
/// Directory below which a job writes its logs, in [`OWN_DIRECTORY`].
const LOGS: &str = "logs";
/// The list of sent files, in [`OWN_DIRECTORY`].
pub const SENT_FILES: &str = "sent-files.json";
/// Requirements that a submission made, in [`OWN_DIRECTORY`].
pub const REQUIREMENTS_FILE: &str = "requirements.txt";
/// Store of contents of an experiment, beside the directories of its jobs.
const STORE: &str = ".contents";
const MOUNT_ROOT: &str = "$AZ_BATCHAI_JOB_MOUNT_ROOT";

/// Where a job's directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDirectory {
    pub account: String,
    pub share: String,
    /// Path on the share.
    pub path: String,
}

impl JobDirectory {
    /// The directory of a job that `corro submit` made; `None` for other jobs.
    pub fn of(spec: &JobSpec) -> Option<JobDirectory> {
        let mounted = spec.std_out_err_path_prefix.strip_prefix(MOUNT_ROOT)?.strip_prefix('/')?;
        let mounted = mounted.strip_suffix(&format!("/{OWN_DIRECTORY}/{LOGS}"))?;
        let shares = &spec.mount_volumes.as_ref()?.azure_file_shares;
        shares.iter().find_map(|reference| {
            let path = mounted.strip_prefix(&reference.relative_mount_path)?.strip_prefix('/')?;
            Some(JobDirectory {
                account: reference.account()?.to_owned(),
                share: reference.share_name()?.to_owned(),
                path: path.to_owned(),
            })
        })
    }

    /// The path on a node of `below` the directory.
    pub fn node_path(&self, below: &str) -> String {
        let separator = if below.is_empty() { "" } else { "/" };
        format!("{MOUNT_ROOT}/{}/{}{separator}{below}", self.share, self.path)
    }

    /// `stdOutErrPathPrefix` of the job.
    pub fn logs_node_path(&self) -> String {
        self.node_path(&format!("{OWN_DIRECTORY}/{LOGS}"))
    }

    /// The path on the share of the list of sent files.
    pub fn sent_files_path(&self) -> String {
        format!("{}/{OWN_DIRECTORY}/{SENT_FILES}", self.path)
    }

    pub fn own_directory(&self) -> String {
        format!("{}/{OWN_DIRECTORY}", self.path)
    }
}

/// The directory of an experiment on a share, above those of its jobs.
pub fn experiment_directory(workspace: &str, experiment: &str) -> String {
    format!("{workspace}/{experiment}")
}

/// The store of contents of an experiment.
pub fn store_directory(workspace: &str, experiment: &str) -> String {
    store_in(&experiment_directory(workspace, experiment))
}

/// The store of contents in the directory of an experiment.
pub fn store_in(experiment_directory: &str) -> String {
    format!("{experiment_directory}/{STORE}")
}

/// The files that were sent with a job: paths and sizes. What differs later was written by the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentFiles {
    pub files: BTreeMap<String, u64>,
    /// SHA-256 of each content, which is its name in the store of contents.
    #[serde(default)]
    pub digests: BTreeMap<String, String>,
}

impl SentFiles {
    pub fn of(project: &ProjectFiles) -> SentFiles {
        SentFiles {
            files: project.files.iter().map(|file| (file.path.clone(), file.size)).collect(),
            digests: project.files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_directory_is_found_in_the_job() {
        let directory =
            JobDirectory { account: "acc".to_owned(), share: "projects".to_owned(), path: "w/e/train-1".to_owned() };
        let spec = |prefix: &str| -> JobSpec {
            let file = json!({
                "nodeCount": 1, "customToolkitSettings": { "commandLine": "true" }, "stdOutErrPathPrefix": prefix,
                "mountVolumes": { "azureFileShares": [
                    { "accountName": "x", "azureFileUrl": "https://x.file.core.windows.net/data", "relativeMountPath": "data" },
                    { "accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/projects", "relativeMountPath": "projects" },
                ] },
            });
            serde_json::from_value(file).expect("a job")
        };
        assert_eq!(JobDirectory::of(&spec(&directory.logs_node_path())), Some(directory));
        assert_eq!(JobDirectory::of(&spec("$AZ_BATCHAI_JOB_MOUNT_ROOT/projects")), None);
        assert_eq!(JobDirectory::of(&spec("$AZ_BATCHAI_JOB_MOUNT_ROOT/other/w/e/j/.corro/logs")), None);
    }
}
