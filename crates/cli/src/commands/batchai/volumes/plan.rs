//! Completes volumes with known account names and keys, and replaces placeholders. Pure; returns which keys must be looked up.

use corro_model::Secret;
use corro_model::batchai::{AzureFileShareReference, MountVolumes, StorageCredentials};

use super::account::EffectiveAccount;
use crate::error::CliError;

const ACCOUNT_PLACEHOLDER: &str = "<AZURE_BATCHAI_STORAGE_ACCOUNT>";
const KEY_PLACEHOLDER: &str = "<AZURE_BATCHAI_STORAGE_KEY>";

/// A volume whose key has to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeIndex {
    Share(usize),
    Container(usize),
}

pub fn credentials_at(volumes: &mut MountVolumes, place: VolumeIndex) -> &mut Option<StorageCredentials> {
    match place {
        VolumeIndex::Share(at) => &mut volumes.azure_file_shares[at].credentials,
        VolumeIndex::Container(at) => &mut volumes.azure_blob_file_systems[at].credentials,
    }
}

pub fn with_key(key: Secret) -> StorageCredentials {
    StorageCredentials { account_key: Some(key), account_key_secret_reference: None }
}

/// Replaces placeholders and adds known accounts and keys. Returns the accounts whose keys must be looked up.
pub fn plan(
    mut volumes: MountVolumes,
    account: &EffectiveAccount,
) -> Result<(MountVolumes, Vec<(VolumeIndex, String)>), CliError> {
    let mut wanted = Vec::new();
    for (at, share) in volumes.azure_file_shares.iter_mut().enumerate() {
        let mut name = account_of(share)?;
        if name == ACCOUNT_PLACEHOLDER {
            name = account.name()?.to_owned();
        }
        if share.azure_file_url.contains(ACCOUNT_PLACEHOLDER) {
            share.azure_file_url = share.azure_file_url.replace(ACCOUNT_PLACEHOLDER, account.name()?);
        }
        if let Some(name) = fill_credentials(&name, &mut share.credentials, account)? {
            wanted.push((VolumeIndex::Share(at), name));
        }
        share.account_name = Some(name);
    }
    for (at, container) in volumes.azure_blob_file_systems.iter_mut().enumerate() {
        let mut name = container.account_name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(CliError::new(
                "Ill-formed Azure Blob File System reference in the configuration file - no account name provided.",
            )
            .hint(format!("give the container '{}' an accountName", container.container_name)));
        }
        if name == ACCOUNT_PLACEHOLDER {
            name = account.name()?.to_owned();
        }
        if let Some(name) = fill_credentials(&name, &mut container.credentials, account)? {
            wanted.push((VolumeIndex::Container(at), name));
        }
        container.account_name = Some(name);
    }
    Ok((volumes, wanted))
}

/// Returns the account whose key must be looked up, if any.
fn fill_credentials(
    name: &str,
    credentials: &mut Option<StorageCredentials>,
    account: &EffectiveAccount,
) -> Result<Option<String>, CliError> {
    let given = credentials.as_ref().and_then(|given| given.account_key.as_ref());
    if given.is_some_and(|key| key.expose() == KEY_PLACEHOLDER) {
        *credentials = Some(with_key(account.key()?.clone()));
    }
    // `"credentials": {}` counts as missing.
    let has_some = credentials
        .as_ref()
        .is_some_and(|given| given.account_key.is_some() || given.account_key_secret_reference.is_some());
    if has_some {
        return Ok(None);
    }
    match &account.key {
        Some(key) if account.name.as_deref() == Some(name) => {
            *credentials = Some(with_key(key.clone()));
            Ok(None)
        }
        _ => Ok(Some(name.to_owned())),
    }
}

