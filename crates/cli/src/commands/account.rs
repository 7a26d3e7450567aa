//! `corro account`: the subscription of the server and the login in use.

use clap::{Args, Subcommand};
use corro_client::Profile;
use corro_model::arm::Subscription;
use corro_model::ops::SubscriptionsList;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::session::{self, GlobalArgs, Session};

#[derive(Args, Debug)]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AccountCommand {
    /// Show the subscription and who is logged in
    Show,
    /// List the subscriptions; a server has only one
    List,
}

pub async fn run(args: AccountArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let profile = session::profile()?;
    let found: Vec<Subscription> = session.client()?.list::<SubscriptionsList, _>(&[], &[]).await?;
    let accounts: Vec<Value> = found.iter().map(|subscription| account_object(subscription, &profile)).collect();
    match args.command {
        AccountCommand::List => session.print_value(&Value::Array(accounts)),
        AccountCommand::Show => session.print_value(&accounts.into_iter().next().unwrap_or_default()),
    }
}

/// A subscription as `az account` prints it.
pub fn account_object(subscription: &Subscription, profile: &Profile) -> Value {
    json!({
        "environmentName": profile.server,
        "id": subscription.subscription_id,
        "isDefault": true,
        "name": subscription.display_name,
        "state": subscription.state,
        "tenantId": profile.tenant,
        "user": {"name": profile.client_id, "type": "servicePrincipal"},
    })
}
