//! `corro storage file upload` and `download`: one file up or down, with a bar, and what Ctrl-C leaves. Used by `file`;
//! `batch` uses its arguments and its watch.

use std::path::{Path, PathBuf};

use clap::Args;
use corro_client::files::{ContentSettings, Destination, DownloadRange, FileSettings};
use corro_client::{ClientError, FileService};

use crate::commands::resource_ref::tags;
use crate::commands::storage::file::ShareArgs;
use crate::commands::storage::file_objects as objects;
use crate::failure::Failure;
use crate::progress::TransferBar;
use crate::session::Session;

/// What a shell reports for a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

#[derive(Args, Debug)]
pub struct UploadArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// File to upload
    #[arg(long, value_name = "FILE")]
    source: PathBuf,
    /// Directory or file on the share [default: the source's name in the root]
    #[arg(long, short = 'p', value_name = "PATH")]
    path: Option<String>,
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args, Debug)]
pub struct DownloadArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// File on the share
    #[arg(long, short = 'p', value_name = "PATH")]
    path: String,
    /// File or directory to write to [default: the file's name in the current directory]
    #[arg(long, value_name = "FILE")]
    dest: Option<PathBuf>,
    /// First byte to fetch
    #[arg(long, value_name = "BYTE")]
    start_range: Option<u64>,
    /// Last byte to fetch
    #[arg(long, value_name = "BYTE")]
    end_range: Option<u64>,
    /// As Python's open: wb replaces a file that is there, ab adds to it, xb fails
    #[arg(long, value_name = "MODE", default_value = "wb", value_parser = ["wb", "ab", "xb"])]
    open_mode: String,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Args, Debug)]
pub struct TransferArgs {
    /// Connections to use at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub max_connections: u16,
    /// Draw no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Check a digest of every piece that is sent or received
    #[arg(long)]
    pub validate_content: bool,
}

/// On each argument: set for the group it would hold for those that follow.
const CONTENT: &str = "Content Arguments";

/// What an upload says about its file.
#[derive(Args, Debug)]
pub struct AboutArgs {
    /// Names and values to keep with it: key=value ...
    #[arg(long, help_heading = CONTENT, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    content: ContentArgs,
}

/// How a file describes its content.
#[derive(Args, Debug)]
pub struct ContentArgs {
    /// MIME type [default: guessed from the name]
    #[arg(long, help_heading = CONTENT, value_name = "TYPE")]
    content_type: Option<String>,
    /// Content encoding, such as gzip
    #[arg(long, help_heading = CONTENT, value_name = "ENCODING")]
    content_encoding: Option<String>,
    /// Natural language of the content
    #[arg(long, help_heading = CONTENT, value_name = "LANGUAGE")]
    content_language: Option<String>,
    /// How programs should show it, such as attachment
    #[arg(long, help_heading = CONTENT, value_name = "TEXT")]
    content_disposition: Option<String>,
    /// How long it may be cached
    #[arg(long, help_heading = CONTENT, alias = "content-cache", value_name = "TEXT")]
    content_cache_control: Option<String>,
    /// MD5 digest of the content
    #[arg(long, help_heading = CONTENT, value_name = "BASE64")]
    content_md5: Option<String>,
}

impl ContentArgs {
    pub fn settings(self) -> ContentSettings {
        ContentSettings {
            content_type: self.content_type,
            encoding: self.content_encoding,
            language: self.content_language,
            disposition: self.content_disposition,
            cache_control: self.content_cache_control,
            md5: self.content_md5,
        }
    }
}

impl AboutArgs {
    pub fn settings(self) -> FileSettings {
        FileSettings { content: self.content.settings(), metadata: tags(&self.metadata) }
    }
}

pub async fn upload(session: &Session, args: UploadArgs) -> Result<(), Failure> {
    let path = remote_path(args.path.as_deref(), &args.source)?;
    if args.source.is_dir() {
        let (source, share) = (args.source.display(), &args.share.share_name);
        return Err(Failure::new(format!("{source} is a directory")).hint(format!(
            "upload the files in it with 'corro storage file upload-batch --source {source} --destination {share}'"
        )));
    }
    if !args.source.is_file() {
        return Err(Failure::new(format!("there is no file {} to upload", args.source.display()))
            .hint("give the path of a file on this machine with --source"));
    }
    let files = args.share.open(session).await?.validating(args.transfer.validate_content);
    let settings = args.about.settings();
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let connections = args.transfer.max_connections.into();
    let upload = files.upload(&args.share.share_name, &path, &args.source, &settings, connections, &progress);
    match watched(upload, &bar).await {
        Err(failure) if failure.exit == INTERRUPTED => {
            let message = format!("the upload was stopped: {path} on the share is incomplete");
            let hint = "upload it again, or delete it with 'corro storage file delete'";
            Err(Failure { exit: INTERRUPTED, ..Failure::new(message) }.hint(hint))
        }
        other => other.map(drop),
    }
}

