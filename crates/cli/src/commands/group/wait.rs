//! `corro group wait`: polls until a group is created, updated or deleted.

use std::time::{Duration, Instant};

use clap::Args;
use corro_model::ops::GroupsGet;

use super::NameArgs;
use crate::error::CliError;
use crate::progress::Spinner;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct WaitArgs {
    #[command(flatten)]
    name: NameArgs,
    #[command(flatten)]
    until: WaitCondition,
    /// Seconds between two checks
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
}

#[derive(Args, Debug)]
struct WaitCondition {
    /// Wait until the group is created
    #[arg(long)]
    created: bool,
    /// Wait until the group is updated
    #[arg(long)]
    updated: bool,
    /// Wait until the group exists
    #[arg(long)]
    exists: bool,
    /// Wait until the group is deleted
    #[arg(long)]
    deleted: bool,
}

pub async fn run(session: &Session, args: WaitArgs) -> Result<(), CliError> {
    let until = &args.until;
    if !(until.created || until.updated || until.exists || until.deleted) {
        return Err(CliError::new("incorrect usage: --created | --updated | --deleted | --exists"));
    }
    let path = [("group", args.name.name.as_str())];
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    let _spinner = Spinner::start("Waiting");
    loop {
        match session.client()?.get::<GroupsGet>(&path).await {
            Ok(_) if until.exists => return Ok(()),
            Ok(group) if (until.created || until.updated) && group.properties.provisioning_state == "Succeeded" => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() && until.deleted => return Ok(()),
            Err(error) if error.is_not_found() && (until.created || until.exists) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(CliError::new("Wait operation timed-out"));
        }
        tokio::time::sleep(Duration::from_secs(args.interval).min(deadline - now)).await;
    }
}
