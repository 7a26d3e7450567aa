//! Output files of a job.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputFile {
    pub name: String,
    pub file_type: FileType,
    /// Signed URL with an expiry; files only, absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub properties: Option<FileProperties>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    File,
    Directory,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileProperties {
    pub last_modified: Timestamp,
    pub content_length: u64,
}

/// The built-in output directory that holds a job's logs.
pub const STDOUTERR: &str = "stdouterr";
