//! Storage accounts: a name, two keys, and the shares in its directory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::arm::*;
use corro_model::names::{NameOf, check_name};
use corro_model::{ApiError, GroupKey, Secret, ids::arm};
use corro_store::seal::random;
use corro_store::{AccountRecord, OperationGoal, State};

use super::groups::living_group;
use super::workspaces::{group_name, region};
use super::{App, operations};

const SKUS: [&str; 5] = ["Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"];

impl App {
    /// `base_url` is the address the caller used; the file endpoint is told relative to it.
    pub async fn create_account(
        &self,
        group: String,
        name: String,
        body: AccountCreateParameters,
        base_url: String,
    ) -> Result<StorageAccount, ApiError> {
        check_name(NameOf::StorageAccount, &name)?;
        if !SKUS.iter().any(|sku| sku.eq_ignore_ascii_case(&body.sku.name)) {
            let message = format!("'{}' is not a storage SKU: use one of {}", body.sku.name, SKUS.join(", "));
            return Err(ApiError::invalid("sku.name", message));
        }
        let https_only = body.properties.as_ref().is_some_and(|properties| properties.supports_https_traffic_only);
        if https_only && !base_url.starts_with("https://") {
            let message = "this server speaks plain http: leave supportsHttpsTrafficOnly out, or start it with --tls";
            return Err(ApiError::invalid("properties.supportsHttpsTrafficOnly", message));
        }
        let (app, now) = (self.clone(), self.now());
        let keys = [(); 2].map(|()| self.vault.seal(&purpose(&name), &STANDARD.encode(random::<64>())));
        let commit = self.store.commit(move |txn| {
            let (group_key, _) = living_group(txn, &group)?;
            let old = txn.get::<AccountRecord>(&name);
            match &old {
                Some(old) if old.group != group_key => return Err(taken(&name)),
                Some(old) if old.deleting => return Err(being_deleted(&name)),
                _ => {}
            }
            let record = AccountRecord {
                group: group_key,
                location: old.as_ref().map_or_else(|| region(&body.location), |old| old.location.clone()),
                sku: body.sku.name,
                kind: body.kind,
                tags: body.tags.unwrap_or_default(),
                https_only: body.properties.unwrap_or_default().supports_https_traffic_only,
                created: old.as_ref().map_or(now, |old| old.created),
                keys: old.map_or(keys, |old| old.keys.clone()),
                deleting: false,
            };
            let answer = app.account_answer(txn.state(), &name, &record, &base_url);
            txn.put(name, record);
            Ok(answer)
        });
        commit.await
    }

    pub fn account(&self, group: &str, name: &str, base_url: &str) -> Result<StorageAccount, ApiError> {
        let snapshot = self.snapshot();
        let record = find_account(&snapshot, group, name)?;
        Ok(self.account_answer(&snapshot, name, &record, base_url))
    }

    pub fn accounts(&self, group: Option<&str>, base_url: &str) -> Result<Vec<StorageAccount>, ApiError> {
        let snapshot = self.snapshot();
        let key = group.map(GroupKey::new);
        if let (Some(name), Some(key)) = (group, &key)
            && !snapshot.groups.contains_key(key)
        {
            return Err(ApiError::group_not_found(name));
        }
        let wanted = snapshot.accounts.iter().filter(|(_, account)| key.as_ref().is_none_or(|k| account.group == *k));
        Ok(wanted.map(|(name, account)| self.account_answer(&snapshot, name, account, base_url)).collect())
    }

    pub fn account_keys(&self, group: &str, name: &str) -> Result<AccountKeys, ApiError> {
        let record = find_account(&self.snapshot(), group, name)?;
        let mut keys = Vec::new();
        for (i, sealed) in record.keys.iter().enumerate() {
            let value = self.unseal(&purpose(name), sealed)?;
            keys.push(AccountKey { key_name: format!("key{}", i + 1), value, permissions: "FULL".to_owned() });
        }
        Ok(AccountKeys { keys })
    }

