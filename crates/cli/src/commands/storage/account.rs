//! `corro storage account`: create, show, list, update and delete storage accounts, and their keys.

use clap::{Args, Subcommand};
use corro_model::arm::RegenerateKeyRequest;
use corro_model::arm::{AccountKeys, NameAvailabilityRequest, STORAGE_ACCOUNT_TYPE, StorageAccount};
use corro_model::ops::{
    AccountsCheckName, AccountsDelete, AccountsGet, AccountsList, AccountsListByGroup, AccountsListKeys,
    AccountsRegenerateKey, NoBody,
};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::Shape;
use crate::progress::Spinner;
use crate::prompt;
use crate::resource::args::{EndArgs, ResourceNames, ResourceSelection};
use crate::resource::resource_ref::{GROUP_FLAG, NAME_FLAG, NameArg, ResourceRef};
use crate::session::{Session, setting};

mod create;
mod update;

#[derive(Subcommand, Debug)]
pub enum AccountCommand {
    /// Create a storage account
    #[command(
        after_help = "Example:\n  corro storage account create -g batchai.horovod -n mystorageaccount \\\n      -l eastus --sku Standard_LRS"
    )]
    Create(Box<create::CreateArgs>),
    /// Change a storage account
    Update(Box<update::UpdateArgs>),
    /// Show the number of storage accounts in a location, and the limit
    ShowUsage(update::UsageArgs),
    /// Show a storage account
    Show(ResourceSelection<NameArgs>),
    /// List the storage accounts of a resource group, or of all groups
    List(ListArgs),
    /// Delete a storage account with all its shares, containers and files
    Delete(EndArgs<NameArgs>),
    /// Check whether a name is available for a new storage account
    CheckName(CheckNameArgs),
    /// Print the connection string of a storage account, including its key
    ShowConnectionString(ConnectionArgs),
    /// List or renew the keys of a storage account
    #[command(subcommand)]
    Keys(KeysCommand),
}

#[derive(Subcommand, Debug)]
pub enum KeysCommand {
    /// List the two keys of a storage account
    List(NameArgs),
    /// Replace a key with a new one. Signatures made with the old key become invalid
    Renew(RenewArgs),
}

#[derive(Args, Debug)]
pub struct NameArgs {
    /// Name of the resource group [default: $AZURE_DEFAULTS_GROUP]
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
    /// Name of the storage account
    #[arg(long, short = 'n', visible_alias = "account-name", value_name = "ACCOUNT")]
    name: Option<String>,
}

impl ResourceNames for NameArgs {
    fn names(&self) -> Vec<NameArg<'_>> {
        vec![("group", GROUP_FLAG, self.resource_group.as_deref()), ("account", NAME_FLAG, self.name.as_deref())]
    }
}

impl NameArgs {
    /// The account. A name alone is enough, since account names are unique: the group is looked up.
    async fn in_its_group(mut self, session: &Session) -> Result<Self, CliError> {
        let named = self.resource_group.is_some() || setting("defaults", "group").is_some();
        let Some(name) = self.name.as_deref().filter(|_| !named) else { return Ok(self) };
        let accounts: Vec<StorageAccount> = session.client()?.list::<AccountsList, _>(&[], &[]).await?;
        let found = accounts.iter().find(|account| account.name == name);
        let found = found.ok_or_else(|| CliError::usage(format!("Storage account '{name}' not found.")))?;
        self.resource_group = Some(ResourceRef::from_id::<AccountsGet>("--name", &found.id)?.name("group").to_owned());
        Ok(self)
    }
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only the accounts of this resource group
    #[arg(long, short = 'g', value_name = "GROUP")]
    resource_group: Option<String>,
}

#[derive(Args, Debug)]
pub struct CheckNameArgs {
    /// Name to check
    #[arg(long, short = 'n', value_name = "ACCOUNT")]
    name: String,
}

#[derive(Args, Debug)]
pub struct RenewArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Key to replace
    #[arg(long, value_name = "KEY", ignore_case = true, value_parser = ["primary", "secondary"])]
    key: String,
}

#[derive(Args, Debug)]
pub struct ConnectionArgs {
    #[command(flatten)]
    account: NameArgs,
    /// Key to include in the connection string
    #[arg(long, value_name = "KEY", ignore_case = true, default_value = "primary", value_parser = ["primary", "secondary"])]
    key: String,
    /// Protocol of the URL [default: the protocol of the server]
    #[arg(long, value_name = "PROTOCOL", value_parser = ["http", "https"])]
    protocol: Option<String>,
    /// URL of the file endpoint in the connection string [default: the server's]
    #[arg(long, value_name = "URL")]
    file_endpoint: Option<String>,
    /// URL of the blob endpoint in the connection string [default: the server's]
    #[arg(long, value_name = "URL")]
    blob_endpoint: Option<String>,
}

