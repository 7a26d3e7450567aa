//! Storage accounts: create, update, get, list, delete, and their two access keys. An account's shares are in its
//! directory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::arm::*;
use corro_model::batchai::{Usage, UsageName};
use corro_model::names::{NameKind, check_location, check_name, region};
use corro_model::validate::check_tags;
use corro_model::{ApiError, GroupKey, Secret, Timestamp, ids::arm};
use corro_store::encryption::random;
use corro_store::{AccountRecord, OperationGoal, State};
use serde_json::json;

use crate::app::App;
use crate::app::resources::lookup::{find_active_group, group_name, location_conflict};
use crate::app::resources::operations;

/// Account limit that the Azure service reported per region. Reported in usages, not enforced.
const ACCOUNT_LIMIT: i64 = 250;
const KINDS: [&str; 3] = ["Storage", "StorageV2", "BlobStorage"];
const SKUS: [&str; 5] = ["Standard_LRS", "Standard_GRS", "Standard_RAGRS", "Standard_ZRS", "Premium_LRS"];

impl App {
    /// Creates or replaces an account. `base_url` is the URL that the caller used; the endpoints are relative to it.
    pub async fn create_account(
        &self,
        group: String,
        name: String,
        body: AccountCreateParameters,
        base_url: String,
    ) -> Result<StorageAccount, ApiError> {
        check_name(NameKind::StorageAccount, &name)?;
        let sku = canonical_value("sku.name", "a storage SKU", &SKUS, &body.sku.name)?;
        let kind = canonical_value("kind", "a kind of account", &KINDS, &body.kind)?;
        let properties = body.properties.unwrap_or_default();
        check_https_only(properties.supports_https_traffic_only, &base_url)?;
        let location = check_location(&body.location)?;
        body.tags.as_ref().map_or(Ok(()), check_tags)?;
        let identity = body.identity.map(|identity| self.account_identity(identity));
        let (app, now) = (self.clone(), self.now());
        let keys =
            [(); 2].map(|()| self.installation.vault.seal(&key_purpose(&name), &STANDARD.encode(random::<64>())));
        let commit = self.store.commit(move |txn| {
            let (group_key, _) = find_active_group(txn, &group)?;
            let old = txn.get::<AccountRecord>(&name);
            match &old {
                Some(old) if old.group != group_key => return Err(name_taken(&name)),
                Some(old) if old.deleting => return Err(being_deleted(&name)),
                Some(old) if old.location != location => {
                    let (location_now, group) = (&old.location, group_name(txn.state(), &group_key));
                    return Err(location_conflict(&group, &name, location_now, &location));
                }
                _ => {}
            }
            let created = old.as_ref().map_or(now, |old| old.created);
            let settings = complete_settings(&kind, properties.settings, created)?;
            let record = AccountRecord {
                group: group_key,
                location,
                sku,
                kind,
                tags: body.tags.unwrap_or_default(),
                https_only: properties.supports_https_traffic_only,
                settings,
                // The identity of an account never changes.
                identity: old.as_ref().and_then(|old| old.identity.clone()).or(identity),
                created,
                keys: old.map_or(keys, |old| old.keys.clone()),
                deleting: false,
            };
            let response = app.account_response(txn.state(), &name, &record, &base_url);
            txn.put(name, record);
            Ok(response)
        });
        commit.await
    }

    /// Changes the fields that the body has and keeps the others.
    pub async fn update_account(
        &self,
        group: String,
        name: String,
        body: AccountUpdateParameters,
        base_url: String,
    ) -> Result<StorageAccount, ApiError> {
        body.tags.as_ref().map_or(Ok(()), check_tags)?;
        let sku = body.sku.map(|sku| canonical_value("sku.name", "a storage SKU", &SKUS, &sku.name)).transpose()?;
        let kind = body.kind.map(|kind| canonical_value("kind", "a kind of account", &KINDS, &kind)).transpose()?;
        let properties = body.properties.unwrap_or_default();
        check_https_only(properties.supports_https_traffic_only == Some(true), &base_url)?;
        let identity = body.identity.map(|identity| self.account_identity(identity));
        let app = self.clone();
        let commit = self.store.commit(move |txn| {
            let mut record = find_account(txn.state(), &group, &name)?;
            if record.deleting {
                return Err(being_deleted(&name));
            }
            let (old, new) = (record.settings, properties.settings);
            record.kind = kind.unwrap_or(record.kind);
            let settings = AccountSettings {
                access_tier: new.access_tier.or(old.access_tier),
                custom_domain: new.custom_domain.or(old.custom_domain),
                encryption: new.encryption.or(old.encryption),
                network_rules: new.network_rules.or(old.network_rules),
            };
            record.settings = complete_settings(&record.kind, settings, record.created)?;
            record.sku = sku.unwrap_or(record.sku);
            record.tags = body.tags.unwrap_or(record.tags);
            record.https_only = properties.supports_https_traffic_only.unwrap_or(record.https_only);
            record.identity = record.identity.or(identity);
            let response = app.account_response(txn.state(), &name, &record, &base_url);
            txn.put(name, record);
            Ok(response)
        });
        commit.await
    }

