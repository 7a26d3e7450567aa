//! `corro share`: the short commands for file shares. A path on a share is written `SHARE:PATH`. `corro storage` has all operations of the service.

mod copy;
mod create;
mod list;
mod ls;
mod path;
mod remove;
mod tree;

use clap::{Args, Subcommand};
use corro_client::FileService;

use crate::commands::storage::auth;
use crate::defaults::Defaults;
use crate::error::CliError;
use crate::resource::lookup;
use crate::session::{Session, setting};
use path::SharePath;

#[derive(Args, Debug)]
pub struct ShareArgs {
    #[command(subcommand)]
    command: ShareCommand,
}

#[derive(Subcommand, Debug)]
enum ShareCommand {
    /// List the shares of all storage accounts
    #[command(after_help = "Example:\n  corro share list")]
    List(list::ListArgs),
    /// Create a share
    ///
    /// It is made in the only storage account there is, or in the one of 'corro submit', which is created if there is none.
    #[command(after_help = "Example:\n  corro share create data")]
    Create(create::CreateArgs),
    /// List a directory of a share
    #[command(after_help = "Examples:\n  corro share ls data\n  corro share ls data:cifar/train")]
    Ls(ls::LsArgs),
    /// Copy files and directories to or from a share
    ///
    /// One of the two is a path on this machine, the other is SHARE:PATH. A directory is copied with all that is in it. If the target is a
    /// directory, or ends with a slash, the copy gets the name of the source in it.
    #[command(
        after_help = "Examples:\n  corro share cp cifar data:            # the directory data:cifar\n  corro share cp train.csv data:sets/   # the file data:sets/train.csv\n  corro share cp data:cifar/model.pt .\n  corro share cp data:cifar results"
    )]
    Cp(copy::CopyArgs),
    /// Delete files of a share, or a directory with --recursive
    #[command(after_help = "Examples:\n  corro share rm data:cifar/model.pt\n  corro share rm data:cifar --recursive")]
    Rm(remove::RemoveArgs),
}

/// The storage account of a share.
#[derive(Args, Clone, Debug, Default)]
pub struct AccountPlace {
    /// Storage account of the share [default: looked up]
    #[arg(long, value_name = "ACCOUNT", help_heading = "Names")]
    account_name: Option<String>,
}

impl AccountPlace {
    /// The account of the command line or of the storage settings, which are those of `corro storage`.
    fn name(&self) -> Option<String> {
        self.account_name.clone().or_else(|| setting("storage", "account"))
    }
}

pub async fn run(args: ShareArgs) -> Result<(), CliError> {
    match args.command {
        ShareCommand::List(args) => list::run(args).await,
        ShareCommand::Create(args) => create::run(args).await,
        ShareCommand::Ls(args) => ls::run(args).await,
        ShareCommand::Cp(args) => copy::run(args).await,
        ShareCommand::Rm(args) => remove::run(args).await,
    }
}

/// A share that was looked up.
struct OpenShare {
    files: FileService,
    name: String,
}

/// Looks up the share of a path, and opens its account.
async fn open(session: &Session, path: &SharePath, place: &AccountPlace) -> Result<OpenShare, CliError> {
    let account = path.account.clone().or_else(|| place.name());
    let defaults = Defaults::load()?;
    let target = lookup::find_share(session.client()?, &defaults, Some(&path.share), account.as_deref()).await?;
    let files = auth::open_named(session, target.name("account"), None).await?;
    Ok(OpenShare { files, name: target.name("share").to_owned() })
}
