//! Volumes of clusters and jobs before they are sent: fills in placeholders, account names and keys, and adds the
//! volumes of `--afs-name` and its siblings. Entered by `cluster create` and `job create`. `plan` decides without
//! asking anybody; only `fill` talks to the server, for keys.

mod account;

use clap::Args;
use corro_client::Client;
use corro_model::Secret;
use corro_model::batchai::{
    AzureBlobFileSystemReference, AzureFileShareReference, FileServerReference, MountVolumes, ResourceId,
    StorageCredentials,
};

use super::storage_login::find_account_key;
use crate::failure::Failure;
use account::EffectiveAccount;

const ACCOUNT_PLACEHOLDER: &str = "<AZURE_BATCHAI_STORAGE_ACCOUNT>";
const KEY_PLACEHOLDER: &str = "<AZURE_BATCHAI_STORAGE_KEY>";

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Storage Mount")]
pub struct MountArgs {
    /// Storage account of the shares [default: AZURE_BATCHAI_STORAGE_ACCOUNT]
    #[arg(long, value_name = "ACCOUNT")]
    pub storage_account_name: Option<String>,
    /// Its key; looked up when not given [default: AZURE_BATCHAI_STORAGE_KEY]
    #[arg(long, value_name = "KEY")]
    pub storage_account_key: Option<String>,
    /// File share to mount, besides those of the configuration file
    #[arg(long, value_name = "SHARE")]
    pub afs_name: Option<String>,
    /// Where to mount it, below the mount root
    #[arg(long, value_name = "PATH", default_value = "afs")]
    pub afs_mount_path: String,
    /// Blob container to mount
    #[arg(long, value_name = "CONTAINER")]
    pub bfs_name: Option<String>,
    /// Where to mount it, below the mount root
    #[arg(long, value_name = "PATH", default_value = "bfs")]
    pub bfs_mount_path: String,
    /// File server to mount: name or id
    #[arg(long, value_name = "NAME")]
    pub nfs: Option<String>,
    /// Where to mount it, below the mount root
    #[arg(long, value_name = "PATH", default_value = "nfs")]
    pub nfs_mount_path: String,
}

/// Completes the volumes of a file: placeholders, command line volumes, accounts and keys.
pub async fn fill(
    client: &Client,
    volumes: Option<MountVolumes>,
    args: &MountArgs,
    (group, workspace): (&str, &str),
) -> Result<Option<MountVolumes>, Failure> {
    let mut account = EffectiveAccount::of(args);
    let volumes = with_command_line(volumes, args, &account, &file_server_id(client, group, workspace, args))?;
    let Some(volumes) = volumes else { return Ok(None) };
    if let Some(name) = account.name.clone().filter(|_| account.look_up) {
        account.key = Some(find_account_key(client, &name).await?);
    }
    let (mut volumes, wanted) = plan(volumes, &account)?;
    for (place, name) in wanted {
        let key = find_account_key(client, &name).await?;
        *credentials_at(&mut volumes, place) = Some(with_key(key));
    }
    Ok(Some(volumes))
}

/// A volume whose key has to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Share(usize),
    Container(usize),
}

fn credentials_at(volumes: &mut MountVolumes, place: Place) -> &mut Option<StorageCredentials> {
    match place {
        Place::Share(at) => &mut volumes.azure_file_shares[at].credentials,
        Place::Container(at) => &mut volumes.azure_blob_file_systems[at].credentials,
    }
}

fn with_key(key: Secret) -> StorageCredentials {
    StorageCredentials { account_key: Some(key), account_key_secret_reference: None }
}

