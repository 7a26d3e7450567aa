//! Sends the files of a project to the directory of a job on a share. Contents that the share has already are copied by the server from a store of
//! contents, so only what is new travels. Repeating it after an interruption sends what is missing.
//!
//! The store is a directory of files that are named by their SHA-256 digest. A file gets its name there only when a server-side copy of its upload is
//! complete, and only if its source did not change meanwhile, so a file that has its name is complete.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corro_client::files::{Entry, EntryKind, FileSettings};
use corro_client::{ClientError, FileService};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::files::{ProjectFile, ProjectFiles, digest_of};
use crate::error::CliError;
use crate::stdio::note;

/// Files that are sent or copied at the same time.
pub(super) const PARALLEL_FILES: usize = 8;
const CONNECTIONS_PER_FILE: usize = 2;
/// Beginning of the names of copies that are not complete.
const INCOMPLETE: &str = "incomplete-";
/// Pause between two looks at a copy that outlasts its request.
const COPY_POLL: Duration = Duration::from_millis(200);

/// Where the files go.
pub struct Destination<'a> {
    pub files: &'a FileService,
    pub share: &'a str,
    /// The job's directory, which exists.
    pub directory: &'a str,
    /// The store of contents, which is created if missing.
    pub store: &'a str,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub files: u64,
    pub bytes: u64,
    /// Files that the server copied from its store.
    pub copied_files: u64,
}

/// Sends all files. `progress` gets the bytes done and their total.
pub async fn send(
    to: &Destination<'_>,
    project: &ProjectFiles,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Sent, CliError> {
    let stored = stored_sizes(to).await?;
    for directory in directories(project.paths()) {
        to.files.create_directory(to.share, &format!("{}/{directory}", to.directory), &Default::default()).await?;
    }
    let (total, done) = (project.total_bytes(), AtomicU64::new(0));
    let sent: Vec<Sent> = stream::iter(&project.files)
        .map(|file| {
            let (stored, done) = (&stored, &done);
            async move {
                let sent = send_file(to, file, stored.get(&file.digest) == Some(&file.size)).await?;
                progress(done.fetch_add(file.size, Ordering::Relaxed) + file.size, total);
                Ok::<Sent, CliError>(sent)
            }
        })
        .buffer_unordered(PARALLEL_FILES)
        .try_collect()
        .await?;
    Ok(sent.into_iter().fold(Sent::default(), |sum, one| Sent {
        files: sum.files + one.files,
        bytes: sum.bytes + one.bytes,
        copied_files: sum.copied_files + one.copied_files,
    }))
}

/// Deletes the files with these paths in the directory, and the directory itself. Files that are not there are passed over.
pub async fn discard<'p>(
    to: &Destination<'_>,
    paths: impl Iterator<Item = &'p str> + Clone,
) -> Result<(), ClientError> {
    let gone = |result: Result<(), ClientError>| match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    };
    stream::iter(paths.clone())
        .map(|path| async move { gone(to.files.delete_file(to.share, &format!("{}/{path}", to.directory)).await) })
        .buffer_unordered(PARALLEL_FILES)
        .try_collect::<()>()
        .await?;
    // Children before their parents.
    for directory in directories(paths).into_iter().rev() {
        gone(to.files.delete_directory(to.share, &format!("{}/{directory}", to.directory)).await)?;
    }
    gone(to.files.delete_directory(to.share, to.directory).await)
}

/// Digests and sizes of the contents in the store.
async fn stored_sizes(to: &Destination<'_>) -> Result<HashMap<String, u64>, CliError> {
    if to.files.create_directory(to.share, to.store, &Default::default()).await? {
        return Ok(HashMap::new());
    }
    let entries = to.files.list(to.share, to.store).await?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::File { name, length } => Some((name, length)),
            _ => None,
        })
        .collect())
}

async fn send_file(to: &Destination<'_>, file: &ProjectFile, is_stored: bool) -> Result<Sent, CliError> {
    let path = format!("{}/{}", to.directory, file.path);
    let stored = format!("{}/{}", to.store, file.digest);
    if is_stored {
        match copy(to, &stored, &path).await {
            Ok(()) => return Ok(Sent { copied_files: 1, ..Sent::default() }),
            // Somebody emptied the store meanwhile.
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error.into()),
        }
    }
    let silent = |_, _| ();
    let settings = FileSettings::default();
    to.files.upload(to.share, &path, &file.source, &settings, CONNECTIONS_PER_FILE, &silent).await?;
    let source = file.source.clone();
    let after =
        tokio::task::spawn_blocking(move || digest_of(&source)).await.expect("reading a file does not panic")?;
    if after == (file.size, file.digest.clone()) {
        let incomplete = format!("{}/{INCOMPLETE}{}", to.store, random_name()?);
        copy(to, &path, &incomplete).await?;
        to.files.rename(to.share, (&incomplete, &stored), EntryKind::File, true).await?;
    } else {
        note(format_args!("warning: {} changed while it was sent", file.source.display()));
    }
    Ok(Sent { files: 1, bytes: file.size, copied_files: 0 })
}

fn random_name() -> Result<String, CliError> {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| CliError::from_error(&error))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Copies a file within the share, and waits for the end of the copy.
pub(super) async fn copy(to: &Destination<'_>, from: &str, path: &str) -> Result<(), ClientError> {
    let mut copy = to.files.copy_file(to.share, path, &to.files.url(to.share, from), &Default::default()).await?;
    // The server answers after some seconds at the latest and goes on with a long copy.
    while copy.status.as_deref() == Some("pending") {
        tokio::time::sleep(COPY_POLL).await;
        copy = to.files.file_properties(to.share, path).await?.copy;
    }
    match copy.status.as_deref() {
        Some("success") => Ok(()),
        _ => Err(ClientError::UnexpectedFileAnswer { request: format!("copy of {from}") }),
    }
}

/// The directories of these paths, parents first.
pub(super) fn directories<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    paths.flat_map(|path| path.match_indices('/').map(move |(end, _)| &path[..end])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_come_before_their_directories() {
        let made: Vec<&str> = directories(["a/b/c.py", "a/d.py", "e.py", "a-b/f.py"].into_iter()).into_iter().collect();
        assert_eq!(made, ["a", "a-b", "a/b"]);
        assert!(directories(["x"].into_iter()).is_empty());
    }
}
