//! State of the service that all requests share.

use std::sync::Arc;

use corro_shares::Shares;

use crate::audit::{AuditSink, EventSums};
use crate::auth::AccountKeys;
use crate::context::recent_appends::RecentAppends;
use crate::context::running_copies::RunningCopies;
use crate::limits::RateLimiter;
use crate::limits::upload_permits::UploadPermits;

pub(crate) struct ServiceState {
    pub shares: Arc<Shares>,
    /// Trees outside of storage accounts, each under the pseudo account name that SAS URLs to it carry.
    pub extra_trees: Vec<(&'static str, Arc<Shares>)>,
    pub keys: Arc<dyn AccountKeys>,
    pub rate_limiter: Arc<dyn RateLimiter>,
    /// Unix seconds.
    pub now: fn() -> i64,
    pub upload_permits: UploadPermits,
    pub copies: RunningCopies,
    pub recent_appends: RecentAppends,
    /// Without one no events are recorded.
    pub audit_sink: Option<Arc<dyn AuditSink>>,
    pub event_sums: EventSums,
}

impl ServiceState {
    pub fn shares_of(&self, account: &str) -> &Arc<Shares> {
        self.extra_trees.iter().find(|(name, _)| *name == account).map_or(&self.shares, |(_, shares)| shares)
    }
}
