//! `upload-batch`, `download-batch` and `delete-batch` of `corro storage file` and `blob`. Files are transferred one after the other, each with
//! `--max-connections` connections; an error or Ctrl-C reports the progress. Symbolic links are not followed into directories: one to a file of the
//! share is downloaded as that file, others are skipped, and a deletion deletes the link.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use corro_client::FileService;
use corro_client::files::{BlobEntry, BlobFilter, Destination, DownloadRange, WalkedFile, guess_content_type};
use serde_json::{Value, json};

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::pattern::matches;
use crate::commands::storage::transfer::{FileSettingsArgs, INTERRUPTED, TransferArgs, run_transfer};
use crate::error::CliError;
use crate::progress::TransferBar;
use crate::session::Session;
use crate::stdio::note;

pub mod paths;
use paths::{ShareRef, local_files, local_path};

/// Kind of the remote tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    Share,
    Container,
}

#[derive(Args, Debug)]
pub struct UploadBatchArgs {
    /// Local directory to upload
    #[arg(long, short = 's', value_name = "DIRECTORY")]
    source: PathBuf,
    /// Share or container to upload to: its name or URL
    #[arg(long, short = 'd', value_name = "SHARE")]
    destination: String,
    /// Directory in the share or container to upload to. Created if it does not exist [default: the root]
    #[arg(long, value_name = "PATH")]
    destination_path: Option<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    settings: FileSettingsArgs,
    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DownloadBatchArgs {
    /// Share or container to download from: its name or URL. SHARE/DIRECTORY downloads one directory
    #[arg(long, short = 's', value_name = "SHARE")]
    source: String,
    /// Local directory to download to. It must exist
    #[arg(long, short = 'd', value_name = "DIRECTORY")]
    destination: PathBuf,
    /// Use this snapshot of the share, instead of its current content. Containers have no snapshots
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DeleteBatchArgs {
    /// Share or container to delete from: its name or URL. SHARE/DIRECTORY deletes from one directory
    #[arg(long, short = 's', value_name = "SHARE")]
    source: String,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
struct SelectionArgs {
    /// Only files whose paths match this pattern, such as '*.py', 'cifar/*' or 'part-[0-9]?'
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Print what would be done, but do not do it
    #[arg(long)]
    dryrun: bool,
}

impl SelectionArgs {
    fn matches(&self, path: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| matches(pattern.trim_start_matches('/'), path))
    }

    fn pattern_text(&self) -> &str {
        self.pattern.as_deref().unwrap_or("None")
    }
}

pub async fn upload(session: &Session, args: UploadBatchArgs, tree: Tree) -> Result<(), CliError> {
    let to = ShareRef::parse("--destination", &args.destination)?;
    if !to.directory.is_empty() {
        return Err(CliError::usage(
            "argument --destination/-d: give a share, and the directory with --destination-path",
        ));
    }
    let sources: Vec<_> =
        local_files(&args.source)?.into_iter().filter(|(_, path)| args.selection.matches(path)).collect();
    let files = open(session, &args.account, &to, tree).await?.validating(args.transfer.validate_content);
    let base = args.destination_path.as_deref().unwrap_or_default().trim_matches('/').to_owned();
    let target = |path: &str| if base.is_empty() { path.to_owned() } else { format!("{base}/{path}") };
    let settings = args.settings.into_settings();
    if args.selection.dryrun {
        let kind =
            |path: &str| settings.content.content_type.as_deref().or(guess_content_type(path)).map(str::to_owned);
        let shown = sources.iter().map(|(_, path)| {
            let url = files.url(&to.share, &target(path));
            match tree {
                Tree::Share => json!({"File": url, "Type": kind(path)}),
                Tree::Container => json!({"Blob": url, "Last Modified": null, "Type": kind(path), "eTag": null}),
            }
        });
        return session.print_value(&shown.collect());
    }
    let mut made = vec![String::new()];
    let mut urls = Vec::new();
    for (source, path) in &sources {
        let path = target(path);
        let done = |failure| progress_error(failure, "uploaded", urls.len(), sources.len(), Some(&path));
        if tree == Tree::Share {
            ensure_directories(&files, &to.share, &path, &mut made).await.map_err(done)?;
        }
        note(format_args!("uploading {}", source.display()));
        let bar = TransferBar::new(!args.transfer.no_progress);
        let progress = |done, total| bar.update(done, total);
        let connections = args.transfer.max_connections.into();
        let url = files.url(&to.share, &path);
        match tree {
            Tree::Share => {
                let upload = files.upload(&to.share, &path, source, &settings, connections, &progress);
                run_transfer(upload, &bar).await.map_err(done)?;
                urls.push(Value::from(url));
            }
            Tree::Container => {
                let upload = files.upload_blob((&to.share, &path), source, &settings, connections, &progress);
                run_transfer(upload, &bar).await.map_err(done)?;
                let made = files.file_properties(&to.share, &path).await?;
                let shown = crate::commands::storage::blob_objects::uploaded(&made);
                urls.push(
                    json!({"Blob": url, "Last Modified": shown["lastModified"], "Type": made.content.content_type,
                    "eTag": shown["etag"]}),
                );
            }
        }
    }
    session.print_value(&urls.into())
}

pub async fn download(session: &Session, args: DownloadBatchArgs, tree: Tree) -> Result<(), CliError> {
    let from = ShareRef::parse("--source", &args.source)?;
    if !args.destination.is_dir() {
        return Err(CliError::usage(format!(
            "incorrect usage: destination must be an existing directory: {}",
            args.destination.display()
        ))
        .hint(format!("make it with 'mkdir -p {}'", args.destination.display())));
    }
    let files = open(session, &args.account, &from, tree).await?.at_snapshot(args.snapshot.clone());
    let files = files.validating(args.transfer.validate_content);
    let chosen = downloadable(select_files(&files, &from, &args.selection, tree).await?);
    // Checked before the first download: one path that leaves the directory rejects the whole batch.
    let places: Vec<PathBuf> =
        chosen.iter().map(|path| local_path(&args.destination, path)).collect::<Result<_, _>>()?;
    if args.selection.dryrun {
        note("download files from file share");
        note(format_args!("    account {}", files.account()));
        note(format_args!("      share {}", from.share));
        note(format_args!("destination {}", args.destination.display()));
        note(format_args!("    pattern {}", args.selection.pattern_text()));
        note(format_args!("      total {}", chosen.len()));
        note(" operations");
        chosen.iter().zip(&places).for_each(|(path, to)| note(format_args!("  - {path} => {}", to.display())));
        return session.print_value(&json!([]));
    }
    let mut urls = Vec::new();
    for (path, place) in chosen.iter().zip(&places) {
        let done = |failure| progress_error(failure, "downloaded", urls.len(), chosen.len(), None);
        create_parent(place).map_err(done)?;
        let bar = TransferBar::new(!args.transfer.no_progress);
        let progress = |done, total| bar.update(done, total);
        let to = Destination { path: place, append: false };
        let connections = args.transfer.max_connections.into();
        let download = files.download(&from.share, path, DownloadRange::default(), to, connections, &progress);
        run_transfer(download, &bar).await.map_err(done)?;
        urls.push(Value::from(match tree {
            Tree::Share => files.url(&from.share, path),
            Tree::Container => path.clone(),
        }));
    }
    session.print_value(&urls.into())
}

pub async fn delete(session: &Session, args: DeleteBatchArgs, tree: Tree) -> Result<(), CliError> {
    let from = ShareRef::parse("--source", &args.source)?;
    let files = open(session, &args.account, &from, tree).await?;
    let chosen = select_files(&files, &from, &args.selection, tree).await?;
    let chosen: Vec<String> = chosen.into_iter().map(|found| found.path).collect();
    if args.selection.dryrun {
        note(format_args!("delete files from {}", from.share));
        note(format_args!("    pattern {}", args.selection.pattern_text()));
        note(format_args!("      share {}", from.share));
        note(format_args!("      total {}", chosen.len()));
        note(" operations");
        chosen.iter().for_each(|path| note(format_args!("  - {path}")));
        return session.print_value(&json!([]));
    }
    let bar = TransferBar::new(false);
    for (done, path) in chosen.iter().enumerate() {
        let deleted = run_transfer(files.delete_file(&from.share, path), &bar).await;
        deleted.map_err(|failure| progress_error(failure, "deleted", done, chosen.len(), None))?;
    }
    // `az` prints the results of the SDK's calls, which are null.
    session.print_value(&vec![Value::Null; chosen.len()].into())
}

async fn open(session: &Session, account: &AccountArgs, of: &ShareRef, tree: Tree) -> Result<FileService, CliError> {
    match tree {
        Tree::Share => auth::open_with_default(session, account, of.account.as_deref()).await,
        Tree::Container => auth::open_blobs(session, account, of.account.as_deref()).await,
    }
}

/// Files and links that match the pattern.
async fn select_files(
    files: &FileService,
    from: &ShareRef,
    selection: &SelectionArgs,
    tree: Tree,
) -> Result<Vec<WalkedFile>, CliError> {
    let found: Vec<WalkedFile> = match tree {
        Tree::Share => files.walk(&from.share, &from.directory).await?,
        Tree::Container => {
            let prefix = Some(&from.directory).filter(|directory| !directory.is_empty());
            let filter =
                BlobFilter { prefix: prefix.map(|directory| format!("{directory}/")), ..BlobFilter::default() };
            let blobs = files.list_blobs(&from.share, &filter).await?.into_iter();
            blobs
                .map(|entry| match entry {
                    BlobEntry::Blob(blob) => WalkedFile { path: blob.name, link: blob.link },
                    BlobEntry::Prefix(path) => WalkedFile { path, link: None },
                })
                .collect()
        }
    };
    Ok(found.into_iter().filter(|found| selection.matches(&found.path)).collect())
}

/// Paths that can be downloaded. A link that leads to no file of the share is skipped with a note.
fn downloadable(found: Vec<WalkedFile>) -> Vec<String> {
    let is_readable = |found: &WalkedFile| match &found.link {
        Some(link) if !link.leads_to_file => {
            note(format_args!("skipped {}: a link to {}", found.path, link.text));
            false
        }
        _ => true,
    };
    found.into_iter().filter(is_readable).map(|found| found.path).collect()
}

/// Creates the parent directories of `path` that were not created yet.
async fn ensure_directories(
    files: &FileService,
    share: &str,
    path: &str,
    made: &mut Vec<String>,
) -> Result<(), CliError> {
    for (end, _) in path.match_indices('/') {
        let directory = &path[..end];
        if !made.iter().any(|known| known == directory) {
            files.create_directory(share, directory, &Default::default()).await?;
            made.push(directory.to_owned());
        }
    }
    Ok(())
}

fn create_parent(place: &Path) -> Result<(), CliError> {
    let Some(parent) = place.parent() else { return Ok(()) };
    fs::create_dir_all(parent)
        .map_err(|error| CliError::new(format!("cannot make the directory {}: {error}", parent.display())))
}

/// Adds to an error how many files were done before it.
fn progress_error(failure: CliError, doing: &str, done: usize, total: usize, open: Option<&str>) -> CliError {
    let count = format!("{done} of {total} files were {doing} before this");
    if failure.exit != INTERRUPTED {
        return CliError { causes: [failure.causes, vec![count]].concat(), ..failure };
    }
    let incomplete = open.map(|path| format!("; {path} on the share may be incomplete")).unwrap_or_default();
    let stopped = CliError::new(format!("stopped: {done} of {total} files were {doing}{incomplete}"));
    CliError { exit: INTERRUPTED, ..stopped }.hint("run the same command again to do all of it")
}
