//! Completes the volumes of clusters and jobs: placeholders, account names, keys, and the volumes of `--afs-name`, `--bfs-name` and `--nfs`. [`plan`] is
//! pure; only `fill` sends requests, for keys and file servers.

mod account;
mod plan;

use clap::Args;
use corro_client::Client;
use corro_model::batchai::{
    AzureBlobFileSystemReference, AzureFileShareReference, FileServer, FileServerReference, MountVolumes, ResourceId,
};
use corro_model::ops::FileServersGet;

use crate::commands::storage::auth::find_account_key;
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;
use account::EffectiveAccount;
pub use plan::with_key;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Storage Mount Arguments")]
pub struct MountArgs {
    /// Storage account of the shares and containers to mount [default: $AZURE_BATCHAI_STORAGE_ACCOUNT]
    #[arg(long, value_name = "ACCOUNT")]
    pub storage_account_name: Option<String>,
    /// Key of the storage account [default: $AZURE_BATCHAI_STORAGE_KEY, or looked up on the server]
    #[arg(long, value_name = "KEY")]
    pub storage_account_key: Option<String>,
    /// File share to mount, in addition to those in the configuration file
    #[arg(long, value_name = "SHARE")]
    pub afs_name: Option<String>,
    /// Mount path of the file share, relative to the mount root of the cluster or job
    #[arg(long, value_name = "PATH", default_value = "afs")]
    pub afs_mount_path: String,
    /// Blob container to mount, in addition to those in the configuration file
    #[arg(long, value_name = "CONTAINER")]
    pub bfs_name: Option<String>,
    /// Mount path of the blob container, relative to the mount root of the cluster or job
    #[arg(long, value_name = "PATH", default_value = "bfs")]
    pub bfs_mount_path: String,
    /// File server to mount, by name or full id
    #[arg(long, value_name = "NAME")]
    pub nfs: Option<String>,
    /// Mount path of the file server, relative to the mount root of the cluster or job
    #[arg(long, value_name = "PATH", default_value = "nfs")]
    pub nfs_mount_path: String,
}

/// Completes the volumes of a file: placeholders, command line volumes, accounts and keys.
pub async fn fill(
    client: &Client,
    volumes: Option<MountVolumes>,
    args: &MountArgs,
    target: &ResourceRef,
) -> Result<Option<MountVolumes>, CliError> {
    let mut account = EffectiveAccount::of(args);
    let file_server = match &args.nfs {
        Some(name) => Some(find_file_server(client, target, name).await?.id),
        None => None,
    };
    let volumes = with_command_line(volumes, args, &account, file_server)?;
    let Some(volumes) = volumes else { return Ok(None) };
    if let Some(name) = account.name.clone().filter(|_| account.look_up) {
        account.key = Some(find_account_key(client, &name).await?);
    }
    let (mut volumes, wanted) = plan::plan(volumes, &account)?;
    for (place, name) in wanted {
        let key = find_account_key(client, &name).await?;
        *plan::credentials_at(&mut volumes, place) = Some(plan::with_key(key));
    }
    Ok(Some(volumes))
}

/// A cluster can mount a file server only from the file server's own subnet.
pub async fn check_subnet(
    client: &Client,
    target: &ResourceRef,
    args: &MountArgs,
    subnet: &str,
) -> Result<(), CliError> {
    let Some(name) = &args.nfs else { return Ok(()) };
    let found = find_file_server(client, target, name).await?.properties.spec.subnet;
    match found {
        Some(found) if !found.id.eq_ignore_ascii_case(subnet) => {
            Err(CliError::new("Cluster and mounted NFS must be in the same subnet.")
                .hint(format!("give --subnet {}", found.id)))
        }
        _ => Ok(()),
    }
}

/// The file server with this name in the target's workspace, or with this id.
async fn find_file_server(client: &Client, target: &ResourceRef, name_or_id: &str) -> Result<FileServer, CliError> {
    let target = match name_or_id.starts_with('/') {
        true => ResourceRef::from_id::<FileServersGet>("--nfs", name_or_id)?,
        false => target.sibling("fileServer", name_or_id),
    };
    client.get::<FileServersGet>(&target.values()).await.map_err(|error| target.request_error(error))
}

