//! `corro storage file upload`: uploads one file with a progress bar.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::commands::storage::share_args::ShareArgs;
use crate::commands::storage::transfer::{FileSettingsArgs, INTERRUPTED, TransferArgs, file_name, run_transfer};
use crate::error::CliError;
use crate::progress::TransferBar;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct UploadArgs {
    #[command(flatten)]
    share: ShareArgs,
    /// Local file to upload
    #[arg(long, value_name = "FILE")]
    source: PathBuf,
    /// Directory or file on the share to upload to [default: the root of the share]
    #[arg(long, short = 'p', value_name = "PATH")]
    path: Option<String>,
    #[command(flatten)]
    settings: FileSettingsArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

pub async fn run(session: &Session, args: UploadArgs) -> Result<(), CliError> {
    let path = remote_path(args.path.as_deref(), &args.source)?;
    if args.source.is_dir() {
        let (source, share) = (args.source.display(), &args.share.share_name);
        return Err(CliError::new(format!("{source} is a directory")).hint(format!(
            "upload the files in it with 'corro storage file upload-batch --source {source} --destination {share}'"
        )));
    }
    if !args.source.is_file() {
        return Err(CliError::new(format!("there is no file {} to upload", args.source.display()))
            .hint("give the path of a file on this machine with --source"));
    }
    let files = args.share.open(session).await?.validating(args.transfer.validate_content);
    let settings = args.settings.into_settings();
    let bar = TransferBar::new(!args.transfer.no_progress);
    let progress = |done, total| bar.update(done, total);
    let connections = args.transfer.max_connections.into();
    let upload = files.upload(&args.share.share_name, &path, &args.source, &settings, connections, &progress);
    match run_transfer(upload, &bar).await {
        Err(error) if error.exit == INTERRUPTED => {
            let message = format!("the upload was stopped: {path} on the share is incomplete");
            let hint = "upload it again, or delete it with 'corro storage file delete'";
            Err(CliError { exit: INTERRUPTED, ..CliError::new(message) }.hint(hint))
        }
        other => other.map(drop),
    }
}

/// Path of an upload on the share. As in `az`, a `--path` whose last segment has no dot names a directory.
fn remote_path(path: Option<&str>, source: &Path) -> Result<String, CliError> {
    let name = source
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| CliError::new(format!("{} has a name that is not valid on a share", source.display())))?;
    let Some(path) = path.map(|path| path.trim_matches('/')).filter(|path| !path.is_empty()) else {
        return Ok(name.to_owned());
    };
    if file_name(path).contains('.') { Ok(path.to_owned()) } else { Ok(format!("{path}/{name}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remote_path_is_that_of_az() {
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
}
