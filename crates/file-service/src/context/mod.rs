//! Context of one authorized operation: the service's state, the request, and the location on disk that it is about.

pub(crate) mod recent_appends;
pub(crate) mod running_copies;
pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use corro_shares::{Share, ShareError, SharePath, Shares, SnapshotId};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::context::state::ServiceState;
use crate::limits::upload_permits::UploadPermit;
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;

/// Time that a request waits for an upload permit before it fails with `ServerBusy`.
const UPLOAD_PERMIT_TIMEOUT: Duration = Duration::from_secs(120);

/// An authorized operation.
pub(crate) struct OperationContext<'a> {
    pub state: &'a Arc<ServiceState>,
    pub request: &'a StorageRequest,
    pub share: String,
    pub path: SharePath,
    pub snapshot: Option<SnapshotId>,
    pub in_container: bool,
    /// Whether an existing file may be overwritten.
    pub may_replace: bool,
}

impl OperationContext<'_> {
    /// Waits for a permit to hold the body of an upload in memory. Hold the result until the body is written.
    pub async fn acquire_upload_permit(&self) -> Result<UploadPermit, StorageError> {
        let permit = timeout(UPLOAD_PERMIT_TIMEOUT, self.state.upload_permits.acquire(&self.request.account)).await;
        permit.map_err(|_| StorageError::new("ServerBusy"))
    }

    pub fn location(&self) -> Location {
        Location {
            account: self.request.account.clone(),
            share: self.share.clone(),
            path: self.path.clone(),
            snapshot: self.snapshot.clone(),
            in_container: self.in_container,
        }
    }

    /// For work that continues after the response.
    pub fn state_handle(&self) -> Arc<ServiceState> {
        self.state.clone()
    }

    /// Runs disk work on a blocking thread.
    pub async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Location) -> Result<T, ShareError> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.try_on_disk(|shares, location| work(shares, location).map_err(StorageError::from)).await
    }

    /// Like [`on_disk`](Self::on_disk), for work that can fail with an error of the protocol.
    pub async fn try_on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Location) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let shares = self.state.shares_of(&self.request.account).clone();
        let location = self.location();
        match spawn_blocking(move || work(&shares, &location)).await {
            Ok(result) => result,
            Err(_) => Err(StorageError::internal()), // a panic, which the panic hook has reported
        }
    }
}

/// The share or container and the path that a request is about.
pub(crate) struct Location {
    pub account: String,
    pub share: String,
    pub path: SharePath,
    pub snapshot: Option<SnapshotId>,
    pub in_container: bool,
}

impl Location {
    pub fn open(&self, shares: &Shares) -> Result<Share, ShareError> {
        match &self.snapshot {
            None if self.in_container => shares.container(&self.account, &self.share),
            None => shares.share(&self.account, &self.share),
            Some(id) => shares.snapshot(&self.account, &self.share, id),
        }
    }
}
