//! `corro storage share`.

use clap::{Args, Subcommand};
use corro_model::names::{NameOf, check_name};
use serde_json::json;

use super::storage_login::{self, AccountArgs};
use super::target::tags;
use crate::failure::Failure;
use crate::output::{Shape, TableKind};
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ShareCommand {
    /// Make a file share
    #[command(after_help = "Example:\n  corro storage share create --name myshare --account-name mystorageaccount")]
    Create(CreateArgs),
    /// List the shares of an account
    List(ListArgs),
    /// Delete a share and its files
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Name of the share
    #[arg(long, short = 'n', value_name = "SHARE")]
    name: String,
    /// Size to report, in GiB
    #[arg(long, value_name = "GIB")]
    quota: Option<u32>,
    /// Fail when the share is there already
    #[arg(long)]
    fail_on_exist: bool,
    /// Names and values to send with it: key=value ...
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only shares whose names begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    /// Name of the share
    #[arg(long, short = 'n', value_name = "SHARE")]
    name: String,
    /// Fail when there is no such share
    #[arg(long)]
    fail_not_exist: bool,
    #[command(flatten)]
    account: AccountArgs,
}

pub async fn run(session: &Session, command: ShareCommand) -> Result<(), Failure> {
    match command {
        ShareCommand::Create(args) => {
            check_name(NameOf::Share, &args.name)?;
            let files = storage_login::open(session, &args.account).await?;
            let created = files.create_share(&args.name, args.quota, &tags(&args.metadata)).await?;
            if !created && args.fail_on_exist {
                return Err(Failure::new(format!("The share \"{}\" already exists.", args.name)));
            }
            session.print_value(&json!({ "created": created }))
        }
        ShareCommand::List(args) => list(session, args).await,
        ShareCommand::Delete(args) => {
            let files = storage_login::open(session, &args.account).await?;
            let deleted = match files.delete_share(&args.name).await {
                Ok(()) => true,
                Err(error) if error.is_not_found() && !args.fail_not_exist => false,
                Err(error) => return Err(error.into()),
            };
            session.print_value(&json!({ "deleted": deleted }))
        }
    }
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let files = storage_login::open(session, &args.account).await?;
    let prefix = args.prefix.unwrap_or_default();
    let shares: Vec<_> = files
        .list_shares()
        .await?
        .into_iter()
        .filter(|share| share.name.starts_with(&prefix))
        .map(|share| {
            json!({"name": share.name, "properties": {
                "etag": share.etag, "lastModified": share.last_modified, "quota": share.quota_gib
            }})
        })
        .collect();
    session.print(Shape::Share, Some(TableKind::Share), &shares)
}
