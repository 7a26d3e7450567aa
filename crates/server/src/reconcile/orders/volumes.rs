//! The volumes of a cluster or a job as its nodes are told of them: where each lies, or why it cannot be mounted.

use corro_model::Secret;
use corro_model::batchai::{AzureBlobFileSystemReference, AzureFileShareReference, BatchAiError, MountVolumes};
use corro_model::node::{Volume, VolumeKind, VolumeSource};

use crate::app::App;
use crate::app::secrets::Bag;

pub fn volumes_of(app: &App, volumes: Option<&MountVolumes>, bag: &Bag) -> Vec<Volume> {
    let Some(volumes) = volumes else { return Vec::new() };
    let shares = volumes.azure_file_shares.iter().map(|share| share_volume(app, share, bag));
    let containers = volumes.azure_blob_file_systems.iter().map(|blob| container_volume(app, blob, bag));
    shares.chain(containers).chain(unsupported_volumes(volumes)).collect()
}

/// Kinds that are accepted and that nodes cannot mount yet: whoever needs one is told so.
fn unsupported_volumes(volumes: &MountVolumes) -> impl Iterator<Item = Volume> {
    let volume = |relative: &str, label: String, code: &str, message: &str, what: &str| {
        let info = format!(
            "Could not mount {label} at {relative}: {what} cannot be mounted yet, use azureFileShares or azureBlobFileSystems"
        );
        let error = BatchAiError::new(code, message).with("Info", info);
        let (kind, source) = (VolumeKind::default(), VolumeSource::Unsupported { error });
        Volume { kind, relative: relative.to_owned(), label, source }
    };
    let servers = volumes.file_servers.iter().map(move |server| {
        let message = "Unable to mount file server";
        let label = server.file_server.id.clone();
        volume(&server.relative_mount_path, label, "FileServerMountError", message, "file servers")
    });
    let unmanaged = volumes.unmanaged_file_systems.iter().map(move |system| {
        let message = "Unable to mount unmanaged file system";
        let label = "an unmanaged file system".to_owned();
        volume(&system.relative_mount_path, label, "UnmanagedMountError", message, "unmanaged file systems")
    });
    servers.chain(unmanaged)
}

fn container_volume(app: &App, blob: &AzureBlobFileSystemReference, bag: &Bag) -> Volume {
    let (account, name) = (blob.account_name.as_deref().unwrap_or_default(), &blob.container_name);
    let source = match check_key(app, account, bag.mounts.get(&blob.relative_mount_path)) {
        Err(why) => VolumeSource::Unavailable { why },
        Ok(()) => match app.shares.container_host_path(account, name).ok().filter(|path| path.is_dir()) {
            Some(path) => VolumeSource::LocalDirectory(path),
            None => VolumeSource::Unavailable { why: format!("Azure Blob Container '{name}' doesn't exist") },
        },
    };
    let label = format!("{name} container from {account} account");
    Volume { kind: VolumeKind::Container, relative: blob.relative_mount_path.clone(), label, source }
}

fn share_volume(app: &App, share: &AzureFileShareReference, bag: &Bag) -> Volume {
    let account = share.account().unwrap_or_default();
    let name = share.share_name().unwrap_or_default();
    let host =
        share.azure_file_url.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let source = match local_source(app, account, name, bag.mounts.get(&share.relative_mount_path)) {
        Ok(path) => VolumeSource::LocalDirectory(path),
        Err(why) => VolumeSource::Unavailable { why },
    };
    let label = format!("//{host}/{name}");
    Volume { kind: VolumeKind::FileShare, relative: share.relative_mount_path.clone(), label, source }
}

/// Where the share lies on this machine, if whoever asked for it has a key of its account.
fn local_source(app: &App, account: &str, share: &str, key: Option<&Secret>) -> Result<std::path::PathBuf, String> {
    check_key(app, account, key)?;
    let missing = || {
        format!(
            "there is no share '{share}' in the account '{account}': create it with 'corro storage share create -n {share} --account-name {account}'"
        )
    };
    app.shares.host_path(account, share).ok().filter(|path| path.is_dir()).ok_or_else(missing)
}

fn check_key(app: &App, account: &str, key: Option<&Secret>) -> Result<(), String> {
    if app.raw_account_keys(account).is_none() {
        return Err(format!(
            "there is no storage account '{account}': create it with 'corro storage account create -g GROUP -n {account}'"
        ));
    }
    match key {
        None => Err(format!(
            "no account key was given for '{account}': give accountKey in the mount's credentials (keys in key vaults \
             cannot be fetched)"
        )),
        Some(key) if !app.is_account_key(account, key) => {
            Err(format!("the account key given for '{account}' is not one of its keys"))
        }
        Some(_) => Ok(()),
    }
}