    /// The decoded keys of an account that exists; for checking and making signatures.
    pub fn raw_account_keys(&self, name: &str) -> Option<Vec<Vec<u8>>> {
        let snapshot = self.snapshot();
        let record = snapshot.accounts.get(name).filter(|account| !account.deleting)?;
        let open = |sealed| self.unseal(&purpose(name), sealed).ok();
        record.keys.iter().map(|sealed| STANDARD.decode(open(sealed)?.expose()).ok()).collect()
    }

    /// Does this base64 key belong to the account?
    pub fn is_account_key(&self, name: &str, key: &Secret) -> bool {
        let Ok(given) = STANDARD.decode(key.expose()) else { return false };
        self.raw_account_keys(name).is_some_and(|keys| keys.contains(&given))
    }

    /// The operation's id, or `None` when there is nothing to delete. Its shares go with it.
    pub async fn delete_account(&self, group: String, name: String) -> Result<Option<String>, ApiError> {
        let (now, subscription) = (self.now(), self.subscription.clone());
        let commit = self.store.commit(move |txn| {
            if find_account(txn.state(), &group, &name).is_err() {
                return Ok(None);
            }
            txn.update::<AccountRecord>(&name, |account| account.deleting = true);
            let id = format!("{subscription}${group}${name}");
            Ok(Some(operations::begin(txn, OperationGoal::AccountGone(name), id, now)))
        });
        commit.await
    }

    pub fn account_name_availability(&self, name: &str) -> NameAvailability {
        if let Err(error) = check_name(NameOf::StorageAccount, name) {
            let reason = Some("AccountNameInvalid".to_owned());
            return NameAvailability { name_available: false, reason, message: Some(error.message) };
        }
        if self.snapshot().accounts.contains_key(name) {
            let reason = Some("AlreadyExists".to_owned());
            return NameAvailability { name_available: false, reason, message: Some(taken(name).message) };
        }
        NameAvailability { name_available: true, reason: None, message: None }
    }

    fn account_answer(&self, state: &State, name: &str, record: &AccountRecord, base_url: &str) -> StorageAccount {
        let tier = if record.sku.starts_with("Premium") { "Premium" } else { "Standard" };
        StorageAccount {
            sku: AccountSku { name: record.sku.clone(), tier: Some(tier.to_owned()) },
            kind: record.kind.clone(),
            id: arm::storage_account(&self.subscription, &group_name(state, &record.group), name),
            name: name.to_owned(),
            resource_type: STORAGE_ACCOUNT_TYPE.to_owned(),
            location: record.location.clone(),
            tags: record.tags.clone(),
            properties: AccountProperties {
                provisioning_state: if record.deleting { "Deleting" } else { "Succeeded" }.to_owned(),
                creation_time: record.created,
                primary_location: record.location.clone(),
                status_of_primary: "available".to_owned(),
                // One address for both: a request says itself that it is about a container.
                primary_endpoints: ["blob", "file"].map(|s| (s.to_owned(), format!("{base_url}/{name}/"))).into(),
                supports_https_traffic_only: record.https_only,
            },
        }
    }
}

fn find_account(state: &State, group: &str, name: &str) -> Result<AccountRecord, ApiError> {
    let record = state.accounts.get(name).filter(|account| account.group == GroupKey::new(group));
    record.map(|record| (**record).clone()).ok_or_else(|| ApiError::account_not_found(group, name))
}

fn purpose(name: &str) -> String {
    format!("account key {name}")
}

fn taken(name: &str) -> ApiError {
    ApiError::conflict("StorageAccountAlreadyTaken", format!("The storage account named {name} is already taken."))
}

fn being_deleted(name: &str) -> ApiError {
    let message = format!("The storage account {name} is being deleted: wait until it is gone, then try again");
    ApiError::conflict("ResourceBeingDeleted", message)
}