    fn account_identity(&self, given: AccountIdentity) -> AccountIdentity {
        let (principal, tenant) = (uuid::Uuid::new_v4().to_string(), self.installation.tenant.to_string());
        AccountIdentity { principal_id: Some(principal), tenant_id: Some(tenant), ..given }
    }

    /// Number of accounts in a region, or in the whole subscription.
    pub fn storage_usages(&self, location: Option<&str>) -> Vec<Usage> {
        let here = location.map(region);
        let snapshot = self.snapshot();
        let counted = snapshot.accounts.values().filter(|account| here.as_ref().is_none_or(|l| account.location == *l));
        let name = UsageName { value: "StorageAccounts".to_owned(), localized_value: "Storage Accounts".to_owned() };
        let current_value = counted.count() as i32;
        vec![Usage { unit: "Count".to_owned(), current_value, limit: ACCOUNT_LIMIT, name }]
    }

    pub fn account(&self, group: &str, name: &str, base_url: &str) -> Result<StorageAccount, ApiError> {
        let snapshot = self.snapshot();
        let record = find_account(&snapshot, group, name)?;
        Ok(self.account_response(&snapshot, name, &record, base_url))
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
        Ok(wanted.map(|(name, account)| self.account_response(&snapshot, name, account, base_url)).collect())
    }

    pub fn account_keys(&self, group: &str, name: &str) -> Result<AccountKeys, ApiError> {
        let record = find_account(&self.snapshot(), group, name)?;
        let mut keys = Vec::new();
        for (i, sealed) in record.keys.iter().enumerate() {
            let value = self.unseal(&key_purpose(name), sealed)?;
            keys.push(AccountKey { key_name: format!("key{}", i + 1), value, permissions: "Full".to_owned() });
        }
        Ok(AccountKeys { keys })
    }

    /// Replaces one of the two keys. Signatures by the old key are rejected from now on.
    pub async fn regenerate_key(&self, group: String, name: String, key: String) -> Result<AccountKeys, ApiError> {
        let idx = match key.to_ascii_lowercase().as_str() {
            "key1" => 0,
            "key2" => 1,
            _ => {
                let message = format!("'{key}' is not the name of a key: use key1 or key2");
                return Err(ApiError::invalid("keyName", message));
            }
        };
        let fresh = self.installation.vault.seal(&key_purpose(&name), &STANDARD.encode(random::<64>()));
        let (of_group, of_name) = (group.clone(), name.clone());
        let commit = self.store.commit(move |txn| {
            if find_account(txn.state(), &of_group, &of_name)?.deleting {
                return Err(being_deleted(&of_name));
            }
            txn.update::<AccountRecord>(&of_name, |account| account.keys[idx] = fresh);
            let resource = format!("{}/{of_name}", GroupKey::new(&of_group));
            txn.add_history("key.regenerated", &resource, json!({"key": key.to_ascii_lowercase()}));
            Ok(())
        });
        commit.await?;
        self.account_keys(&group, &name)
    }

    /// Decoded keys of an existing account, to verify and make signatures.
    pub fn raw_account_keys(&self, name: &str) -> Option<Vec<Vec<u8>>> {
        self.decode_account_keys(name, self.snapshot().accounts.get(name)?)
    }

    /// Decoded keys of an account record.
    pub fn decode_account_keys(&self, name: &str, record: &AccountRecord) -> Option<Vec<Vec<u8>>> {
        let open = |sealed| self.unseal(&key_purpose(name), sealed).ok();
        let decoded = record.keys.iter().map(|sealed| STANDARD.decode(open(sealed)?.expose()).ok());
        (!record.deleting).then(|| decoded.collect())?
    }

    /// Whether this base64 key is one of the account's.
    pub fn is_account_key(&self, name: &str, key: &Secret) -> bool {
        let Ok(given) = STANDARD.decode(key.expose()) else { return false };
        self.raw_account_keys(name).is_some_and(|keys| keys.contains(&given))
    }

