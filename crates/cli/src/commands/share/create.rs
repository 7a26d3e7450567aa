//! `corro share create`: creates a share, and the group and the storage account if there are none.

use clap::Args;
use corro_model::arm::StorageAccount;
use corro_model::names::{NameKind, check_name};
use corro_model::ops::AccountsList;
use serde_json::json;

use super::AccountPlace;
use crate::commands::storage::auth;
use crate::commands::submit::names::DEFAULT_NAME;
use crate::commands::submit::resources;
use crate::defaults::{DefaultName, Defaults};
use crate::error::CliError;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Name of the share
    #[arg(value_name = "NAME")]
    name: String,
    /// Quota, in GiB [default: the size of the disk]
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..=102_400))]
    quota: Option<u32>,
    #[command(flatten)]
    account: AccountPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: CreateArgs) -> Result<(), CliError> {
    check_name(NameKind::Share, &args.name)?;
    let session = Session::open(&args.global)?;
    let account = account(&session, &args.account).await?;
    let files = auth::open_named(&session, &account, None).await?;
    let is_new = files.create_share(&args.name, args.quota, &Default::default()).await?;
    if args.global.is_output_chosen() {
        return session.print_value(&json!({"created": is_new, "account": account}));
    }
    if is_new {
        print(format_args!("Created share {} in storage account {account}", args.name));
    } else {
        print(format_args!("The share {} exists already in storage account {account}", args.name));
    }
    Ok(())
}

/// The account that options or defaults name, else the only one, else the one of submitted jobs, which is created if missing.
async fn account(session: &Session, place: &AccountPlace) -> Result<String, CliError> {
    let defaults = Defaults::load()?;
    let given = place.name();
    if let Some(name) = defaults.or_given(given.as_deref(), DefaultName::Account) {
        return Ok(name.to_owned());
    }
    let client = session.client()?;
    let accounts: Vec<StorageAccount> = client.list::<AccountsList, _>(&[], &[]).await?;
    if let [only] = &accounts[..] {
        return Ok(only.name.clone());
    }
    let group = defaults.or_given(None, DefaultName::Group).unwrap_or(DEFAULT_NAME);
    let created = resources::ensure_group(client, group).await?;
    if !created.is_empty() {
        note(format_args!("Created {}", created.join(", ")));
    }
    resources::ensure_account(client, group, None).await
}
