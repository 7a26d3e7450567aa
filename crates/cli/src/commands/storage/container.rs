//! `corro storage container`: blob containers.

use clap::{Args, Subcommand};
use corro_client::FileService;
use corro_model::storage::sas::Resource;
use serde_json::json;

use crate::commands::storage::auth::{self, AccountArgs};
use crate::commands::storage::blob_objects as objects;
use crate::commands::storage::sas::{self, SasArgs};
use crate::error::CliError;
use crate::output::TableKind;
use crate::resource::resource_ref::parse_tags;
use crate::session::Session;

#[derive(Subcommand, Debug)]
pub enum ContainerCommand {
    /// Create a blob container
    #[command(after_help = "Example:\n  corro storage container create --name data --account-name mystorageaccount")]
    Create(CreateArgs),
    /// List the containers of an account
    List(ListArgs),
    /// Show a container
    Show(ContainerArgs),
    /// Delete a container and its blobs
    Delete(DeleteArgs),
    /// Check whether a container exists
    Exists(ContainerArgs),
    /// Generate a shared access signature for a container
    #[command(
        after_help = "Example:\n  corro storage container generate-sas --name data \\\n      --account-name mystorageaccount \\\n      --permissions rl --expiry 2030-01-01T00:00Z"
    )]
    GenerateSas(Box<GenerateSasArgs>),
}

#[derive(Args, Debug)]
pub struct ContainerArgs {
    /// Name of the container
    #[arg(long, short = 'n', visible_alias = "container-name", value_name = "CONTAINER")]
    name: String,
    #[command(flatten)]
    account: AccountArgs,
}

impl ContainerArgs {
    async fn open(&self, session: &Session) -> Result<FileService, CliError> {
        auth::open_container(session, &self.account, &self.name).await
    }
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    container: ContainerArgs,
    /// Fail if the container already exists
    #[arg(long)]
    fail_on_exist: bool,
    /// Metadata of the container, as KEY=VALUE pairs separated by spaces
    #[arg(long, num_args = 0.., value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// Public access. Accepted, but containers are never public
    #[arg(long, value_name = "WHAT", value_parser = ["off", "blob", "container"])]
    public_access: Option<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only containers whose names begin with this text
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Maximum number of results
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    num_results: Option<u32>,
    /// Show the metadata of each
    #[arg(long)]
    include_metadata: bool,
    #[command(flatten)]
    account: AccountArgs,
}

#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    container: ContainerArgs,
    /// Fail if the container does not exist
    #[arg(long)]
    fail_not_exist: bool,
}

#[derive(Args, Debug)]
pub struct GenerateSasArgs {
    #[command(flatten)]
    container: ContainerArgs,
    #[command(flatten)]
    sas: SasArgs,
}

pub async fn run(session: &Session, command: ContainerCommand) -> Result<(), CliError> {
    match command {
        ContainerCommand::Create(args) => create(session, args).await,
        ContainerCommand::List(args) => {
            let blobs = auth::open_blobs(session, &args.account, None).await?;
            let limit = args.num_results.map(|n| n as usize);
            let found = blobs.list_containers(args.prefix.as_deref(), args.include_metadata, limit).await?;
            let listed = found.iter().map(|container| objects::listed_container(container, args.include_metadata));
            session.print_shaped(&listed.collect::<Vec<_>>().into(), Some(TableKind::ContainerEntry))
        }
        ContainerCommand::Show(args) => {
            let found =
                args.open(session).await?.container_properties(&args.name).await.map_err(CliError::from_show)?;
            session.print_shaped(&objects::container(&found), Some(TableKind::Container))
        }
        ContainerCommand::Delete(args) => {
            let blobs = args.container.open(session).await?;
            let deleted = match blobs.delete_container(&args.container.name).await {
                Ok(()) => true,
                Err(error) if error.is_not_found() && !args.fail_not_exist => false,
                Err(error) => return Err(error.into()),
            };
            session.print_value(&json!({ "deleted": deleted }))
        }
        ContainerCommand::Exists(args) => {
            let found = args.open(session).await?.container_properties(&args.name).await;
            session.print_value(&json!({"exists": auth::exists_result(found)?}))
        }
        ContainerCommand::GenerateSas(args) => {
            let blobs = args.container.open(session).await?;
            sas::print(session, &blobs, &args.sas, Resource::Container, (&args.container.name, ""))
        }
    }
}

async fn create(session: &Session, args: CreateArgs) -> Result<(), CliError> {
    if args.public_access.as_deref().is_some_and(|wanted| wanted != "off") {
        return Err(CliError::new("public access to containers is not supported")
            .hint("leave --public-access out, and give out links made with 'corro storage container generate-sas'"));
    }
    let blobs = args.container.open(session).await?;
    let name = &args.container.name;
    let created = blobs.create_container_with(name, &parse_tags(&args.metadata)).await?;
    if !created && args.fail_on_exist {
        return Err(CliError::new(format!("The container \"{name}\" already exists.")));
    }
    session.print_value(&json!({ "created": created }))
}
