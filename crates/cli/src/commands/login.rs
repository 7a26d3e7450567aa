//! `corro login`: writes the profile with server and login. The login is verified first.

use std::path::PathBuf;

use clap::Args;
use corro_client::{Client, Profile, Trust, profile};
use corro_model::Secret;
use corro_model::arm::Subscription;
use corro_model::ops::SubscriptionsList;
use serde_json::json;

use crate::commands::account::account_object;
use crate::error::CliError;
use crate::prompt;
use crate::session::{GlobalArgs, Session, env};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  corro login --service-principal -u ID -t TENANT \\\n      --server https://gpu-box:8470 --ca ca.pem\n  corro login --service-principal -u ID -t TENANT < password.txt\n\n'corro ad sp create-for-rbac' prints the id, the tenant and the password."
)]
pub struct LoginArgs {
    /// Log in as a service principal. Required: there is no other kind of login
    #[arg(long, required = true)]
    service_principal: bool,
    /// App id of the service principal
    #[arg(long, short = 'u', value_name = "ID")]
    username: String,
    /// Password of the service principal. Other users can see it in the process list: it is safer to enter it when asked, or
    /// to pipe it to standard input
    #[arg(long, short = 'p', value_name = "PASSWORD")]
    password: Option<String>,
    /// Tenant id of the server, as printed by 'corro ad sp create-for-rbac'
    #[arg(long, short = 't', value_name = "ID")]
    tenant: String,
    /// URL of the server, such as https://gpu-box:8470 [default: $CORRO_SERVER, or the server that you are logged in to]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// File with the server's certificate authority, in PEM format [default: as in the current login to the same server]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: LoginArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let dir = profile::config_dir()?;
    let present = Profile::load(&dir).ok();
    let server =
        args.server.clone().or_else(|| env("CORRO_SERVER")).or_else(|| present.as_ref().map(|p| p.server.clone()));
    let server = server.ok_or_else(|| {
        CliError::new("no server to log in to").hint("give its address with --server https://HOST:PORT")
    })?;
    let certificate_authority = match &args.ca {
        Some(file) => match Trust::from_file(file).map_err(|error| CliError::from_error(&error))? {
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
        data_directory: None,
    };
    let subscriptions: Vec<Subscription> =
        Client::new(&profile)?.list::<SubscriptionsList, _>(&[], &[]).await.map_err(login_error)?;
    let Some(subscription) = subscriptions.into_iter().next() else {
        return Err(CliError::new("the server has no subscription for this login"));
    };
    profile.subscription = subscription.subscription_id.clone();
    profile.save(&dir)?;
    session.print_value(&json!([account_object(&subscription, &profile)]))
}

fn read_password() -> Result<Secret, CliError> {
    let line = prompt::read_password("Password").map_err(|error| CliError::from_error(&error))?;
    match line.trim_end_matches(['\r', '\n']) {
        "" => Err(CliError::usage("the password is empty").hint("write it to standard input, or give --password")),
        password => Ok(Secret::new(password)),
    }
}

fn login_error(error: corro_client::ClientError) -> CliError {
    match error {
        corro_client::ClientError::LoginRefused { .. } => CliError { hint: None, ..CliError::from(error) }
            .hint("check app id and password; an owner can make a new password with 'corro ad sp reset-credentials'"),
        error => error.into(),
    }
}
