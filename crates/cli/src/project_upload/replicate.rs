//! Fills the directory of a job with the files that were sent with another one. The server copies them within the share: contents from the store of
//! contents, and what the store does not have from the other job's directory. Nothing travels through the client, so this needs no project. Repeating it
//! after an interruption is safe.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::send::{Destination, PARALLEL_FILES, copy, directories};
use crate::error::CliError;

/// A file that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentFile<'a> {
    /// Path below the job's directory.
    pub path: &'a str,
    pub size: u64,
    /// SHA-256 of the content; absent if an older version sent it.
    pub digest: Option<&'a str>,
}

/// Copies `files` and those of `own_files` that exist to a directory that exists. `source` is the directory of the job that has them. Returns the paths
/// of files that were changed since they were sent.
pub async fn replicate(
    to: &Destination<'_>,
    source: &str,
    files: &[SentFile<'_>],
    own_files: &[String],
) -> Result<Vec<String>, CliError> {
    let paths = || files.iter().map(|file| file.path).chain(own_files.iter().map(String::as_str));
    for directory in directories(paths()) {
        to.files.create_directory(to.share, &format!("{}/{directory}", to.directory), &Default::default()).await?;
    }
    let changed: Vec<Option<&str>> = stream::iter(files)
        .map(|file| async move { Ok::<_, CliError>((!copy_file(to, source, file).await?).then_some(file.path)) })
        .buffer_unordered(PARALLEL_FILES)
        .try_collect()
        .await?;
    for path in own_files {
        match copy(to, &format!("{source}/{path}"), &format!("{}/{path}", to.directory)).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(changed.into_iter().flatten().map(str::to_owned).collect())
}

/// Copies a file. `false` if it is not as it was sent: it was written at that time, or the other job changed it.
async fn copy_file(to: &Destination<'_>, source: &str, file: &SentFile<'_>) -> Result<bool, CliError> {
    let path = format!("{}/{}", to.directory, file.path);
    if let Some(digest) = file.digest {
        match copy(to, &format!("{}/{digest}", to.store), &path).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    match copy(to, &format!("{source}/{}", file.path), &path).await {
        Ok(()) => Ok(to.files.file_properties(to.share, &path).await?.length == file.size),
        Err(error) if error.is_not_found() => {
            Err(CliError::new(format!("cannot copy {}: it is gone from {source}", file.path))
                .hint("submit again from the directory of the project"))
        }
        Err(error) => Err(error.into()),
    }
}
