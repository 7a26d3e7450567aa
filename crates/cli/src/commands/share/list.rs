//! `corro share list`: the shares of all accounts.

use std::time::SystemTime;

use clap::Args;
use corro_model::Timestamp;
use corro_model::batchai::ShareSummary;
use corro_model::ops::SharesListAll;

use super::AccountPlace;
use crate::error::CliError;
use crate::output::text_table::{Align, TextTable};
use crate::output::units::format_age;
use crate::session::{GlobalArgs, Session};
use crate::stdio::{note, print};
use crate::terminal;

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    account: AccountPlace,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: ListArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let mut shares: Vec<ShareSummary> = session.client()?.list::<SharesListAll, _>(&[], &[]).await?;
    if let Some(account) = &args.account.account_name {
        shares.retain(|share| share.account == *account);
    }
    if args.global.is_output_chosen() {
        return session.print_serialized(&shares, None);
    }
    if shares.is_empty() {
        note("There are no shares. Make one with 'corro share create NAME'.");
        return Ok(());
    }
    let now = Timestamp::from(SystemTime::now());
    let mut table = TextTable::new(&["NAME", "ACCOUNT", "CHANGED"].map(|name| (name, Align::Left)));
    for share in shares {
        table.push(vec![share.name, share.account, format_age(now.since(share.modified))]);
    }
    table.lines(terminal::output_width()).iter().for_each(print);
    Ok(())
}
