//! `corro share cp`: copies files and directories between this machine and a share, several at a time. An incomplete download leaves no file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use corro_client::files::{Destination, DownloadRange, FileSettings};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::path::{CopyEnd, SharePath, download_path, upload_path};
use super::tree::{is_directory, read_tree};
use super::{AccountPlace, OpenShare, open};
use crate::commands::storage::batch::paths::{local_files, local_path};
use crate::commands::storage::transfer::INTERRUPTED;
use crate::error::CliError;
use crate::output::units::{format_bytes, format_count};
use crate::progress::TransferBar;
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
pub struct CopyArgs {
    /// File or directory to copy: a path on this machine, or SHARE:PATH
    #[arg(value_name = "SOURCE", value_hint = clap::ValueHint::AnyPath)]
    source: String,
    /// Where to copy it: SHARE:PATH, or a path on this machine
    #[arg(value_name = "TARGET", value_hint = clap::ValueHint::AnyPath)]
    target: String,
    /// Accepted as with cp: directories are always copied with all that is in them
    #[arg(long, short = 'r', hide = true)]
    recursive: bool,
    #[command(flatten)]
    account: AccountPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

const PARALLEL_FILES: usize = 8;
const CONNECTIONS_PER_FILE: usize = 2;

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileCopy {
    local: PathBuf,
    /// Path on the share.
    remote: String,
    size: u64,
}

pub async fn run(args: CopyArgs) -> Result<(), CliError> {
    let ends = (CopyEnd::parse(&args.source)?, CopyEnd::parse(&args.target)?);
    let session = Session::open(&args.global)?;
    let copied = async {
        match &ends {
            (CopyEnd::Local(source), CopyEnd::Share(target)) => upload(&session, source, target, &args.account).await,
            (CopyEnd::Share(source), CopyEnd::Local(target)) => download(&session, source, target, &args.account).await,
            (CopyEnd::Local(_), CopyEnd::Local(_)) => {
                Err(CliError::usage("neither the source nor the target is on a share")
                    .hint("write the path on the share with a colon: SHARE:PATH"))
            }
            (CopyEnd::Share(_), CopyEnd::Share(_)) => {
                Err(CliError::usage("both the source and the target are on a share")
                    .hint("copy on the server with 'corro storage file copy start'"))
            }
        }
    };
    tokio::select! {
        // Polled first, so that the handler is installed before a file is written.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => {
            let error = CliError { exit: INTERRUPTED, ..CliError::new("interrupted: some files may be missing or incomplete") };
            Err(error.hint("run the same command again to copy all of them"))
        }
        copied = copied => copied,
    }
}

async fn upload(session: &Session, source: &Path, target: &SharePath, account: &AccountPlace) -> Result<(), CliError> {
    let cannot = |error: std::io::Error| CliError::new(format!("cannot read {}", source.display())).cause(error);
    let metadata = fs::metadata(source).map_err(cannot)?;
    let share = open(session, target, account).await?;
    let exists = is_directory(&share.files, &share.name, &target.path).await?;
    // The name of '.' is that of the directory.
    let named = source.canonicalize().map_err(cannot)?;
    let remote = upload_path(if source.file_name().is_some() { source } else { &named }, target, exists)?;
    let files = match metadata.is_dir() {
        false => vec![FileCopy { local: source.to_owned(), remote: remote.clone(), size: metadata.len() }],
        true => local_files(source)?
            .into_iter()
            .map(|(local, path)| {
                let size = fs::metadata(&local).map_or(0, |metadata| metadata.len());
                FileCopy { local, remote: format!("{remote}/{path}"), size }
            })
            .collect(),
    };
    let own = metadata.is_dir().then_some(remote.as_str());
    for directory in directories(files.iter().map(|file| file.remote.as_str()), own) {
        share.files.create_directory(&share.name, &directory, &Default::default()).await?;
    }
    let settings = FileSettings::default();
    copy_all(&files, async |file, progress| {
        share.files.upload(&share.name, &file.remote, &file.local, &settings, CONNECTIONS_PER_FILE, progress).await?;
        Ok(())
    })
    .await?;
    report(&files, &format!("{}:{remote}", share.name));
    Ok(())
}

