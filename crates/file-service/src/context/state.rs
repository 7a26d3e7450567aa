//! State of the service that all requests share.

use std::sync::Arc;

use corro_shares::Shares;

use crate::audit::{AuditSink, Sums};
use crate::auth::AccountKeys;
use crate::context::recent_appends::Appended;
use crate::context::running_copies::Copies;
use crate::limits::RateLimiter;
use crate::limits::upload_permits::Rooms;

pub(crate) struct Inner {
    pub shares: Arc<Shares>,
    /// Trees outside of storage accounts, each under the pseudo account name that SAS URLs to it carry.
    pub extra_trees: Vec<(&'static str, Arc<Shares>)>,
    pub keys: Arc<dyn AccountKeys>,
    pub limits: Arc<dyn RateLimiter>,
    /// Unix seconds.
    pub now: fn() -> i64,
    pub uploads: Rooms,
    pub copies: Copies,
    pub appended: Appended,
    /// Without one no events are recorded.
    pub ledger: Option<Arc<dyn AuditSink>>,
    pub sums: Sums,
}

impl Inner {
    pub fn shares_of(&self, account: &str) -> &Arc<Shares> {
        self.extra_trees.iter().find(|(name, _)| *name == account).map_or(&self.shares, |(_, shares)| shares)
    }
}
