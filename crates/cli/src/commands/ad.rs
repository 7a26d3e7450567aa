//! `corro ad sp`: other people and programs that may use the server, with a role at a scope. For owners. A password is
//! shown once, when it is made.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use corro_client::Client;
use corro_model::Timestamp;
use corro_model::arm::{MAX_YEARS, Principal, PrincipalCreateParameters};
use corro_model::ops::{
    NoBody, PrincipalsCreate, PrincipalsDelete, PrincipalsGet, PrincipalsList, PrincipalsReset, PrincipalsRevokeTokens,
};
use serde::Serialize;
use serde_json::Value;

use crate::failure::Failure;
use crate::session::{GlobalArgs, Session};
use crate::talk::say;

#[derive(Args, Debug)]
pub struct AdArgs {
    #[command(subcommand)]
    command: AdCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AdCommand {
    /// Service principals: logins with a role, for people and programs
    #[command(subcommand)]
    Sp(SpCommand),
}

#[derive(Subcommand, Debug)]
enum SpCommand {
    /// Make a service principal with a role; its password is shown once
    #[command(
        after_help = "Examples:\n  corro ad sp create-for-rbac -n alice --role Contributor\n  corro ad sp create-for-rbac -n bob --role Reader \\\n    --scopes /subscriptions/ID/resourceGroups/demo"
    )]
    CreateForRbac(CreateArgs),
    /// List the service principals
    List,
    /// Show a service principal and its roles
    Show(WhichArgs),
    /// Give a service principal a new password; what was logged in with the old one is not any more
    ResetCredentials(ResetArgs),
    /// End whatever is logged in as a service principal, and every link it was given; its password stays
    RevokeTokens(WhichArgs),
    /// Delete a service principal; what was logged in as it is not any more
    Delete(WhichArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    /// Name of the service principal [default: corro-cli- and the time]
    #[arg(long, short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// What it may do: Reader, Contributor or Owner
    #[arg(long, value_name = "ROLE", default_value = "Contributor")]
    role: String,
    /// Resource ids of the subscription, groups or workspaces it may do that in [default: the subscription]
    #[arg(long, value_name = "ID", num_args = 1..)]
    scopes: Vec<String>,
    /// Give it no role: it can log in and see that there is a subscription
    #[arg(long, conflicts_with_all = ["scopes", "role"])]
    skip_assignment: bool,
    /// How many years the password is good [default: for ever]
    #[arg(long, value_name = "YEARS", value_parser = clap::value_parser!(i64).range(1..=MAX_YEARS))]
    years: Option<i64>,
}

#[derive(Args, Debug)]
struct ResetArgs {
    #[command(flatten)]
    which: NameArgs,
    /// How many years the new password is good [default: for ever]
    #[arg(long, value_name = "YEARS", value_parser = clap::value_parser!(i64).range(1..=MAX_YEARS))]
    years: Option<i64>,
}

#[derive(Args, Debug)]
struct WhichArgs {
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

pub async fn run(args: AdArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let AdCommand::Sp(command) = args.command;
    match command {
        SpCommand::CreateForRbac(args) => {
            let CreateArgs { name, role, scopes, skip_assignment, years } = args;
            let display_name = name.unwrap_or_else(unnamed);
            let request = PrincipalCreateParameters { display_name, role, scopes, skip_assignment, years };
            let made = client.call::<PrincipalsCreate>(&[], &[], &request).await?;
            say(format_args!("The password is shown this once only: keep it safe."));
            say_isolation(client).await;
            print(&session, &made)
        }
        SpCommand::List => {
            let found: Vec<Principal> = client.list::<PrincipalsList, _>(&[], &[]).await?;
            print(&session, &found)
        }
        SpCommand::Show(args) => {
            let found = client.get::<PrincipalsGet>(&[("principal", &args.id)]).await.map_err(Failure::of_show)?;
            print(&session, &found)
        }
        SpCommand::ResetCredentials(args) => reset(client, &session, &args).await,
        SpCommand::RevokeTokens(args) => {
            client.call::<PrincipalsRevokeTokens>(&[("principal", &args.id)], &[], &NoBody {}).await?;
            Ok(())
        }
        SpCommand::Delete(args) => {
            // A name that is mistyped would look deleted.
            client.get::<PrincipalsGet>(&[("principal", &args.id)]).await?;
            client.call::<PrincipalsDelete>(&[("principal", &args.id)], &[], &NoBody {}).await?;
            Ok(())
        }
    }
}

/// From the second principal on jobs are isolated strictly. Said once, when that one is made; whoever sees no more than a part of the
/// principals is not the second.
async fn say_isolation(client: &Client) {
    let found: Result<Vec<Principal>, _> = client.list::<PrincipalsList, _>(&[], &[]).await;
    if found.is_ok_and(|found| found.len() == 2) {
        say(format_args!(
            "The server has more than one principal now: jobs that start from now on run with --isolation strict, unless the operator chose otherwise."
        ));
    }
}

/// As az names one that was given no name.
fn unnamed() -> String {
    let now = Timestamp::from(SystemTime::now()).to_string();
    let seconds = now.split(['.', 'Z']).next().unwrap_or_default();
    format!("corro-cli-{}", seconds.replace(['T', ':'], "-"))
}

async fn reset(client: &Client, session: &Session, args: &ResetArgs) -> Result<(), Failure> {
    let years = args.years.map(|years| years.to_string());
    let query: Vec<(&str, &str)> = years.iter().map(|years| ("years", years.as_str())).collect();
    let made = client.call::<PrincipalsReset>(&[("principal", &args.which.name)], &query, &NoBody {}).await?;
    say(format_args!("The password is shown this once only: keep it safe."));
    print(session, &made)
}

fn print(session: &Session, value: &impl Serialize) -> Result<(), Failure> {
    let value: Value = serde_json::to_value(value).map_err(|error| Failure::of(&error))?;
    session.print_value(&value)
}