pub async fn download(session: &Session, args: DownloadArgs) -> Result<(), Failure> {
    let destination = local_path(&args.path, args.dest.as_deref())?;
    if args.open_mode.starts_with('x') && destination.exists() {
        return Err(Failure::new(format!("{} exists already", destination.display())).hint("leave --open-mode out"));
    }
    let files = args.share.open(session).await?.validating(args.transfer.validate_content);
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let range = DownloadRange { start: args.start_range.unwrap_or(0), end: args.end_range };
    let connections = args.transfer.max_connections.into();
    let to = Destination { path: &destination, append: args.open_mode.starts_with('a') };
    let download = files.download(&args.share.share_name, &args.path, range, to, connections, &progress);
    let download = match watched(download, &bar).await {
        Ok(download) => download,
        Err(failure) => {
            let share = &args.share.share_name;
            let hint = format!(
                "download the files in it with 'corro storage file download-batch --source {share} --destination . \
                 --pattern \"{}/*\"'",
                args.path.trim_matches('/')
            );
            return Err(unless_directory(&files, (share, &args.path), failure, &hint).await);
        }
    };
    session.print_shaped(&objects::downloaded(&args.path, &download), None)
}

/// The failure of a command about a file; or, when a directory has its name, that.
pub async fn unless_directory(
    files: &FileService,
    (share, path): (&str, &str),
    failure: Failure,
    hint: &str,
) -> Failure {
    if failure.exit == INTERRUPTED || files.directory_properties(share, path).await.is_err() {
        return failure;
    }
    let message = format!("{} on the share {share} is a directory, not a file", path.trim_matches('/'));
    Failure { exit: failure.exit, ..Failure::new(message) }.hint(hint)
}

/// Sees a transfer to its end, or to Ctrl-C: then it is dropped, and a download takes its unfinished file along.
pub async fn watched<T>(
    transfer: impl Future<Output = Result<T, ClientError>>,
    bar: &TransferBar,
) -> Result<T, Failure> {
    let result = tokio::select! {
        // First, so that Ctrl-C is listened for before there is anything to tidy up.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => Err(Failure::silent(INTERRUPTED)),
        result = transfer => result.map_err(Failure::from),
    };
    match &result {
        Ok(_) => bar.finish(),
        Err(_) => bar.abandon(),
    }
    result
}

/// Where an upload goes: a path whose last part has no dot is a directory.
fn remote_path(path: Option<&str>, source: &Path) -> Result<String, Failure> {
    let name = source
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| Failure::new(format!("{} has no name that a share can hold", source.display())))?;
    let Some(path) = path.map(|path| path.trim_matches('/')).filter(|path| !path.is_empty()) else {
        return Ok(name.to_owned());
    };
    if file_name(path).contains('.') { Ok(path.to_owned()) } else { Ok(format!("{path}/{name}")) }
}

/// Where a download goes.
fn local_path(path: &str, destination: Option<&Path>) -> Result<PathBuf, Failure> {
    let name = file_name(path);
    if matches!(name, "" | "." | "..") {
        return Err(Failure::usage(format!("argument --path/-p: '{path}' names no file")));
    }
    Ok(match destination {
        None => PathBuf::from(name),
        Some(directory) if directory.is_dir() => directory.join(name),
        Some(directory) if directory.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            return Err(Failure::new(format!("there is no directory {}", directory.display()))
                .hint("make it first, or leave the last slash out to name a file"));
        }
        Some(file) => file.to_owned(),
    })
}

pub fn file_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_go_where_az_puts_them() {
        for (path, source, expected) in [
            (Some("cifar"), "cifar_cnn_distributed.py", "cifar/cifar_cnn_distributed.py"),
            (Some("cifar/"), "/tmp/a.py", "cifar/a.py"),
            (Some("cifar/b.py"), "a.py", "cifar/b.py"),
            (Some("v1.2/x"), "a.py", "v1.2/x/a.py"),
            (None, "dir/a.py", "a.py"),
        ] {
            assert_eq!(remote_path(path, Path::new(source)).expect("a name"), expected);
        }
        assert!(remote_path(None, Path::new("/")).is_err());
    }

    #[test]
    fn downloads_go_to_the_current_directory_a_file_or_a_directory() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = "cifar/saved_models/model.h5";
        assert_eq!(local_path(path, None).expect("a name"), Path::new("model.h5"));
        assert_eq!(local_path(path, Some(Path::new("x/y.h5"))).expect("a name"), Path::new("x/y.h5"));
        assert_eq!(local_path(path, Some(dir.path())).expect("a name"), dir.path().join("model.h5"));
        assert!(local_path("cifar/..", None).is_err());
        assert!(local_path(path, Some(&dir.path().join("none/"))).is_err());
    }
}
