//! `corro fetch`: downloads what a submitted job wrote to its directory, but not the files that were sent with it. Running it again downloads only what
//! is new. Nothing outside the target directory is written.

use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use corro_client::files::{Destination as LocalFile, DownloadRange, FileProperties, WalkedFile};
use corro_client::{Credential, FileService};
use corro_model::Timestamp;
use corro_model::batchai::Job;
use corro_model::ops::JobsGet;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::commands::storage::auth::find_account_key;
use crate::commands::storage::batch::paths::local_path;
use crate::error::CliError;
use crate::output::units::format_bytes;
use crate::progress::TransferBar;
use crate::project_upload::job_directory::{JobDirectory, OWN_DIRECTORY, SENT_FILES, SentFiles};
use crate::resource::short_names::JobNameArgs;
use crate::session::{GlobalArgs, Session};
use crate::stdio::note;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  corro fetch train-1\n  corro fetch train-1 --to results --logs")]
pub struct FetchArgs {
    #[command(flatten)]
    job: JobNameArgs,
    /// Directory to download to. Created if it does not exist [default: a directory with the job's name]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Download the job's logs too, to the directory .corro
    #[arg(long)]
    logs: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

const PARALLEL_FILES: usize = 8;
const CONNECTIONS_PER_FILE: usize = 2;
/// Keeps downloaded files out of Git and out of later submissions of the project.
const GITIGNORE: &str = "*\n";

pub async fn run(args: FetchArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let target = args.job.find(&session).await?;
    let job = session.client()?.get::<JobsGet>(&target.values()).await.map_err(|error| target.show_error(error))?;
    fetch(&session, &job, args.to.as_deref(), args.logs).await
}

/// Downloads the results of a job to `to`, or to a directory with the job's name.
pub async fn fetch(session: &Session, job: &Job, to: Option<&Path>, with_logs: bool) -> Result<(), CliError> {
    let Some(directory) = JobDirectory::of(&job.properties.spec) else {
        return Err(CliError::new(format!(
            "the job {} was not made by 'corro submit', so it has no directory of its own",
            job.name
        ))
        .hint("list its output with 'corro batchai job file list', and copy files of a share with 'corro share cp'"));
    };
    let to = to.map_or_else(|| PathBuf::from(&job.name), Path::to_owned);
    let client = session.client()?;
    let key = find_account_key(client, &directory.account).await?;
    let endpoint = format!("{}/{}", client.server(), directory.account);
    let files = FileService::new(&endpoint, &directory.account, Credential::Key(key))?.trusting(&session.trust()?)?;
    let source = Source { files, created: job.properties.provisioning.creation_time, directory };
    // A job whose list is gone is fetched as a whole.
    let sent = read_sent_files(&source.files, &source.directory).await?.unwrap_or_default();
    let candidates = source.candidates(&sent, with_logs).await?;
    let results: Vec<ResultFile> = stream::iter(candidates)
        .map(|path| source.inspect(path, &sent))
        .buffer_unordered(PARALLEL_FILES)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    if results.is_empty() {
        note(format_args!("The job {} wrote no files to its directory.", job.name));
        return Ok(());
    }
    prepare(&to)?;
    let missing: Vec<(&ResultFile, PathBuf)> = results
        .iter()
        .map(|found| Ok((found, local_path(&to, &found.path)?)))
        .filter(|file| file.as_ref().map_or(true, |(found, local)| !found.is_at(local)))
        .collect::<Result<_, CliError>>()?;
    let bytes: u64 = missing.iter().map(|(found, _)| found.size).sum();
    source.download(&missing, bytes).await?;
    let present = match results.len() - missing.len() {
        0 => String::new(),
        n => format!(", {n} unchanged"),
    };
    let noun = if missing.len() == 1 { "file" } else { "files" };
    note(format_args!("Fetched {} {noun} to {} ({}{present})", missing.len(), to.display(), format_bytes(bytes)));
    Ok(())
}

/// A job's directory on a share.
struct Source {
    files: FileService,
    directory: JobDirectory,
    /// Creation time of the job: all its files were sent before.
    created: Timestamp,
}

/// A file that the job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResultFile {
    /// Path below the job's directory.
    path: String,
    size: u64,
    modified: SystemTime,
}

impl ResultFile {
    /// Whether an earlier run downloaded this very version.
    fn is_at(&self, local: &Path) -> bool {
        fs::metadata(local).is_ok_and(|metadata| {
            metadata.is_file()
                && metadata.len() == self.size
                && metadata.modified().is_ok_and(|time| time == self.modified)
        })
    }
}

impl Source {
    /// Paths that may be results.
    async fn candidates(&self, sent: &SentFiles, with_logs: bool) -> Result<Vec<String>, CliError> {
        let walked = self.files.walk(&self.directory.share, &self.directory.path).await?;
        let prefix = format!("{}/", self.directory.path);
        let below = |file: WalkedFile| {
            let path = file.path.strip_prefix(&prefix)?.to_owned();
            let is_own = path.starts_with(&format!("{OWN_DIRECTORY}/"));
            let is_log = path.starts_with(&format!("{OWN_DIRECTORY}/logs/"));
            if is_own && !(is_log && with_logs) {
                return None;
            }
            match file.link {
                Some(link) if !link.leads_to_file => {
                    if !sent.files.contains_key(&path) {
                        note(format_args!("skipped {path}: a link to {}", link.text));
                    }
                    None
                }
                _ => Some(path),
            }
        };
        Ok(walked.into_iter().filter_map(below).collect())
    }

