//! Context of one authorized operation: the service's state, the request, and the location on disk that it is about.

pub(crate) mod recent_appends;
pub(crate) mod running_copies;
pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use corro_shares::{Share, ShareError, SharePath, Shares, SnapshotId};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::context::state::Inner;
use crate::limits::upload_permits::Room;
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;

/// How long a range waits until there is room for it.
const MAX_UPLOAD: Duration = Duration::from_secs(120);

/// What an authorised operation works with.
pub(crate) struct Context<'a> {
    pub service: &'a Arc<Inner>,
    pub call: &'a Call,
    pub share: String,
    pub path: SharePath,
    pub snapshot: Option<SnapshotId>,
    pub in_container: bool,
    /// Whether the caller may replace what is there.
    pub may_replace: bool,
}

impl Context<'_> {
    /// Room for the bytes of a request, as long as it is held.
    pub async fn take_room(&self) -> Result<Room, Refusal> {
        let room = timeout(MAX_UPLOAD, self.service.uploads.take(&self.call.account)).await;
        room.map_err(|_| Refusal::new("ServerBusy"))
    }

    pub fn place(&self) -> Place {
        Place {
            account: self.call.account.clone(),
            share: self.share.clone(),
            path: self.path.clone(),
            snapshot: self.snapshot.clone(),
            in_container: self.in_container,
        }
    }

    /// For work that outlives the answer.
    pub fn service_handle(&self) -> Arc<Inner> {
        self.service.clone()
    }

    /// Runs disk work on a blocking thread, with the account's name, the share's and the path.
    pub async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Place) -> Result<T, ShareError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.decide_on_disk(|shares, place| work(shares, place).map_err(Refusal::from)).await
    }

    /// The same for work that may refuse what was asked after it has looked.
    pub async fn decide_on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Place) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let shares = self.service.shares_of(&self.call.account).clone();
        let place = self.place();
        match spawn_blocking(move || work(&shares, &place)).await {
            Ok(result) => result,
            Err(_) => Err(Refusal::internal()), // the work panicked, and the panic was reported
        }
    }
}

/// The thing on disk that a request is about.
pub(crate) struct Place {
    pub account: String,
    pub share: String,
    pub path: SharePath,
    pub snapshot: Option<SnapshotId>,
    pub in_container: bool,
}

impl Place {
    pub fn open(&self, shares: &Shares) -> Result<Share, ShareError> {
        match &self.snapshot {
            None if self.in_container => shares.container(&self.account, &self.share),
            None => shares.share(&self.account, &self.share),
            Some(id) => shares.snapshot(&self.account, &self.share, id),
        }
    }
}
