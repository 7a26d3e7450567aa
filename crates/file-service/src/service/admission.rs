//! Authentication of a request, with the stored access policy of its SAS and the rate limit for unauthenticated callers.

use corro_model::storage::sas;
use corro_shares::{ShareError, SharePath};
use tokio::task::spawn_blocking;

use crate::auth::{self, Access, Admission, CredentialSink, stored_policies};
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::service::FileService;

impl FileService {
    /// Who may come in at all. Whoever shows no valid signature is counted at its address, so that strangers cannot use
    /// up what an account may be asked.
    pub(super) async fn admit(
        &self,
        call: &Call,
        credential_sink: Option<&dyn CredentialSink>,
    ) -> Result<Access, Refusal> {
        let now = (self.0.now)();
        let keys = self.0.keys.keys(&call.account);
        let admitted = match auth::authenticate(call, keys.as_ref(), now) {
            Ok(Admission::Access(access, signer)) => Ok((access, signer)),
            Ok(Admission::ByPolicy(sas, signer)) => {
                let policy = Box::pin(self.policy(call, &sas)).await?;
                auth::under_policy(*sas, policy.as_ref(), call.bearer(), now).map(|access| (access, signer))
            }
            Err(refusal) => Err(refusal),
        };
        let admitted = admitted.and_then(|(access, signer)| match access.by() {
            Some(by) if !self.0.keys.is_login_valid(by) => Err(Refusal::revoked()),
            _ => Ok((access, signer)),
        });
        match admitted {
            Ok((access, signer)) => {
                if let (Some(sink), Some(key)) = (credential_sink, keys.as_ref().and_then(|keys| keys.get(signer))) {
                    // What is open ends with the key it was opened with.
                    sink.set_storage_key(&call.account, key, access.by().unwrap_or_default());
                }
                Ok(access)
            }
            Err(refusal) => {
                self.count_unauthenticated(call)?;
                Err(refusal)
            }
        }
    }

    /// What the share or container of a link keeps under a name. One that is not there keeps nothing.
    async fn policy(&self, call: &Call, sas: &sas::Sas) -> Result<Option<sas::Policy>, Refusal> {
        let (shares, account) = (self.0.shares_of(&call.account).clone(), call.account.clone());
        let (share, is_of_blobs) = (call.target.clone()?.share, sas.resource.is_of_blobs());
        let read = spawn_blocking(move || {
            let tree = if is_of_blobs { shares.container(&account, &share) } else { shares.share(&account, &share) };
            tree?.describe(&SharePath::ROOT)
        });
        match read.await.map_err(|_| Refusal::internal())? {
            Ok((_, properties)) => Ok(stored_policies::find(&properties, &sas.identifier)),
            Err(ShareError::ShareNotFound(_) | ShareError::ContainerNotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Counts a request without a valid signature against its address.
    pub(super) fn count_unauthenticated(&self, call: &Call) -> Result<(), Refusal> {
        let admitted = self.0.limits.admit_unauthenticated(&call.from());
        admitted.map_err(|wait| Refusal::too_often("without a valid signature from this address", wait))
    }
}
