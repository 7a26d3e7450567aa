//! `corro batchai list-usages`: the quotas of a region and their usage.

use clap::Args;
use corro_model::ops::UsagesList;

use crate::error::CliError;
use crate::output::{Shape, TableKind};
use crate::session::{Session, setting};

#[derive(Args, Debug)]
pub struct UsagesArgs {
    /// Location, such as eastus [default: $AZURE_DEFAULTS_LOCATION]
    #[arg(long, short = 'l', value_name = "LOCATION")]
    location: Option<String>,
}

pub async fn run(session: &Session, args: UsagesArgs) -> Result<(), CliError> {
    let location = args
        .location
        .or_else(|| setting("defaults", "location"))
        .ok_or_else(|| CliError::missing_arguments(&["--location/-l"], &["--location/-l"]))?;
    let usages = session.client()?.list::<UsagesList, _>(&[("location", &location)], &[]).await?;
    session.print(Shape::Usage, Some(TableKind::Usage), &usages)
}