/// `accountName`, or the first label of the URL's host, which must have more than one.
fn account_of(share: &AzureFileShareReference) -> Result<String, CliError> {
    if let Some(name) = share.account_name.as_deref().filter(|name| !name.is_empty()) {
        return Ok(name.to_owned());
    }
    let url = &share.azure_file_url;
    if url.is_empty() {
        return Err(CliError::new("Azure File URL cannot absent or be empty"));
    }
    let host = url.split_once("://").and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
    match host.split_once('.') {
        Some((account, _)) if !account.is_empty() => Ok(account.to_owned()),
        _ => Err(CliError::new(format!("Ill-formed Azure File URL \"{url}\""))
            .hint("write it as https://ACCOUNT.file.core.windows.net/SHARE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn account(name: Option<&str>, key: Option<&str>) -> EffectiveAccount {
        EffectiveAccount { name: name.map(str::to_owned), key: key.map(Secret::new), look_up: false }
    }

    fn share(fields: Value) -> MountVolumes {
        serde_json::from_value(json!({ "azureFileShares": [fields] })).expect("a share")
    }

    fn check(fields: Value, account: EffectiveAccount, expected: Value, looked_up: &[&str]) {
        let (volumes, wanted) = plan(share(fields), &account).expect("planned");
        let shown = serde_json::to_value(&volumes.azure_file_shares[0]).expect("JSON");
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&shown[key], value, "{key}");
        }
        let wanted: Vec<&str> = wanted.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(wanted, looked_up);
    }

    #[test]
    fn the_share_of_the_tutorial() {
        check(
            json!({"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
                   "relativeMountPath": "myshare"}),
            account(Some("mystorageaccount"), Some("a2V5")),
            json!({"accountName": "mystorageaccount",
                   "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
                   "credentials": {"accountKey": "a2V5"}, "relativeMountPath": "myshare"}),
            &[],
        );
    }

    #[test]
    fn keys_given_replaced_and_looked_up() {
        let url = "https://other.file.core.windows.net/s";
        let mine = || account(Some("mine"), Some("a2V5"));
        check(
            json!({"azureFileUrl": url, "relativeMountPath": "s", "credentials": {"accountKey": "own"}}),
            mine(),
            json!({"accountName": "other", "credentials": {"accountKey": "own"}}),
            &[],
        );
        check(
            json!({"azureFileUrl": url, "relativeMountPath": "s", "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}}),
            mine(),
            json!({"credentials": {"accountKey": "a2V5"}}),
            &[],
        );
        check(
            json!({"azureFileUrl": url, "relativeMountPath": "s"}),
            mine(),
            json!({"accountName": "other", "credentials": null}),
            &["other"],
        );
        check(
            json!({"azureFileUrl": "https://x/s", "accountName": "<AZURE_BATCHAI_STORAGE_ACCOUNT>",
                   "relativeMountPath": "s", "credentials": {}}),
            account(Some("mine"), None),
            json!({"accountName": "mine"}),
            &["mine"],
        );
    }

    #[test]
    fn references_that_name_no_account() {
        let plan = |volumes: Value| {
            plan(serde_json::from_value(volumes).expect("volumes"), &account(None, None))
                .expect_err("no account")
                .message
        };
        let share = |url: &str| plan(json!({"azureFileShares": [{"azureFileUrl": url, "relativeMountPath": "s"}]}));
        assert_eq!(share(""), "Azure File URL cannot absent or be empty");
        assert_eq!(share("https://host/s"), "Ill-formed Azure File URL \"https://host/s\"");
        let blob = plan(json!({"azureBlobFileSystems": [{"containerName": "c", "relativeMountPath": "c"}]}));
        assert!(blob.starts_with("Ill-formed Azure Blob File System reference"), "{blob}");
    }

    #[test]
    fn what_is_missing_is_said_in_the_words_of_az() {
        let placeholder = json!({"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/s",
                                 "relativeMountPath": "s"});
        let error = plan(share(placeholder), &account(None, None)).expect_err("no account");
        assert!(
            error.message.starts_with("Please configure Azure Storage account name via AZURE_BATCHAI_STORAGE_ACCOUNT")
        );
        let key = json!({"azureFileUrl": "https://a.b/s", "relativeMountPath": "s",
                         "credentials": {"accountKey": "<AZURE_BATCHAI_STORAGE_KEY>"}});
        let error = plan(share(key), &account(Some("a"), None)).expect_err("no key");
        assert!(error.message.starts_with("Please configure Azure Storage account key via AZURE_BATCHAI_STORAGE_KEY"));
    }
}