pub async fn run(session: &Session, command: AccountCommand) -> Result<(), CliError> {
    match command {
        AccountCommand::Create(args) => create::run(session, *args).await,
        AccountCommand::Update(args) => update::run(session, *args).await,
        AccountCommand::ShowUsage(args) => update::show_usage(session, args).await,
        AccountCommand::Show(args) => show(session, args).await,
        AccountCommand::List(args) => list(session, args).await,
        AccountCommand::Delete(args) => delete(session, args).await,
        AccountCommand::CheckName(args) => {
            let request = NameAvailabilityRequest { name: args.name, kind: Some(STORAGE_ACCOUNT_TYPE.to_owned()) };
            let answer = session.client()?.call::<AccountsCheckName>(&[], &[], &request).await?;
            session.print_value(&json!({"message": answer.message, "nameAvailable": answer.name_available,
                                        "reason": answer.reason}))
        }
        AccountCommand::ShowConnectionString(args) => show_connection_string(session, args).await,
        AccountCommand::Keys(KeysCommand::List(args)) => {
            let args = args.in_its_group(session).await?;
            session.print(Shape::StorageAccountKey, None, &keys(session, &args.target()?).await?.keys)
        }
        AccountCommand::Keys(KeysCommand::Renew(args)) => {
            let target = args.account.in_its_group(session).await?.target()?;
            let request = RegenerateKeyRequest { key_name: format!("key{}", key_idx(&args.key) + 1) };
            let keys = session.client()?.call::<AccountsRegenerateKey>(&target.values(), &[], &request).await;
            session.print(Shape::StorageAccountKey, None, &keys.map_err(|error| target.request_error(error))?.keys)
        }
    }
}

async fn show(session: &Session, args: ResourceSelection<NameArgs>) -> Result<(), CliError> {
    let mut found = Vec::new();
    let named = args.named.in_its_group(session).await?;
    for target in ResourceRef::from_ids_or_names::<AccountsGet>(&args.ids, &named.names())? {
        let account = session.client()?.get::<AccountsGet>(&target.values()).await;
        found.push(account.map_err(|error| target.show_error(error))?);
    }
    match found.as_slice() {
        [one] => session.print(Shape::StorageAccount, None, one),
        several => session.print(Shape::StorageAccount, None, &several),
    }
}

async fn list(session: &Session, args: ListArgs) -> Result<(), CliError> {
    let accounts: Vec<StorageAccount> = match args.resource_group.or_else(|| setting("defaults", "group")) {
        Some(group) => session.client()?.list::<AccountsListByGroup, _>(&[("group", &group)], &[]).await?,
        None => session.client()?.list::<AccountsList, _>(&[], &[]).await?,
    };
    session.print(Shape::StorageAccount, None, &accounts)
}

async fn delete(session: &Session, args: EndArgs<NameArgs>) -> Result<(), CliError> {
    let named = args.selection.named.in_its_group(session).await?;
    let targets = ResourceRef::from_ids_or_names::<AccountsGet>(&args.selection.ids, &named.names())?;
    let names: Vec<&str> = targets.iter().map(|target| target.name("account")).collect();
    let loss = format!("This deletes every share, container and file of {}.", names.join(", "));
    prompt::confirm(args.yes, Some(&loss))?;
    for target in &targets {
        let pending = session.client()?.start::<AccountsDelete>(&target.values(), &NoBody {}).await;
        let pending = pending.map_err(|error| target.request_error(error))?;
        if !args.no_wait {
            let _spinner = Spinner::start("Deleting");
            session.client()?.wait(pending).await?;
        }
    }
    Ok(())
}

async fn show_connection_string(session: &Session, args: ConnectionArgs) -> Result<(), CliError> {
    let target = args.account.in_its_group(session).await?.target()?;
    let account = session.client()?.get::<AccountsGet>(&target.values()).await;
    let account = account.map_err(|error| target.show_error(error))?;
    let keys = keys(session, &target).await?;
    let key = keys.keys.get(key_idx(&args.key)).map(|key| key.value.expose().to_owned()).unwrap_or_default();
    let endpoint = |given: &Option<String>, service: &str| {
        let reported =
            || account.properties.primary_endpoints.get(service).map(|url| url.trim_end_matches('/').to_owned());
        given.clone().or_else(reported).unwrap_or_default()
    };
    let (file, blob) = (endpoint(&args.file_endpoint, "file"), endpoint(&args.blob_endpoint, "blob"));
    let spoken = file.split_once("://").map_or("http", |(scheme, _)| scheme).to_owned();
    let (protocol, name) = (args.protocol.unwrap_or(spoken), &account.name);
    let text = format!(
        "DefaultEndpointsProtocol={protocol};AccountName={name};AccountKey={key};BlobEndpoint={blob};FileEndpoint={file}"
    );
    session.print_value(&Value::from_iter([("connectionString", text)]))
}

async fn keys(session: &Session, target: &ResourceRef) -> Result<AccountKeys, CliError> {
    let keys = session.client()?.call::<AccountsListKeys>(&target.values(), &[], &NoBody {}).await;
    keys.map_err(|error| target.request_error(error))
}

fn key_idx(key: &str) -> usize {
    usize::from(key.eq_ignore_ascii_case("secondary"))
}
