//! `corro storage account`.

use clap::{Args, Subcommand};
use corro_model::arm::{AccountCreateParameters, AccountCreateProperties, AccountSku, StorageAccount};
use corro_model::names::{NameOf, check_name};
use corro_model::ops::{
    AccountsCreate, AccountsDelete, AccountsGet, AccountsList, AccountsListByGroup, AccountsListKeys, GroupsGet, NoBody,
};

use super::target::{GROUP_FLAG, NAME_FLAG, Name, Target, tags};
use crate::failure::Failure;
use crate::output::Shape;
use crate::progress::Spinner;
use crate::prompt;
use crate::session::{Session, setting};

#[derive(Subcommand, Debug)]
pub enum AccountCommand {
    /// Make a storage account
    #[command(
        after_help = "Example:\n  corro storage account create -g batchai.horovod -n mystorageaccount \\\n      -l eastus --sku Standard_LRS"
    )]
    Create(Box<CreateArgs>),
    /// Show a storage account
    Show(NameArgs),
    /// List the storage accounts of a group, or all of them
    List(ListArgs),
    /// Delete a storage account, its shares and their files
    Delete(DeleteArgs),
    /// Keys of a storage account
    #[command(subcommand)]
    Keys(KeysCommand),
}

#[derive(Subcommand, Debug)]
pub enum KeysCommand {
    /// List the two keys of a storage account
    List(NameArgs),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the resource group [default: AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the storage account
    #[arg(long, short = 'n', visible_alias = "account-name", value_name = "ACCOUNT")]
    name: Option<String>,
}

impl NameArgs {
    fn names(&self) -> [Name<'_>; 2] {
        [("group", GROUP_FLAG, self.resource_group.as_deref()), ("account", NAME_FLAG, self.name.as_deref())]
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Region to report [default: the resource group's]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
    /// Kind of redundancy; accepted and reported
    #[arg(long, value_name = "SKU", default_value = "Standard_RAGRS", ignore_case = true,
          value_parser = ["Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"])]
    sku: String,
    /// Kind of account; accepted and reported
    #[arg(long, value_name = "KIND", default_value = "Storage", ignore_case = true,
          value_parser = ["Storage", "StorageV2", "BlobStorage"])]
    kind: String,
    /// Labels: key=value ...
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Report that only https is taken
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    https_only: bool,
    #[command(flatten)]
    _without_effect: WithoutEffect,
}

/// What `az` takes and Corro has no use for: there is one tier, one network and one way to encrypt.
#[derive(Args, Debug)]
struct WithoutEffect {
    #[arg(long, hide = true, ignore_case = true, value_parser = ["Cool", "Hot"])]
    access_tier: Option<String>,
    #[arg(long, hide = true, num_args = 1.., ignore_case = true, value_parser = ["blob", "file", "queue", "table"])]
    encryption_services: Vec<String>,
    #[arg(long, hide = true)]
    custom_domain: Option<String>,
    #[arg(long, hide = true)]
    assign_identity: bool,
    #[arg(long, hide = true, num_args = 1.., ignore_case = true,
          value_parser = ["None", "Logging", "Metrics", "AzureServices"])]
    bypass: Vec<String>,
    #[arg(long, hide = true, ignore_case = true, value_parser = ["Allow", "Deny"])]
    default_action: Option<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only the accounts of this resource group
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
}

pub async fn run(session: &Session, command: AccountCommand) -> Result<(), Failure> {
    match command {
        AccountCommand::Create(args) => create(session, *args).await,
        AccountCommand::Show(args) => {
            let target = Target::named(&args.names())?;
            let account = session.client()?.get::<AccountsGet>(&target.values()).await.map_err(Failure::of_show)?;
            session.print(Shape::StorageAccount, None, &account)
        }
        AccountCommand::List(args) => list(session, args).await,
        AccountCommand::Delete(args) => {
            let target = Target::named(&args.account.names())?;
            prompt::confirm(args.yes)?;
            session.client()?.run::<AccountsDelete>(&target.values(), &NoBody {}).await?;
            Ok(())
        }
        AccountCommand::Keys(KeysCommand::List(args)) => {
            let target = Target::named(&args.names())?;
            let keys = session.client()?.call::<AccountsListKeys>(&target.values(), &[], &NoBody {}).await?;
            session.print(Shape::StorageAccountKey, None, &keys.keys)
        }
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), Failure> {
    let target = Target::named(&args.account.names())?;
    check_name(NameOf::StorageAccount, target.name("account"))?;
    let location = match args.location.or_else(|| setting("defaults", "location")) {
        Some(location) => location,
        None => session.client()?.get::<GroupsGet>(&[("group", target.name("group"))]).await?.location,
    };
    let parameters = AccountCreateParameters {
        sku: AccountSku { name: args.sku, tier: None },
        kind: args.kind,
        location,
        tags: (!args.tags.is_empty()).then(|| tags(&args.tags)),
        properties: Some(AccountCreateProperties { supports_https_traffic_only: args.https_only }),
    };
    let spinner = Spinner::start("Creating");
    let account = session.client()?.run::<AccountsCreate>(&target.values(), &parameters).await?;
    drop(spinner);
    session.print(Shape::StorageAccount, None, &account)
}

async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let accounts: Vec<StorageAccount> = match args.resource_group.or_else(|| setting("defaults", "group")) {
        Some(group) => session.client()?.list::<AccountsListByGroup, _>(&[("group", &group)], &[]).await?,
        None => session.client()?.list::<AccountsList, _>(&[], &[]).await?,
    };
    session.print(Shape::StorageAccount, None, &accounts)
}