/// Replaces placeholders and fills in what is known; returns the accounts whose keys are still wanted.
fn plan(
    mut volumes: MountVolumes,
    account: &EffectiveAccount,
) -> Result<(MountVolumes, Vec<(Place, String)>), Failure> {
    let mut wanted = Vec::new();
    for (at, share) in volumes.azure_file_shares.iter_mut().enumerate() {
        let mut name = share.account().unwrap_or_default().to_owned();
        if name == ACCOUNT_PLACEHOLDER {
            name = account.name()?.to_owned();
        }
        if share.azure_file_url.contains(ACCOUNT_PLACEHOLDER) {
            share.azure_file_url = share.azure_file_url.replace(ACCOUNT_PLACEHOLDER, account.name()?);
        }
        if let Some(name) = fill_credentials(&name, &mut share.credentials, account)? {
            wanted.push((Place::Share(at), name));
        }
        share.account_name = Some(name);
    }
    for (at, container) in volumes.azure_blob_file_systems.iter_mut().enumerate() {
        let mut name = container.account_name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(Failure::new(format!(
                "no accountName is given for the blob container '{}'",
                container.container_name
            )));
        }
        if name == ACCOUNT_PLACEHOLDER {
            name = account.name()?.to_owned();
        }
        if let Some(name) = fill_credentials(&name, &mut container.credentials, account)? {
            wanted.push((Place::Container(at), name));
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
) -> Result<Option<String>, Failure> {
    let given = credentials.as_ref().and_then(|given| given.account_key.as_ref());
    if given.is_some_and(|key| key.expose() == KEY_PLACEHOLDER) {
        *credentials = Some(with_key(account.key()?.clone()));
    }
    // `"credentials": {}` says nothing either.
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

fn file_server_id(client: &Client, group: &str, workspace: &str, args: &MountArgs) -> String {
    match args.nfs.as_deref().unwrap_or_default() {
        id if id.starts_with('/') => id.to_owned(),
        name => format!(
            "/subscriptions/{}/resourceGroups/{group}/providers/Microsoft.BatchAI/workspaces/{workspace}/fileservers/{name}",
            client.subscription()
        ),
    }
}

/// Appends the volumes of `--afs-name`, `--bfs-name` and `--nfs`.
fn with_command_line(
    volumes: Option<MountVolumes>,
    args: &MountArgs,
    account: &EffectiveAccount,
    file_server: &str,
) -> Result<Option<MountVolumes>, Failure> {
    if args.afs_name.is_none() && args.bfs_name.is_none() && args.nfs.is_none() {
        return Ok(volumes);
    }
    let mut volumes = volumes.unwrap_or_default();
    if let Some(share) = &args.afs_name {
        let name = account.name()?;
        volumes.azure_file_shares.push(AzureFileShareReference {
            account_name: Some(name.to_owned()),
            azure_file_url: format!("https://{name}.file.core.windows.net/{share}"),
            credentials: None,
            relative_mount_path: args.afs_mount_path.clone(),
            file_mode: "0777".to_owned(),
            directory_mode: "0777".to_owned(),
        });
    }
    if let Some(container) = &args.bfs_name {
        volumes.azure_blob_file_systems.push(AzureBlobFileSystemReference {
            account_name: Some(account.name()?.to_owned()),
            container_name: container.clone(),
            credentials: None,
            relative_mount_path: args.bfs_mount_path.clone(),
            mount_options: None,
        });
    }
    if args.nfs.is_some() {
        volumes.file_servers.push(FileServerReference {
            file_server: ResourceId { id: file_server.to_owned() },
            source_directory: None,
            relative_mount_path: args.nfs_mount_path.clone(),
            mount_options: Some("rw".to_owned()),
        });
    }
    Ok(Some(volumes))
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

    #[test]
    fn volumes_of_the_command_line_follow_those_of_the_file() {
        let args = MountArgs {
            storage_account_name: Some("acc".into()),
            afs_name: Some("s2".into()),
            afs_mount_path: "afs".into(),
            ..MountArgs::default()
        };
        let file = share(json!({"azureFileUrl": "https://a.b/s", "relativeMountPath": "s"}));
        let volumes =
            with_command_line(Some(file), &args, &EffectiveAccount::of(&args), "").expect("fine").expect("some");
        assert_eq!(volumes.azure_file_shares.len(), 2);
        assert_eq!(volumes.azure_file_shares[1].azure_file_url, "https://acc.file.core.windows.net/s2");
        assert_eq!(volumes.azure_file_shares[1].relative_mount_path, "afs");
        assert_eq!(with_command_line(None, &MountArgs::default(), &account(None, None), "").expect("fine"), None);
    }
}
