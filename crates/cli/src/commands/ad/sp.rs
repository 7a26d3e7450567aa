//! `corro ad sp`: service principals, the logins of people and programs, with roles at scopes. A password is shown once, when it is made.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::Timestamp;
use corro_model::arm::{MAX_YEARS, Principal, PrincipalCreateParameters};
use corro_model::ops::{
    NoBody, PrincipalsCreate, PrincipalsDelete, PrincipalsGet, PrincipalsList, PrincipalsReset, PrincipalsRevokeTokens,
};

use crate::error::CliError;
use crate::session::Session;
use crate::stdio::note;

#[derive(Subcommand, Debug)]
pub enum SpCommand {
    /// Create a service principal with a role. Its password is shown only once
    #[command(
        after_help = "Examples:\n  corro ad sp create-for-rbac -n alice --role Contributor\n  corro ad sp create-for-rbac -n bob --role Reader \\\n      --scopes /subscriptions/ID/resourceGroups/demo"
    )]
    CreateForRbac(CreateArgs),
    /// List the service principals
    List,
    /// Show a service principal and its roles
    Show(IdArgs),
    /// Set a new password for a service principal. Logins with the old password end
    ResetCredentials(ResetArgs),
    /// Revoke all tokens and download links of a service principal. Its password stays valid
    RevokeTokens(IdArgs),
    /// Delete a service principal and end its logins
    Delete(IdArgs),
}

#[derive(Args, Debug)]
pub struct CreateArgs {
    /// Name of the service principal [default: corro-cli- followed by the time]
    #[arg(long, short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Role: Reader, Contributor or Owner
    #[arg(long, value_name = "ROLE", default_value = "Contributor")]
    role: String,
    /// Full ids of the subscription, resource groups or workspaces that the role applies to [default: the subscription]
    #[arg(long, value_name = "ID", num_args = 1..)]
    scopes: Vec<String>,
    /// Assign no role. The service principal can only log in and see the subscription
    #[arg(long, conflicts_with_all = ["scopes", "role"])]
    skip_assignment: bool,
    /// Years until the password expires [default: never]
    #[arg(long, value_name = "YEARS", value_parser = clap::value_parser!(i64).range(1..=MAX_YEARS))]
    years: Option<i64>,
}

#[derive(Args, Debug)]
pub struct ResetArgs {
    #[command(flatten)]
    principal: NameArgs,
    /// Years until the new password expires [default: never]
    #[arg(long, value_name = "YEARS", value_parser = clap::value_parser!(i64).range(1..=MAX_YEARS))]
    years: Option<i64>,
}

#[derive(Args, Debug)]
pub struct IdArgs {
    /// App id or name of the service principal
    #[arg(long, value_name = "ID")]
    id: String,
}

#[derive(Args, Debug)]
struct NameArgs {
    /// App id or name of the service principal
    #[arg(long, short = 'n', value_name = "NAME")]
    name: String,
}

pub async fn run(session: &Session, command: SpCommand) -> Result<(), CliError> {
    let client = session.client()?;
    match command {
        SpCommand::CreateForRbac(args) => {
            let CreateArgs { name, role, scopes, skip_assignment, years } = args;
            let display_name = name.unwrap_or_else(default_name);
            let request = PrincipalCreateParameters { display_name, role, scopes, skip_assignment, years };
            let made = client.call::<PrincipalsCreate>(&[], &[], &request).await?;
            note(format_args!("The password is not shown again: keep it safe."));
            note_isolation(client).await;
            session.print_serialized(&made, None)
        }
        SpCommand::List => {
            let found: Vec<Principal> = client.list::<PrincipalsList, _>(&[], &[]).await?;
            session.print_serialized(&found, None)
        }
        SpCommand::Show(args) => {
            let found = client.get::<PrincipalsGet>(&[("principal", &args.id)]).await.map_err(CliError::from_show)?;
            session.print_serialized(&found, None)
        }
        SpCommand::ResetCredentials(args) => reset(client, session, &args).await,
        SpCommand::RevokeTokens(args) => {
            client.call::<PrincipalsRevokeTokens>(&[("principal", &args.id)], &[], &NoBody {}).await?;
            Ok(())
        }
        SpCommand::Delete(args) => {
            // Deleting is idempotent, so a mistyped name would look deleted.
            client.get::<PrincipalsGet>(&[("principal", &args.id)]).await?;
            client.call::<PrincipalsDelete>(&[("principal", &args.id)], &[], &NoBody {}).await?;
            Ok(())
        }
    }
}

/// Prints, when the second principal is made, that jobs are isolated strictly from now on. A caller who may list only some of the principals sees
/// other counts.
async fn note_isolation(client: &Client) {
    let found: Result<Vec<Principal>, _> = client.list::<PrincipalsList, _>(&[], &[]).await;
    if found.is_ok_and(|found| found.len() == 2) {
        note(format_args!(
            "The server has more than one principal now: jobs that start from now on run with --isolation strict, unless the operator chose otherwise."
        ));
    }
}

/// The default name, made as by az.
fn default_name() -> String {
    let now = Timestamp::from(SystemTime::now()).to_string();
    let seconds = now.split(['.', 'Z']).next().unwrap_or_default();
    format!("corro-cli-{}", seconds.replace(['T', ':'], "-"))
}

async fn reset(client: &Client, session: &Session, args: &ResetArgs) -> Result<(), CliError> {
    let years = args.years.map(|years| years.to_string());
    let query: Vec<(&str, &str)> = years.iter().map(|years| ("years", years.as_str())).collect();
    let made = client.call::<PrincipalsReset>(&[("principal", &args.principal.name)], &query, &NoBody {}).await?;
    note(format_args!("The password is not shown again: keep it safe."));
    session.print_serialized(&made, None)
}
