//! `corro storage file download`: downloads one file with a progress bar. An interrupted download leaves no file.

use std::path::{Path, PathBuf};

use clap::Args;
use corro_client::files::{Destination, DownloadRange};

use crate::commands::storage::file_objects as objects;
use crate::commands::storage::share_args::ShareArgs;
use crate::commands::storage::transfer::{TransferArgs, directory_error_or, file_name, run_transfer};
use crate::error::CliError;
use crate::progress::TransferBar;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct DownloadArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// Path of the file on the share
    #[arg(long, short = 'p', value_name = "PATH")]
    path: String,
    /// Local file or directory to write to [default: the current directory]
    #[arg(long, value_name = "FILE")]
    dest: Option<PathBuf>,
    /// Offset of the first byte to download
    #[arg(long, value_name = "BYTE")]
    start_range: Option<u64>,
    /// Offset of the last byte to download
    #[arg(long, value_name = "BYTE")]
    end_range: Option<u64>,
    /// What to do if the local file exists: wb replaces it, ab appends to it, xb fails
    #[arg(long, value_name = "MODE", default_value = "wb", value_parser = ["wb", "ab", "xb"])]
    open_mode: String,
    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(session: &Session, args: DownloadArgs) -> Result<(), CliError> {
    let destination = local_path(&args.path, args.dest.as_deref())?;
    if args.open_mode.starts_with('x') && destination.exists() {
        return Err(CliError::new(format!("{} exists already", destination.display())).hint("leave --open-mode out"));
    }
    let files = args.share.open(session).await?.validating(args.transfer.validate_content);
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let range = DownloadRange { start: args.start_range.unwrap_or(0), end: args.end_range };
    let connections = args.transfer.max_connections.into();
    let to = Destination { path: &destination, append: args.open_mode.starts_with('a') };
    let download = files.download(&args.share.share_name, &args.path, range, to, connections, &progress);
    let download = match run_transfer(download, &bar).await {
        Ok(download) => download,
        Err(error) => {
            let share = &args.share.share_name;
            let hint = format!(
                "download the files in it with 'corro storage file download-batch --source {share} --destination . \
                 --pattern \"{}/*\"'",
                args.path.trim_matches('/')
            );
            return Err(directory_error_or(&files, (share, &args.path), error, &hint).await);
        }
    };
    session.print_shaped(&objects::downloaded(&args.path, &download), None)
}

/// Local path of a download: `--dest`, or the file's name in that directory or in the current one.
fn local_path(path: &str, destination: Option<&Path>) -> Result<PathBuf, CliError> {
    let name = file_name(path);
    if matches!(name, "" | "." | "..") {
        return Err(CliError::usage(format!("argument --path/-p: '{path}' is not the path of a file")));
    }
    Ok(match destination {
        None => PathBuf::from(name),
        Some(directory) if directory.is_dir() => directory.join(name),
        Some(directory) if directory.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            return Err(CliError::new(format!("there is no directory {}", directory.display()))
                .hint("make it first, or leave the last slash out to name a file"));
        }
        Some(file) => file.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_path_is_a_file_or_in_a_directory() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = "cifar/saved_models/model.h5";
        assert_eq!(local_path(path, None).expect("a name"), Path::new("model.h5"));
        assert_eq!(local_path(path, Some(Path::new("x/y.h5"))).expect("a name"), Path::new("x/y.h5"));
        assert_eq!(local_path(path, Some(dir.path())).expect("a name"), dir.path().join("model.h5"));
        assert!(local_path("cifar/..", None).is_err());
        assert!(local_path(path, Some(&dir.path().join("none/"))).is_err());
    }
}
