//! `corro login`, `corro logout` and `corro account`: as whom commands of this user work, and on which server. A login is
//! tried before it is kept.

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use corro_client::{Client, Profile, Trust, profile};
use corro_model::Secret;
use corro_model::arm::Subscription;
use corro_model::ops::SubscriptionsList;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::hosting::way_back::{self, Local};
use crate::prompt;
use crate::session::{self, GlobalArgs, Session, env};
use crate::talk::say;

#[derive(Args, Debug)]
pub struct LoginArgs {
    /// Log in as a service principal, which is the only way there is
    #[arg(long, required = true)]
    service_principal: bool,
    /// App id of the service principal
    #[arg(long, short = 'u', value_name = "ID")]
    username: String,
    /// Its password; everyone on this machine can see it here, so better leave it out and write it to standard input
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// The server's tenant, as 'corro ad sp create-for-rbac' showed it
    #[arg(long, short = 't', value_name = "ID")]
    tenant: String,
    /// Where the server is [default: CORRO_SERVER, or the server of the present profile]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// A file with the certificate authority that vouches for the server [default: as in the present profile]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Args, Debug)]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
    #[command(flatten)]
    global: GlobalArgs,
}

#[derive(Subcommand, Debug)]
enum AccountCommand {
    /// Show the subscription in use and who uses it
    Show,
    /// List the subscriptions: a server has one
    List,
}

pub async fn login(args: LoginArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    let dir = profile::config_dir()?;
    let present = Profile::load(&dir).ok();
    let server =
        args.server.clone().or_else(|| env("CORRO_SERVER")).or_else(|| present.as_ref().map(|p| p.server.clone()));
    let server = server.ok_or_else(|| {
        Failure::new("no server is known to log in to").hint("give its address with --server https://HOST:PORT")
    })?;
    let certificate_authority = match &args.ca {
        Some(file) => match Trust::from_file(file).map_err(|error| Failure::of(&error))? {
            Trust::Pem(text) => Some(text),
            _ => None,
        },
        None => present.filter(|present| present.server == server).and_then(|present| present.certificate_authority),
    };
    let client_secret = match args.password {
        Some(password) => Secret::new(password),
        None => read_password()?,
    };
    let mut profile = Profile {
        server: server.trim_end_matches('/').to_owned(),
        subscription: String::new(),
        tenant: args.tenant,
        client_id: args.username,
        client_secret,
        certificate_authority,
    };
    let subscriptions: Vec<Subscription> =
        Client::new(&profile)?.list::<SubscriptionsList, _>(&[], &[]).await.map_err(login_failure)?;
    let Some(subscription) = subscriptions.into_iter().next() else {
        return Err(Failure::new("the server has no subscription for this login"));
    };
    profile.subscription = subscription.subscription_id.clone();
    profile.save(&dir)?;
    session.print_value(&json!([describe(&subscription, &profile)]))
}

pub fn logout() -> Result<(), Failure> {
    let dir = profile::config_dir()?;
    let (path, server) = (profile::path_in(&dir), Profile::read(&dir).map(|profile| profile.server).ok());
    match std::fs::remove_file(&path) {
        Ok(()) => {
            let of = server.as_ref().map_or_else(String::new, |server| format!(" of {server}"));
            say(format_args!("Logged out{of}: {} is removed.", path.display()));
            say(coming_back(server.as_deref(), way_back::local_server(&dir).as_ref()));
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new("nobody is logged in")),
        Err(error) => Err(Failure {
            causes: vec![error.to_string()],
            ..Failure::new(format!("cannot remove {}", path.display()))
        }),
    }
}

pub async fn account(args: AccountArgs) -> Result<(), Failure> {
    let session = Session::open(&args.global)?;
    let profile = session::profile()?;
    let found: Vec<Subscription> = session.client()?.list::<SubscriptionsList, _>(&[], &[]).await?;
    let described: Vec<Value> = found.iter().map(|subscription| describe(subscription, &profile)).collect();
    match args.command {
        AccountCommand::List => session.print_value(&Value::Array(described)),
        AccountCommand::Show => session.print_value(&described.into_iter().next().unwrap_or_default()),
    }
}

/// How somebody who has logged out of `server` gets in again.
fn coming_back(server: Option<&str>, local: Option<&Local>) -> &'static str {
    match local.filter(|local| server == Some(local.url.as_str())) {
        Some(Local { can_return: true, .. }) => "The server still runs on this machine: 'corro up' logs you in again.",
        Some(_) => {
            "The server still runs on this machine: stop it and start it again with 'corro up', which logs you in."
        }
        None => {
            "To come back, use 'corro login', or 'corro up' with the server's --data DIR if it is yours and on this machine."
        }
    }
}

fn describe(subscription: &Subscription, profile: &Profile) -> Value {
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

fn read_password() -> Result<Secret, Failure> {
    let line = prompt::read_hidden("Password").map_err(|error| Failure::of(&error))?;
    match line.trim_end_matches(['\r', '\n']) {
        "" => Err(Failure::usage("the password is empty").hint("write it to standard input, or give --password")),
        password => Ok(Secret::new(password)),
    }
}

fn login_failure(error: corro_client::ClientError) -> Failure {
    match error {
        corro_client::ClientError::LoginRefused { .. } => Failure { hint: None, ..Failure::from(error) }
            .hint("look at app id and password; an owner can make a new password with 'corro ad sp reset-credentials'"),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_logs_out_is_told_the_way_back() {
        let local = |can_return| Some(Local { url: "http://127.0.0.1:1".to_owned(), can_return });
        for (server, local, expected) in [
            ("http://127.0.0.1:1", local(true), "'corro up' logs you in again"),
            ("http://127.0.0.1:1", local(false), "stop it and start it again"),
            ("https://box:1", local(true), "use 'corro login'"),
            ("https://box:1", None, "use 'corro login'"),
        ] {
            let said = coming_back(Some(server), local.as_ref());
            assert!(said.contains(expected), "{server}: {said}");
        }
    }
}
