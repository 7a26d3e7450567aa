//! Arguments that name a share and the account that holds it.

use clap::Args;
use corro_client::FileService;

use crate::commands::storage::auth::{self, AccountArgs};
use crate::error::CliError;
use crate::session::Session;

#[derive(Args, Debug)]
pub struct ShareArgs {
    /// Name of the share
    #[arg(long, short = 's', value_name = "SHARE")]
    pub share_name: String,
    /// Use this snapshot of the share, instead of its current content
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    #[command(flatten)]
    account: AccountArgs,
}

impl ShareArgs {
    /// Opens the file service of the account, at the snapshot if one is given.
    pub async fn open(&self, session: &Session) -> Result<FileService, CliError> {
        Ok(auth::open_share(session, &self.account, &self.share_name).await?.at_snapshot(self.snapshot.clone()))
    }
}
