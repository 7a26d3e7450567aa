//! Interfaces to the credentials of the embedding server: keys of storage accounts, and validity of logins.

use std::sync::Arc;

/// Keys of storage accounts. Implemented by the embedding server.
pub trait AccountKeys: Send + Sync + 'static {
    /// Decoded keys of an account; `None` when the account does not exist.
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>>;

    /// Whether the login that a SAS was made for (its `by` parameter) is still valid. The default is for servers that
    /// make no such SAS.
    fn is_login_valid(&self, _by: &str) -> bool {
        false
    }

    /// Users of a share, as a sentence for the warning when it is deleted.
    fn share_users(&self, _account: &str, _share: &str) -> Option<String> {
        None
    }
}

/// Receives the credential of an authenticated request, so that the server can close the connection when the credential is revoked.
pub trait CredentialSink: Send + Sync {
    /// The request is signed with this key of the account, directly or through a SAS. `on_behalf_of` is the login that the SAS was made
    /// for, or empty.
    fn set_storage_key(&self, account: &str, key: &[u8], on_behalf_of: &str);
}
