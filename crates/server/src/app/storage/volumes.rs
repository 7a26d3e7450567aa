//! Resolves the volumes of a cluster or job: to a directory of this machine, a mount command, or the reason why they
//! cannot be mounted. Reads directories; mounts nothing.

use std::path::{Path, PathBuf};

use corro_model::batchai::{
    AzureBlobFileSystemReference, AzureFileShareReference, FileServerReference, MountVolumes,
    UnmanagedFileSystemReference,
};
use corro_model::ids::arm;
use corro_model::names::{FILE_SERVERS, JOB_SHARED};
use corro_model::node::{Volume, VolumeKind, VolumeSource};
use corro_model::{AttemptId, Secret, mount};
use corro_shares::{Share, ShareError, SharePath};
use corro_store::State;

use crate::app::App;
use crate::app::resources::lookup::find_file_server;
use crate::app::resources::spec_secrets::SecretBundle;

/// Directory served by this server: a share, a container, a file server, the shared directory of an attempt, or a
/// directory below one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTree {
    /// Storage account, or the name of an internal account (`FILE_SERVERS`, `JOB_SHARED`).
    pub account: String,
    pub name: String,
    pub inside: String,
    pub is_container: bool,
}

/// Requested volume with its resolved source.
pub struct RequestedVolume {
    pub volume: Volume,
    /// `None` if the volume is not a directory of this server.
    pub tree: Option<VolumeTree>,
}

