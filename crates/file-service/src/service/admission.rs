//! Authentication of a request, with the stored access policy of its SAS and the rate limit for unauthenticated
//! callers.

use corro_model::storage::sas;
use corro_shares::{ShareError, SharePath};
use tokio::task::spawn_blocking;

use crate::auth::{self, Authenticated, CredentialSink, Grant, stored_policies};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::service::FileService;

impl FileService {
    /// Authenticates a request. A failed attempt counts against the client's address, so that others cannot use up the
    /// account's rate limit.
    pub(super) async fn admit(
        &self,
        request: &StorageRequest,
        credential_sink: Option<&dyn CredentialSink>,
    ) -> Result<Grant, StorageError> {
        let now = (self.0.now)();
        let keys = self.0.keys.keys(&request.account);
        let admitted = match auth::authenticate(request, keys.as_ref(), now) {
            Ok(Authenticated::Granted(grant, signer)) => Ok((grant, signer)),
            Ok(Authenticated::NeedsPolicy(sas, signer)) => {
                let policy = Box::pin(self.policy(request, &sas)).await?;
                auth::apply_policy(*sas, policy.as_ref(), request.bearer(), now).map(|grant| (grant, signer))
            }
            Err(error) => Err(error),
        };
        let admitted = admitted.and_then(|(grant, signer)| match grant.on_behalf_of() {
            Some(by) if !self.0.keys.is_login_valid(by) => Err(StorageError::login_ended()),
            _ => Ok((grant, signer)),
        });
        match admitted {
            Ok((grant, signer)) => {
                if let (Some(sink), Some(key)) = (credential_sink, keys.as_ref().and_then(|keys| keys.get(signer))) {
                    // The server closes the connection when the key is rotated or the login ends.
                    sink.set_storage_key(&request.account, key, grant.on_behalf_of().unwrap_or_default());
                }
                Ok(grant)
            }
            Err(error) => {
                self.count_unauthenticated(request)?;
                Err(error)
            }
        }
    }

    /// Stored access policy that the SAS names; `None` also when the share does not exist.
    async fn policy(&self, request: &StorageRequest, sas: &sas::Sas) -> Result<Option<sas::Policy>, StorageError> {
        let (shares, account) = (self.0.shares_of(&request.account).clone(), request.account.clone());
        let (share, is_of_blobs) = (request.target.clone()?.share, sas.resource.is_of_blobs());
        let read = spawn_blocking(move || {
            let tree = if is_of_blobs { shares.container(&account, &share) } else { shares.share(&account, &share) };
            tree?.describe(&SharePath::ROOT)
        });
        match read.await.map_err(|_| StorageError::internal())? {
            Ok((_, properties)) => Ok(stored_policies::find(&properties, &sas.identifier)),
            Err(ShareError::ShareNotFound(_) | ShareError::ContainerNotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a request without a valid signature against its address.
    pub(super) fn count_unauthenticated(&self, request: &StorageRequest) -> Result<(), StorageError> {
        let admitted = self.0.rate_limiter.admit_unauthenticated(&request.client_address());
        admitted.map_err(|wait| StorageError::rate_limited("without a valid signature from this address", wait))
    }
}
