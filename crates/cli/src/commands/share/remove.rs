//! `corro share rm`: deletes a file of a share, or a directory with all that is in it after a confirmation.

use clap::Args;
use corro_client::ClientError;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::path::SharePath;
use super::tree::{is_directory, read_tree};
use super::{AccountPlace, OpenShare, open};
use crate::error::CliError;
use crate::output::units::format_count;
use crate::prompt;
use crate::session::{GlobalArgs, Session};
use crate::stdio::print;

#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// File or directory to delete
    #[arg(value_name = "SHARE:PATH")]
    path: String,
    /// Delete a directory with all that is in it
    #[arg(long, short = 'r')]
    recursive: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    account: AccountPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

const PARALLEL_FILES: usize = 8;

pub async fn run(args: RemoveArgs) -> Result<(), CliError> {
    let path = SharePath::parse(&args.path)?;
    if path.path.is_empty() {
        return Err(CliError::usage(format!("'{}' names the whole share", args.path)).hint(format!(
            "name a path as {0}:PATH; 'corro storage share delete -n {0} --account-name ACCOUNT' deletes the share",
            path.share
        )));
    }
    let session = Session::open(&args.global)?;
    let share = open(&session, &path, &args.account).await?;
    if !is_directory(&share.files, &share.name, &path.path).await? {
        return remove_file(&share, &path).await;
    }
    if !args.recursive {
        return Err(CliError::new(format!("{} is a directory", path.text()))
            .hint(format!("delete it with all that is in it with 'corro share rm {} --recursive'", args.path)));
    }
    let tree = read_tree(&share.files, &share.name, &path.path).await?;
    let count = format_count(tree.files.len() as i64, "file");
    prompt::confirm(args.yes, Some(&format!("This deletes {} with {count}.", path.text())))?;
    stream::iter(&tree.files)
        .map(|file| async { unless_gone(share.files.delete_file(&share.name, &file.path).await) })
        .buffer_unordered(PARALLEL_FILES)
        .try_collect::<()>()
        .await?;
    // Children before their parents.
    for directory in tree.directories.iter().rev() {
        unless_gone(share.files.delete_directory(&share.name, directory).await)?;
    }
    print(format_args!("Deleted {} with {count}", path.text()));
    Ok(())
}

async fn remove_file(share: &OpenShare, path: &SharePath) -> Result<(), CliError> {
    match share.files.delete_file(&share.name, &path.path).await {
        Ok(()) => {
            print(format_args!("Deleted {}", path.text()));
            Ok(())
        }
        Err(error) if error.is_not_found() => {
            Err(CliError { exit: 3, ..CliError::new(format!("there is no {}", path.text())) }
                .hint(format!("see what there is with 'corro share ls {}'", path.share)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Somebody else may have deleted it at the same time.
fn unless_gone(result: Result<(), ClientError>) -> Result<(), ClientError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}
