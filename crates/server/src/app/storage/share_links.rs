//! Shares of all accounts, new shares, and SAS links for the dashboard, which holds no account keys.

use corro_model::batchai::{ShareLink, ShareSummary};
use corro_model::ids::arm;
use corro_model::names::{NameKind, check_name};
use corro_model::rbac::{Right, Scope};
use corro_model::storage::sas::{Resource, Sas};
use corro_model::{ApiError, Timestamp};
use corro_shares::ShareError;
use serde_json::Value;

use crate::app::App;
use crate::app::resources::lookup::group_name;

/// Lifetime of a link. The dashboard renews it long before.
const LINK_LIFETIME_S: i64 = 3600;
const LINK_VERSION: &str = "2016-05-31";

impl App {
    /// Lists all readable shares, ordered by account and name. Blocking: reads directories.
    pub fn all_shares(&self) -> Vec<ShareSummary> {
        let snapshot = self.snapshot();
        let mut shares = Vec::new();
        for (account, record) in &snapshot.accounts {
            let scope = Scope::Group(record.group.as_str().to_owned());
            if record.deleting || !self.request.caller.may(Right::Read, &scope) {
                continue;
            }
            let group = arm::group(&self.installation.subscription, &group_name(&snapshot, &record.group));
            let account_id = format!("{group}/providers/Microsoft.Storage/storageAccounts/{account}");
            let listed = self.storage.shares.list_shares(account).unwrap_or_else(|error| {
                tracing::warn!(account, error = &error as &dyn std::error::Error, "shares cannot be listed");
                Vec::new()
            });
            shares.extend(listed.into_iter().map(|entry| ShareSummary {
                name: entry.name,
                account: account.clone(),
                account_id: account_id.clone(),
                modified: Timestamp::from(entry.modified),
            }));
        }
        shares
    }

    /// Creates a share. Blocking: makes a directory.
    pub fn create_share(&self, group: &str, account: &str, share: &str) -> Result<ShareSummary, ApiError> {
        // Error if the account is not in this group.
        let account_id = self.account(group, account, "")?.id;
        check_name(NameKind::Share, share)?;
        let account = account.to_lowercase();
        self.storage.shares.create_share(&account, share).map_err(|error| match error {
            ShareError::ShareAlreadyExists(_) => {
                let message = format!("The account {account} already has a share '{share}': choose another name");
                ApiError::conflict("ShareAlreadyExists", message).about("share")
            }
            error => {
                tracing::error!(account, share, error = &error as &dyn std::error::Error, "cannot create a share");
                ApiError::new(500, "InternalError", "The server could not create the share. See the server's log.")
            }
        })?;
        Ok(ShareSummary { name: share.to_owned(), account, account_id, modified: self.now() })
    }

    /// Records the creation of a share in the history.
    pub async fn record_new_share(&self, created: &ShareSummary) -> Result<(), ApiError> {
        let group = match Scope::of_path(&created.account_id) {
            Scope::Group(group) => group,
            Scope::Subscription | Scope::Workspace(..) => String::new(),
        };
        let resource = format!("{group}/{}/{}", created.account, created.name);
        let commit = self.store.commit(move |txn| {
            txn.add_history("share.created", &resource, Value::Null);
            Ok::<_, ApiError>(())
        });
        commit.await
    }

    /// SAS link to a whole share; becomes invalid with the caller's credential. Blocking: checks that the share exists.
    pub fn share_link(&self, group: &str, account: &str, share: &str) -> Result<ShareLink, ApiError> {
        // Error if the account is not in this group.
        self.account(group, account, "")?;
        let account = account.to_lowercase();
        let missing = || ApiError::new(404, "ShareNotFound", format!("The account {account} has no share '{share}'"));
        if !self.storage.shares.exists(&account, share).unwrap_or(false) {
            return Err(missing());
        }
        let key = self.raw_account_keys(&account).and_then(|keys| keys.into_iter().next()).ok_or_else(missing)?;
        let expires = Timestamp::from_millis((self.now().seconds() + LINK_LIFETIME_S) * 1000);
        let sas = Sas {
            version: LINK_VERSION.to_owned(),
            resource: Resource::Share,
            permissions: "rcwdl".to_owned(),
            // Without fractions of a second, as in the Azure service.
            expiry: expires.to_string().split('.').next().unwrap_or_default().trim_end_matches('Z').to_owned() + "Z",
            by: self.request.caller.credential.clone(),
            ..Sas::default()
        };
        Ok(ShareLink { query: sas.signed_query(&key, &account, share, ""), expires })
    }
}
