//! Where the volumes of a cluster or job lie: which directory of this machine, which command, or why they cannot be mounted.
//! Entered by `orders`. Looks at disks, mounts nothing.

use corro_model::batchai::{
    AzureBlobFileSystemReference, AzureFileShareReference, FileServerReference, MountVolumes,
    UnmanagedFileSystemReference,
};
use corro_model::ids::arm;
use corro_model::node::{NfsExport, Volume, VolumeKind, VolumeSource};
use corro_model::{Secret, mount};
use corro_store::State;

use crate::app::App;
use crate::app::file_servers::find_file_server;
use crate::app::secrets::Bag;

/// In the order in which the service mounted them.
pub fn volumes_of(app: &App, state: &State, volumes: Option<&MountVolumes>, bag: &Bag) -> Vec<Volume> {
    let Some(volumes) = volumes else { return Vec::new() };
    let shares = volumes.azure_file_shares.iter().map(|share| share_volume(app, share, bag));
    let containers = volumes.azure_blob_file_systems.iter().map(|blob| container_volume(app, blob, bag));
    let servers = volumes.file_servers.iter().map(|server| server_volume(app, state, server));
    let unmanaged = volumes.unmanaged_file_systems.iter().map(unmanaged_volume);
    shares.chain(containers).chain(servers).chain(unmanaged).collect()
}

fn unmanaged_volume(system: &UnmanagedFileSystemReference) -> Volume {
    Volume {
        kind: VolumeKind::Unmanaged,
        relative: system.relative_mount_path.clone(),
        // Not its command: people put passwords there.
        label: "the unmanaged file system".to_owned(),
        source: VolumeSource::Command { command: system.mount_command.clone() },
        read_only: false,
    }
}

fn server_volume(app: &App, state: &State, server: &FileServerReference) -> Volume {
    let named = arm::parse_file_server(&server.file_server.id);
    let name = named.as_ref().map_or(server.file_server.id.as_str(), |named| named.name);
    let options = server.mount_options.clone().unwrap_or_default();
    Volume {
        kind: VolumeKind::FileServer,
        relative: server.relative_mount_path.clone(),
        label: match server.source_directory.as_deref().unwrap_or_default() {
            "" => format!("file server {name}"),
            inside => format!("directory {inside} of file server {name}"),
        },
        read_only: mount::is_read_only(&options),
        source: server_source(app, state, server, options).unwrap_or_else(|why| VolumeSource::Unavailable { why }),
    }
}

fn server_source(
    app: &App,
    state: &State,
    server: &FileServerReference,
    options: String,
) -> Result<VolumeSource, String> {
    let gone = || "the file server does not exist any more".to_owned();
    let named = arm::parse_file_server(&server.file_server.id).ok_or_else(gone)?;
    let (key, record) = find_file_server(state, named.group, named.workspace, named.name).map_err(|_| gone())?;
    let root =
        app.exports.directory(&key, &record).map_err(|error| format!("its directory cannot be made: {error}"))?;
    let inside = server.source_directory.as_deref().unwrap_or_default().trim_matches('/');
    let directory = mount::inside_of(&root, inside)
        .ok_or_else(|| format!("sourceDirectory '{inside}' leads out of the file server"))?;
    if !directory.is_dir() {
        return Err(format!("there is no directory '{inside}' on the file server"));
    }
    let export = app.exports.door().map(|door| NfsExport {
        address: door.ip(),
        port: door.port(),
        path: Secret::new(format!("{}/{inside}", app.exports.path(&key, &record)).trim_end_matches('/')),
        options,
    });
    // To another machine an address of this one's own is none.
    Ok(VolumeSource::FileServer { directory, export: export.filter(|export| !export.address.is_loopback()) })
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
    let read_only = mount::is_read_only(blob.mount_options.as_deref().unwrap_or_default());
    Volume { kind: VolumeKind::Container, relative: blob.relative_mount_path.clone(), label, source, read_only }
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
    let read_only = mount::forbids_writing(&share.file_mode, &share.directory_mode);
    Volume { kind: VolumeKind::FileShare, relative: share.relative_mount_path.clone(), label, source, read_only }
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