/// Appends the volumes of `--afs-name`, `--bfs-name` and `--nfs`.
fn with_command_line(
    volumes: Option<MountVolumes>,
    args: &MountArgs,
    account: &EffectiveAccount,
    file_server: Option<String>,
) -> Result<Option<MountVolumes>, CliError> {
    if args.afs_name.is_none() && args.bfs_name.is_none() && args.nfs.is_none() {
        return Ok(volumes);
    }
    let must_be_given = [
        (&args.nfs, &args.nfs_mount_path, "File server"),
        (&args.afs_name, &args.afs_mount_path, "Azure File share"),
        (&args.bfs_name, &args.bfs_mount_path, "Azure Storage Container"),
    ];
    if let Some((_, _, kind)) = must_be_given.iter().find(|(name, path, _)| name.is_some() && path.is_empty()) {
        return Err(CliError::new(format!("{kind} relative mount path cannot be empty.")));
    }
    let mut volumes = volumes.unwrap_or_default();
    if let Some(share) = &args.afs_name {
        volumes.azure_file_shares.push(share_of(account.name()?, share, &args.afs_mount_path));
    }
    if let Some(container) = &args.bfs_name {
        volumes.azure_blob_file_systems.push(container_of(account.name()?, container, &args.bfs_mount_path));
    }
    if let Some(id) = file_server {
        volumes.file_servers.push(FileServerReference {
            file_server: ResourceId { id },
            source_directory: None,
            relative_mount_path: args.nfs_mount_path.clone(),
            mount_options: Some("rw".to_owned()),
        });
    }
    Ok(Some(volumes))
}

/// A share of an account, without its key.
pub fn share_of(account: &str, share: &str, mount_path: &str) -> AzureFileShareReference {
    AzureFileShareReference {
        account_name: Some(account.to_owned()),
        azure_file_url: format!("https://{account}.file.core.windows.net/{share}"),
        credentials: None,
        relative_mount_path: mount_path.to_owned(),
        file_mode: "0777".to_owned(),
        directory_mode: "0777".to_owned(),
    }
}

/// A container of an account, without its key.
pub fn container_of(account: &str, container: &str, mount_path: &str) -> AzureBlobFileSystemReference {
    AzureBlobFileSystemReference {
        account_name: Some(account.to_owned()),
        container_name: container.to_owned(),
        credentials: None,
        relative_mount_path: mount_path.to_owned(),
        mount_options: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_the_command_line_follow_those_of_the_file() {
        let args = MountArgs {
            storage_account_name: Some("acc".into()),
            afs_name: Some("s2".into()),
            afs_mount_path: "afs".into(),
            nfs: Some("n".into()),
            nfs_mount_path: "nfs".into(),
            ..MountArgs::default()
        };
        let mut file = MountVolumes::default();
        file.azure_file_shares.push(share_of("a", "s", "s"));
        let volumes = with_command_line(Some(file), &args, &EffectiveAccount::of(&args), Some("id".into()))
            .expect("fine")
            .expect("some");
        assert_eq!(volumes.azure_file_shares.len(), 2);
        assert_eq!(volumes.azure_file_shares[1].azure_file_url, "https://acc.file.core.windows.net/s2");
        assert_eq!(volumes.azure_file_shares[1].relative_mount_path, "afs");
        assert_eq!(volumes.file_servers[0].mount_options.as_deref(), Some("rw"));
        let nothing = with_command_line(None, &MountArgs::default(), &EffectiveAccount::default(), None);
        assert_eq!(nothing.expect("fine"), None);
        let nowhere = MountArgs { afs_mount_path: String::new(), ..args };
        let error = with_command_line(None, &nowhere, &EffectiveAccount::of(&nowhere), None).expect_err("no path");
        assert_eq!(error.message, "Azure File share relative mount path cannot be empty.");
    }
}