impl VolumeTree {
    /// Shared directory of an attempt, created if missing.
    pub fn shared_by_attempt(app: &App, attempt: &AttemptId) -> Result<VolumeTree, ShareError> {
        let name = attempt.to_string();
        match app.storage.job_shared.create_share(JOB_SHARED, &name) {
            Ok(_) | Err(ShareError::ShareAlreadyExists(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(VolumeTree { account: JOB_SHARED.to_owned(), name, inside: String::new(), is_container: false })
    }

    fn root(&self, app: &App) -> Result<PathBuf, ShareError> {
        match (self.account.as_str(), self.is_container) {
            (FILE_SERVERS, _) => app.storage.exports.shares().host_path(FILE_SERVERS, &self.name),
            (JOB_SHARED, _) => app.storage.job_shared.host_path(JOB_SHARED, &self.name),
            (account, true) => app.storage.shares.container_host_path(account, &self.name),
            (account, false) => app.storage.shares.host_path(account, &self.name),
        }
    }

    fn open(&self, app: &App) -> Result<Share, ShareError> {
        match (self.account.as_str(), self.is_container) {
            (FILE_SERVERS, _) => app.storage.exports.shares().share(FILE_SERVERS, &self.name),
            (JOB_SHARED, _) => app.storage.job_shared.share(JOB_SHARED, &self.name),
            (account, true) => app.storage.shares.container(account, &self.name),
            (account, false) => app.storage.shares.share(account, &self.name),
        }
    }

    /// Path on this machine if the directory exists. A subdirectory is resolved below the tree's handle.
    fn location(&self, app: &App) -> Option<Location> {
        let root = self.root(app).ok()?;
        let inside = mount::inside_of(Path::new(""), &self.inside)?;
        if inside.as_os_str().is_empty() {
            return root.is_dir().then_some(Location { directory: root, beneath: None });
        }
        let path = SharePath::parse(inside.to_str()?).ok()?;
        self.open(app).ok()?.stat_dir(&path).ok()?;
        Some(Location { directory: root.join(inside), beneath: Some(root) })
    }
}

/// Directory of this machine, and the root that it must be below when it is mounted.
struct Location {
    directory: PathBuf,
    beneath: Option<PathBuf>,
}

/// Source of a volume.
struct ResolvedSource {
    source: VolumeSource,
    beneath: Option<PathBuf>,
    tree: Option<VolumeTree>,
}

pub fn resolve_volumes(app: &App, state: &State, volumes: Option<&MountVolumes>, bundle: &SecretBundle) -> Vec<Volume> {
    requested_volumes(app, state, volumes, bundle).into_iter().map(|wanted| wanted.volume).collect()
}

/// Resolves all volumes, in the mount order of the Azure service.
pub fn requested_volumes(
    app: &App,
    state: &State,
    volumes: Option<&MountVolumes>,
    bundle: &SecretBundle,
) -> Vec<RequestedVolume> {
    let Some(volumes) = volumes else { return Vec::new() };
    let shares = volumes.azure_file_shares.iter().map(|share| share_volume(app, share, bundle));
    let containers = volumes.azure_blob_file_systems.iter().map(|blob| container_volume(app, blob, bundle));
    let servers = volumes.file_servers.iter().map(|server| server_volume(app, state, server));
    let unmanaged = volumes.unmanaged_file_systems.iter().map(unmanaged_volume);
    shares.chain(containers).chain(servers).chain(unmanaged).collect()
}

/// `missing` makes the error text if there is no such directory.
fn resolve(app: &App, tree: Result<VolumeTree, String>, missing: impl FnOnce() -> String) -> ResolvedSource {
    let found = tree.and_then(|tree| match tree.location(app) {
        Some(Location { directory, beneath }) => {
            Ok(ResolvedSource { source: VolumeSource::LocalDirectory(directory), beneath, tree: Some(tree) })
        }
        None => Err(missing()),
    });
    found.unwrap_or_else(|why| ResolvedSource { source: VolumeSource::Unavailable { why }, beneath: None, tree: None })
}

fn unmanaged_volume(system: &UnmanagedFileSystemReference) -> RequestedVolume {
    let volume = Volume {
        kind: VolumeKind::Unmanaged,
        relative: system.relative_mount_path.clone(),
        // Not the mount command: it may contain passwords.
        label: "the unmanaged file system".to_owned(),
        source: VolumeSource::Command { command: system.mount_command.clone() },
        read_only: false,
        beneath: None,
    };
    RequestedVolume { volume, tree: None }
}

fn server_volume(app: &App, state: &State, server: &FileServerReference) -> RequestedVolume {
    let named = arm::parse_file_server(&server.file_server.id);
    let name = named.as_ref().map_or(server.file_server.id.as_str(), |named| named.name);
    let inside = server.source_directory.as_deref().unwrap_or_default().trim_matches('/');
    let missing = || format!("there is no directory '{inside}' on the file server");
    let ResolvedSource { source, beneath, tree } = resolve(app, server_tree(app, state, server, inside), missing);
    let volume = Volume {
        kind: VolumeKind::FileServer,
        relative: server.relative_mount_path.clone(),
        label: match server.source_directory.as_deref().unwrap_or_default() {
            "" => format!("file server {name}"),
            inside => format!("directory {inside} of file server {name}"),
        },
        read_only: mount::is_read_only(server.mount_options.as_deref().unwrap_or_default()),
        source,
        beneath,
    };
    RequestedVolume { volume, tree }
}

fn server_tree(app: &App, state: &State, server: &FileServerReference, inside: &str) -> Result<VolumeTree, String> {
    let gone = || "the file server does not exist any more".to_owned();
    let named = arm::parse_file_server(&server.file_server.id).ok_or_else(gone)?;
    let (key, record) = find_file_server(state, named.group, named.workspace, named.name).map_err(|_| gone())?;
    let name = app
        .storage
        .exports
        .ensure_directory(&key, &record)
        .map_err(|error| format!("cannot create its directory: {error}"))?;
    if mount::inside_of(Path::new("/"), inside).is_none() {
        return Err(format!("sourceDirectory '{inside}' is outside the file server"));
    }
    Ok(VolumeTree { account: FILE_SERVERS.to_owned(), name, inside: inside.to_owned(), is_container: false })
}

fn container_volume(app: &App, blob: &AzureBlobFileSystemReference, bundle: &SecretBundle) -> RequestedVolume {
    let (account, name) = (blob.account_name.as_deref().unwrap_or_default(), &blob.container_name);
    let key = check_key(app, account, bundle.mounts.get(&blob.relative_mount_path));
    let tree = key.map(|()| VolumeTree {
        account: account.to_owned(),
        name: name.clone(),
        inside: String::new(),
        is_container: true,
    });
    let ResolvedSource { source, beneath, tree } =
        resolve(app, tree, || format!("Azure Blob Container '{name}' doesn't exist"));
    let label = format!("{name} container from {account} account");
    let read_only = mount::is_read_only(blob.mount_options.as_deref().unwrap_or_default());
    let (kind, relative) = (VolumeKind::Container, blob.relative_mount_path.clone());
    RequestedVolume { volume: Volume { kind, relative, label, source, read_only, beneath }, tree }
}

fn share_volume(app: &App, share: &AzureFileShareReference, bundle: &SecretBundle) -> RequestedVolume {
    let account = share.account().unwrap_or_default();
    let name = share.share_name().unwrap_or_default();
    let host =
        share.azure_file_url.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
    let key = check_key(app, account, bundle.mounts.get(&share.relative_mount_path));
    let tree = key.map(|()| VolumeTree {
        account: account.to_owned(),
        name: name.to_owned(),
        inside: String::new(),
        is_container: false,
    });
    let missing = || {
        format!(
            "there is no share '{name}' in the account '{account}': create it with 'corro storage share create -n {name} --account-name {account}'"
        )
    };
    let ResolvedSource { source, beneath, tree } = resolve(app, tree, missing);
    let label = format!("//{host}/{name}");
    let read_only = mount::forbids_writing(&share.file_mode, &share.directory_mode);
    let (kind, relative) = (VolumeKind::FileShare, share.relative_mount_path.clone());
    RequestedVolume { volume: Volume { kind, relative, label, source, read_only, beneath }, tree }
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
