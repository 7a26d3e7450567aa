//! Interfaces to the credentials of the embedding server: keys of storage accounts, and validity of logins.

use std::sync::Arc;

/// Where the keys of storage accounts come from.
pub trait AccountKeys: Send + Sync + 'static {
    /// The decoded keys of an account; None when there is no such account.
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>>;

    /// Whether the one a link was made for may still use it. Where nobody makes such links, nobody may.
    fn is_login_valid(&self, _by: &str) -> bool {
        false
    }

    /// SumKey loses something with a share that is deleted, in words.
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
