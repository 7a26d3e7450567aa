//! `corro batchai cluster file`: lists the output of a cluster's setup task. The API has no operation for that: the client lists the storage account and
//! signs the links with the account's key.

use clap::{Args, Subcommand};
use corro_client::files::Entry;
use corro_client::{Credential, FileService};
use corro_model::batchai::{Cluster, MountVolumes, NodeSetup};
use corro_model::mount::{MountRoot, below};
use corro_model::ops::ClustersGet;
use serde_json::{Value, json};

use super::ParentArgs;
use crate::commands::storage::auth::find_account_key;
use crate::error::CliError;
use crate::output::TableKind;
use crate::resource::args::ResourceNames;
use crate::session::Session;

const NOT_ON_A_SHARE: &str = "List files is supported only for clusters with startup task configure to store its output \
                              on Azure File Share or Azure Blob Container";

#[derive(Subcommand, Debug)]
pub enum ClusterFileCommand {
    /// List the files that the setup task of a cluster wrote, with download links
    #[command(
        after_help = "Example:\n  corro batchai cluster file list -g batchai.horovod -w batchaidev \\\n      -c nc6cluster --output table"
    )]
    List(ListArgs),
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    cluster: ParentArgs,
    /// Subdirectory of the setup task's output directory
    #[arg(long, short = 'p', value_name = "PATH", default_value = ".")]
    path: String,
    /// How long the download links are valid, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=5_256_000))]
    expiry: u32,
}