    /// Looks at a file; `None` if it is one that was sent and not changed, or is gone by now.
    async fn inspect(&self, path: String, sent: &SentFiles) -> Result<Option<ResultFile>, CliError> {
        let full = format!("{}/{path}", self.directory.path);
        let properties = match self.files.file_properties(&self.directory.share, &full).await {
            Ok(properties) => properties,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(is_result(&properties, sent.files.get(&path).copied(), self.created).then(|| ResultFile {
            path,
            size: properties.length,
            modified: modified_time(&properties),
        }))
    }

    async fn download(&self, missing: &[(&ResultFile, PathBuf)], bytes: u64) -> Result<(), CliError> {
        let bar = TransferBar::new(true);
        let done = AtomicU64::new(0);
        let downloaded = stream::iter(missing)
            .map(async |(found, local)| {
                self.download_file(found, local).await?;
                bar.update(done.fetch_add(found.size, Ordering::Relaxed) + found.size, bytes);
                Ok::<(), CliError>(())
            })
            .buffer_unordered(PARALLEL_FILES)
            .try_collect::<Vec<()>>()
            .await;
        bar.abandon();
        downloaded.map(drop)
    }

    async fn download_file(&self, found: &ResultFile, local: &Path) -> Result<(), CliError> {
        let cannot = |error: std::io::Error| CliError::new(format!("cannot write {}", local.display())).cause(error);
        if let Some(parent) = local.parent() {
            fs::create_dir_all(parent).map_err(cannot)?;
        }
        let full = format!("{}/{}", self.directory.path, found.path);
        let to = LocalFile { path: local, append: false };
        let range = DownloadRange::default();
        self.files.download(&self.directory.share, &full, range, to, CONNECTIONS_PER_FILE, &|_, _| ()).await?;
        // By size and time a later run sees that it has this version.
        let file = File::options().write(true).open(local).map_err(cannot)?;
        file.set_times(FileTimes::new().set_modified(found.modified)).map_err(cannot)
    }
}

/// The list of the files that were sent with a job; `None` if it is gone.
pub async fn read_sent_files(files: &FileService, directory: &JobDirectory) -> Result<Option<SentFiles>, CliError> {
    let dir = tempfile::tempdir().map_err(|error| CliError::new("cannot write a temporary file").cause(error))?;
    let local = dir.path().join(SENT_FILES);
    let to = LocalFile { path: &local, append: false };
    let path = directory.sent_files_path();
    match files.download(&directory.share, &path, DownloadRange::default(), to, 1, &|_, _| ()).await {
        Ok(_) => {
            let text = fs::read(&local).map_err(|error| CliError::new("cannot read a temporary file").cause(error))?;
            let list = serde_json::from_slice(&text);
            list.map(Some).map_err(|error| CliError::new(format!("{path} is damaged")).cause(error))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a file is a result: it was not sent, or it is not as it was sent.
fn is_result(properties: &FileProperties, sent_size: Option<u64>, created: Timestamp) -> bool {
    match sent_size {
        None => true,
        Some(size) => {
            size != properties.length || properties.properties.last_modified.is_some_and(|time| time > created)
        }
    }
}

fn modified_time(properties: &FileProperties) -> SystemTime {
    let time = properties.properties.last_modified;
    let seconds = time.map_or(0, |time| u64::try_from(time.millis() / 1000).unwrap_or(0));
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Creates the target directory, with a file that keeps it out of Git and of later submissions.
fn prepare(to: &Path) -> Result<(), CliError> {
    let cannot = |error: std::io::Error| CliError::new(format!("cannot write to {}", to.display())).cause(error);
    let is_new = !to.exists();
    fs::create_dir_all(to).map_err(cannot)?;
    if is_new {
        fs::write(to.join(".gitignore"), GITIGNORE).map_err(cannot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_what_was_not_sent_or_has_changed() {
        let created = Timestamp::parse("2026-01-01T10:00:00Z").expect("a time");
        let check = |size: u64, modified: &str, sent: Option<u64>, expected: bool| {
            let mut properties = FileProperties { length: size, ..FileProperties::default() };
            properties.properties.last_modified = Timestamp::parse(modified);
            assert_eq!(is_result(&properties, sent, created), expected, "{size} {modified} {sent:?}");
        };
        check(5, "2026-01-01T09:00:00Z", None, true);
        check(5, "2026-01-01T09:00:00Z", Some(5), false);
        check(6, "2026-01-01T09:00:00Z", Some(5), true);
        check(5, "2026-01-01T10:00:01Z", Some(5), true);
    }

    #[test]
    fn a_new_target_is_ignored_by_git_and_an_old_one_is_left_alone() {
        let dir = tempfile::tempdir().expect("directory");
        let new = dir.path().join("a/b");
        prepare(&new).expect("prepared");
        assert_eq!(fs::read_to_string(new.join(".gitignore")).expect("file"), "*\n");
        prepare(dir.path()).expect("prepared");
        assert!(!dir.path().join(".gitignore").exists());
    }
}