    /// Returns the operation's id, or `None` if there is nothing to delete. Deletes the account's shares too.
    pub async fn delete_account(&self, group: String, name: String) -> Result<Option<String>, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            if find_account(txn.state(), &group, &name).is_err() {
                return Ok(None);
            }
            txn.update::<AccountRecord>(&name, |account| account.deleting = true);
            let id = format!("{subscription}${group}${name}");
            Ok(Some(operations::begin_operation(&app, txn, OperationGoal::AccountGone(name.clone()), id, now)))
        });
        commit.await
    }

    pub fn account_name_availability(&self, name: &str) -> NameAvailability {
        if let Err(error) = check_name(NameKind::StorageAccount, name) {
            let reason = Some("AccountNameInvalid".to_owned());
            return NameAvailability { name_available: false, reason, message: Some(error.message) };
        }
        if self.snapshot().accounts.contains_key(name) {
            let reason = Some("AlreadyExists".to_owned());
            return NameAvailability { name_available: false, reason, message: Some(name_taken(name).message) };
        }
        NameAvailability { name_available: true, reason: None, message: None }
    }

    fn account_response(&self, state: &State, name: &str, record: &AccountRecord, base_url: &str) -> StorageAccount {
        let tier = if record.sku.starts_with("Premium") { "Premium" } else { "Standard" };
        StorageAccount {
            sku: AccountSku { name: record.sku.clone(), tier: Some(tier.to_owned()) },
            kind: record.kind.clone(),
            identity: record.identity.clone(),
            id: arm::storage_account(&self.installation.subscription, &group_name(state, &record.group), name),
            name: name.to_owned(),
            resource_type: STORAGE_ACCOUNT_TYPE.to_owned(),
            location: record.location.clone(),
            tags: record.tags.clone(),
            properties: AccountProperties {
                provisioning_state: if record.deleting { "Deleting" } else { "Succeeded" }.to_owned(),
                creation_time: record.created,
                primary_location: record.location.clone(),
                status_of_primary: "available".to_owned(),
                // Queue and table endpoints are listed as by the Azure service, but not served.
                primary_endpoints: [("blob", ".blob"), ("file", ""), ("queue", ""), ("table", "")]
                    .map(|(service, suffix)| (service.to_owned(), format!("{base_url}/{name}{suffix}/")))
                    .into(),
                supports_https_traffic_only: record.https_only,
                settings: record.settings.clone(),
            },
        }
    }
}

fn find_account(state: &State, group: &str, name: &str) -> Result<AccountRecord, ApiError> {
    let record = state.accounts.get(name).filter(|account| account.group == GroupKey::new(group));
    record.map(|record| (**record).clone()).ok_or_else(|| ApiError::account_not_found(group, name))
}

fn check_https_only(wanted: bool, base_url: &str) -> Result<(), ApiError> {
    if wanted && !base_url.starts_with("https://") {
        let message = "this server serves plain HTTP: leave supportsHttpsTrafficOnly out, or start it with --tls";
        return Err(ApiError::invalid("properties.supportsHttpsTrafficOnly", message));
    }
    Ok(())
}

/// Canonical spelling of a value that is accepted in any case.
fn canonical_value(field: &str, what: &str, words: &[&str], given: &str) -> Result<String, ApiError> {
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(given));
    known
        .map(|word| (*word).to_owned())
        .ok_or_else(|| ApiError::invalid(field, format!("'{given}' is not {what}: use one of {}", words.join(", "))))
}

/// Validates the given settings and fills in the service's defaults.
fn complete_settings(kind: &str, given: AccountSettings, now: Timestamp) -> Result<AccountSettings, ApiError> {
    let tier = given
        .access_tier
        .map(|tier| canonical_value("properties.accessTier", "an access tier", &["Hot", "Cool"], &tier));
    let access_tier = match (tier.transpose()?, kind) {
        (Some(_), "Storage") => {
            let message = "an account of kind Storage has no access tier: leave it out, or use kind StorageV2";
            return Err(ApiError::invalid("properties.accessTier", message));
        }
        (None, "StorageV2" | "BlobStorage") => Some("Hot".to_owned()),
        (tier, _) => tier,
    };
    let network_rules = given.network_rules.unwrap_or_default();
    let closed = !network_rules.default_action.eq_ignore_ascii_case("Allow");
    if closed || !network_rules.ip_rules.is_empty() || !network_rules.virtual_network_rules.is_empty() {
        let message = "network rules are not supported and would not be enforced: leave them out";
        return Err(ApiError::invalid("properties.networkAcls", message));
    }
    let on = EncryptedService { enabled: true, last_enabled_time: Some(now) };
    let mut encryption = given.encryption.unwrap_or_else(|| AccountEncryption {
        services: Default::default(),
        key_source: "Microsoft.Storage".to_owned(),
    });
    // These two services exist; as in Azure, their encryption is always on.
    for service in ["blob", "file"] {
        encryption.services.insert(service.to_owned(), on.clone());
    }
    Ok(AccountSettings {
        access_tier,
        custom_domain: given.custom_domain,
        encryption: Some(encryption),
        network_rules: Some(network_rules),
    })
}

fn key_purpose(name: &str) -> String {
    format!("account key {name}")
}

fn name_taken(name: &str) -> ApiError {
    ApiError::conflict("StorageAccountAlreadyTaken", format!("The storage account named {name} is already taken."))
}

fn being_deleted(name: &str) -> ApiError {
    let message = format!("The storage account {name} is being deleted: wait until it is gone, then try again");
    ApiError::conflict("ResourceBeingDeleted", message)
}