async fn download(
    session: &Session,
    source: &SharePath,
    target: &Path,
    account: &AccountPlace,
) -> Result<(), CliError> {
    let share = open(session, source, account).await?;
    let to = download_path(source, target, target.is_dir());
    let files = match is_directory(&share.files, &share.name, &source.path).await? {
        true => tree_copies(&share, source, &to).await?,
        false => {
            let found = share.files.file_properties(&share.name, &source.path).await.map_err(|error| {
                match error.is_not_found() {
                    true => CliError::new(format!("there is no {}", source.text()))
                        .hint(format!("see what there is with 'corro share ls {}'", source.share)),
                    false => CliError::from(error),
                }
            })?;
            vec![FileCopy { local: to.clone(), remote: source.path.clone(), size: found.length }]
        }
    };
    for file in &files {
        if let Some(parent) = file.local.parent() {
            fs::create_dir_all(parent).map_err(|error| {
                CliError::new(format!("cannot make the directory {}", parent.display())).cause(error)
            })?;
        }
    }
    copy_all(&files, async |file, progress| {
        let to = Destination { path: &file.local, append: false };
        let range = DownloadRange::default();
        share.files.download(&share.name, &file.remote, range, to, CONNECTIONS_PER_FILE, progress).await?;
        Ok(())
    })
    .await?;
    report(&files, &to.display().to_string());
    Ok(())
}

/// The files of a directory of the share, and where they go below `to`. A path that leads out of it is an error.
async fn tree_copies(share: &OpenShare, source: &SharePath, to: &Path) -> Result<Vec<FileCopy>, CliError> {
    let tree = read_tree(&share.files, &share.name, &source.path).await?;
    let prefix = if source.path.is_empty() { String::new() } else { format!("{}/", source.path) };
    let mut files = Vec::new();
    for file in tree.files {
        if let Some(text) = file.dead_link {
            note(format_args!("skipped {}: a link to {text}", file.path));
            continue;
        }
        let local = local_path(to, file.path.strip_prefix(&prefix).unwrap_or(&file.path))?;
        files.push(FileCopy { local, remote: file.path, size: file.size });
    }
    fs::create_dir_all(to)
        .map_err(|error| CliError::new(format!("cannot make the directory {}", to.display())).cause(error))?;
    Ok(files)
}

/// Copies all files with one progress bar. The first error ends the copy and says how many files were done.
async fn copy_all(
    files: &[FileCopy],
    copy: impl AsyncFn(&FileCopy, &(dyn Fn(u64, u64) + Sync)) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let total: u64 = files.iter().map(|file| file.size).sum();
    let (bar, bytes, done) = (TransferBar::new(true), AtomicU64::new(0), AtomicU64::new(0));
    let result = stream::iter(files)
        .map(async |file| {
            let before = AtomicU64::new(0);
            let progress = |now: u64, _: u64| {
                let added = now.saturating_sub(before.swap(now, Ordering::Relaxed));
                bar.update(bytes.fetch_add(added, Ordering::Relaxed) + added, total);
            };
            copy(file, &progress).await?;
            done.fetch_add(1, Ordering::Relaxed);
            Ok::<(), CliError>(())
        })
        .buffer_unordered(PARALLEL_FILES)
        .try_collect::<Vec<()>>()
        .await;
    match result {
        Ok(_) => bar.finish(),
        Err(error) => {
            bar.abandon();
            let count = format!("{} of {} files were copied before this", done.into_inner(), files.len());
            return Err(error.cause(count));
        }
    }
    Ok(())
}

fn report(files: &[FileCopy], target: &str) {
    let bytes = files.iter().map(|file| file.size).sum();
    note(format_args!("Copied {} ({}) to {target}", format_count(files.len() as i64, "file"), format_bytes(bytes)));
}

/// The directories of these paths and `own` with its parents, parents first.
fn directories<'a>(paths: impl Iterator<Item = &'a str>, own: Option<&str>) -> Vec<String> {
    let parents = |path: &str| path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect::<Vec<_>>();
    let mut directories: Vec<String> = paths.flat_map(parents).collect();
    directories.extend(own.into_iter().flat_map(|own| parents(&format!("{own}/"))));
    directories.sort_unstable();
    directories.dedup();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_created_before_their_directories() {
        assert_eq!(directories(["a/b/c.py", "a/d.py"].into_iter(), None), ["a", "a/b"]);
        assert_eq!(directories(std::iter::empty(), Some("x/y")), ["x", "x/y"], "also for an empty directory");
        assert!(directories(["c.py"].into_iter(), None).is_empty());
    }

    #[tokio::test]
    async fn the_first_error_says_how_many_files_were_copied() {
        let file = |name: &str| FileCopy { local: name.into(), remote: name.to_owned(), size: 1 };
        let files = [file("a"), file("b")];
        let result = copy_all(&files, async |file, progress| {
            progress(1, 1);
            if file.remote == "b" { Err(CliError::new("no space")) } else { Ok(()) }
        })
        .await;
        let error = result.expect_err("b fails");
        assert_eq!(
            (error.message.as_str(), &error.causes[..]),
            ("no space", &["1 of 2 files were copied before this".to_owned()][..])
        );
    }
}