pub async fn run(session: &Session, command: ClusterFileCommand) -> Result<(), CliError> {
    let ClusterFileCommand::List(args) = command;
    let target = args.cluster.target()?;
    let client = session.client()?;
    let cluster = client.get::<ClustersGet>(&target.values()).await.map_err(|error| target.request_error(error))?;
    let Some(directory) = locate(&cluster, &args.path)? else { return print(session, Vec::new()) };
    let key = find_account_key(client, &directory.account).await?;
    let endpoint = format!("{}/{}", client.server(), directory.account);
    let files = FileService::new(&endpoint, &directory.account, Credential::Key(key))?.trusting(&session.trust()?)?;
    let entries = match files.list(&directory.share, &directory.path).await {
        Ok(entries) => entries,
        // The setup task has not started yet.
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let link = |name: &str| files.read_link(&directory.share, &format!("{}/{name}", directory.path), args.expiry);
    let listed = entries.into_iter().map(|entry| match entry {
        Entry::Directory { name } => json!({"download_url": null, "is_directory": true, "name": name, "size": null}),
        Entry::File { name, length } | Entry::Link { name, length, .. } => {
            json!({"download_url": link(&name), "is_directory": false, "name": name, "size": length})
        }
    });
    print(session, listed.collect())
}

fn print(session: &Session, files: Vec<Value>) -> Result<(), CliError> {
    session.print_shaped(&files.into(), Some(TableKind::SetupFile))
}

/// A directory in a storage account.
#[derive(Debug, PartialEq, Eq)]
struct Directory {
    account: String,
    share: String,
    path: String,
}

/// The directory to list; `None` if the cluster has no setup task.
fn locate(cluster: &Cluster, path: &str) -> Result<Option<Directory>, CliError> {
    let Some(NodeSetup { setup_task: Some(task), mount_volumes, .. }) = &cluster.properties.spec.node_setup else {
        return Ok(None);
    };
    let prefix = below(&task.std_out_err_path_prefix, MountRoot::Cluster);
    let prefix = prefix.ok_or_else(|| CliError::new(NOT_ON_A_SHARE))?;
    let suffix = task.std_out_err_path_suffix.as_deref().filter(|suffix| !suffix.is_empty());
    let suffix = suffix.ok_or_else(|| CliError::new("List files is not supported for this cluster"))?;
    let volumes = mount_volumes.as_ref().ok_or_else(|| CliError::new(NOT_ON_A_SHARE))?;
    let (account, share, inside) = share_of(volumes, &prefix)?;
    let parts = [inside.as_str(), suffix, path].into_iter().flat_map(|part| part.split('/'));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(Some(Directory { account, share, path: parts.join("/") }))
}

/// Account, share, and the rest of the path inside it.
fn share_of(volumes: &MountVolumes, path: &[&str]) -> Result<(String, String, String), CliError> {
    let inside = |mount: &str| {
        let mount: Vec<&str> = mount.split('/').filter(|part| !part.is_empty()).collect();
        path.strip_prefix(mount.as_slice()).map(|rest| rest.join("/"))
    };
    let share = volumes.azure_file_shares.iter().find_map(|share| {
        let rest = inside(&share.relative_mount_path)?;
        Some((share.account()?.to_owned(), share.share_name()?.to_owned(), rest))
    });
    let mut containers = volumes.azure_blob_file_systems.iter();
    match (share, containers.find(|container| inside(&container.relative_mount_path).is_some())) {
        (Some(share), _) => Ok(share),
        (None, Some(container)) => {
            let message = format!("the files in the container '{}' cannot be listed yet", container.container_name);
            Err(CliError::new(message)
                .hint("set --setup-task-output to a directory on a file share, or mount the container"))
        }
        (None, None) => Err(CliError::new(NOT_ON_A_SHARE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(setup: Value) -> Cluster {
        let mut properties = json!({
            "creationTime": "2018-06-21T17:15:18Z", "provisioningState": "succeeded",
            "provisioningStateTransitionTime": "2018-06-21T17:15:18Z", "allocationState": "steady",
            "allocationStateTransitionTime": "2018-06-21T17:15:18Z", "currentNodeCount": 0,
            "nodeStateCounts": {"runningNodeCount": 0, "idleNodeCount": 0, "unusableNodeCount": 0,
                                "preparingNodeCount": 0, "leavingNodeCount": 0},
            "vmSize": "STANDARD_D1", "userAccountSettings": {"adminUserName": "me"}
        });
        if !setup.is_null() {
            properties["nodeSetup"] = setup;
        }
        serde_json::from_value(json!({"id": "i", "name": "c", "type": "t", "properties": properties})).expect("literal")
    }

    /// Account, share and path in one line, or the message.
    fn check(prefix: &str, suffix: &str, expected: &str) {
        let setup = json!({
            "setupTask": {"commandLine": "true", "stdOutErrPathPrefix": prefix, "stdOutErrPathSuffix": suffix},
            "mountVolumes": {
                "azureFileShares": [{"azureFileUrl": "https://acc.file.core.windows.net/share", "relativeMountPath": "afs"}],
                "azureBlobFileSystems": [{"accountName": "acc", "containerName": "box", "relativeMountPath": "bfs"}]
            }
        });
        let found = match locate(&cluster(setup), "./sub/") {
            Ok(found) => found.map_or("nothing".to_owned(), |at| format!("{} {} {}", at.account, at.share, at.path)),
            Err(failure) => failure.message,
        };
        assert_eq!(found, expected, "{prefix}");
    }

    #[test]
    fn output_is_found_on_shares() {
        check("$AZ_BATCHAI_MOUNT_ROOT/afs", "x/y", "acc share x/y/sub");
        check("$AZ_BATCHAI_MOUNT_ROOT/afs/logs/", "x/y", "acc share logs/x/y/sub");
        check("${AZ_BATCHAI_MOUNT_ROOT}/bfs", "x", "the files in the container 'box' cannot be listed yet");
        check("$AZ_BATCHAI_MOUNT_ROOT/afsx", "x", NOT_ON_A_SHARE);
        check("/somewhere", "x", NOT_ON_A_SHARE);
        check("$AZ_BATCHAI_MOUNT_ROOT/afs", "", "List files is not supported for this cluster");
        assert_eq!(locate(&cluster(Value::Null), ".").expect("no setup task"), None);
    }
}
