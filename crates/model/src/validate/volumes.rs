//! Validation of volumes: required fields of each kind, and mount paths that do not overlap.

use std::path::Path;

use super::limits::check_volume_sizes;
use super::{blank, refuse};
use crate::batchai::{MountVolumes, StorageCredentials};
use crate::error::ApiError;
use crate::ids::arm;
use crate::mount::{inside_of, parse_mode};

pub fn check_volumes(field: &str, volumes: Option<&MountVolumes>) -> Result<(), ApiError> {
    let Some(volumes) = volumes else { return Ok(()) };
    check_volume_sizes(field, volumes)?;
    let mut mounted: Vec<Vec<&str>> = Vec::new();
    for (i, share) in volumes.azure_file_shares.iter().enumerate() {
        let at = format!("{field}.azureFileShares[{i}]");
        if share.share_name().is_none() {
            // The URL is not repeated, since some contain keys or signatures.
            let message = "it names no share: write https://ACCOUNT.file.core.windows.net/SHARE";
            return refuse(&format!("{at}.azureFileUrl"), message);
        }
        if share.azure_file_url.contains(['@', '?', '#']) {
            let message = "it contains more than the URL of a share: put a key into credentials.accountKey";
            return refuse(&format!("{at}.azureFileUrl"), message);
        }
        for (name, mode) in [("fileMode", &share.file_mode), ("directoryMode", &share.directory_mode)] {
            if parse_mode(mode).is_none() {
                let message = format!("'{mode}' is not a file mode: write it in octal, as 0777");
                return refuse(&format!("{at}.{name}"), &message);
            }
        }
        check_credentials(&at, share.credentials.as_ref())?;
        check_mount_path(&at, &share.relative_mount_path, &mut mounted)?;
    }
    for (i, container) in volumes.azure_blob_file_systems.iter().enumerate() {
        let at = format!("{field}.azureBlobFileSystems[{i}]");
        if blank(container.account_name.as_deref()) {
            return refuse(
                &format!("{at}.accountName"),
                "the name of the storage account is missing or empty: give accountName",
            );
        }
        if blank(Some(&container.container_name)) {
            return refuse(&format!("{at}.containerName"), "the name of the container is empty: give containerName");
        }
        check_credentials(&at, container.credentials.as_ref())?;
        check_mount_path(&at, &container.relative_mount_path, &mut mounted)?;
    }
    for (i, server) in volumes.file_servers.iter().enumerate() {
        let at = format!("{field}.fileServers[{i}]");
        if arm::parse_file_server(&server.file_server.id).is_none() {
            let message = format!("'{}' is not the id of a file server", server.file_server.id);
            return refuse(&format!("{at}.fileServer.id"), &message);
        }
        let inside = server.source_directory.as_deref().unwrap_or_default();
        if inside_of(Path::new("/"), inside).is_none() {
            let message = format!("'{inside}' is not a directory of the file server");
            return refuse(&format!("{at}.sourceDirectory"), &message);
        }
        check_mount_path(&at, &server.relative_mount_path, &mut mounted)?;
    }
    for (i, unmanaged) in volumes.unmanaged_file_systems.iter().enumerate() {
        let at = format!("{field}.unmanagedFileSystems[{i}]");
        if blank(Some(&unmanaged.mount_command)) {
            return refuse(&format!("{at}.mountCommand"), "it is empty: give the command that mounts it");
        }
        check_mount_path(&at, &unmanaged.relative_mount_path, &mut mounted)?;
    }
    Ok(())
}

fn check_credentials(at: &str, credentials: Option<&StorageCredentials>) -> Result<(), ApiError> {
    let both = |c: &StorageCredentials| c.account_key.is_some() && c.account_key_secret_reference.is_some();
    if credentials.is_some_and(both) {
        let message = "both accountKey and accountKeySecretReference are given: give one of them";
        return refuse(&format!("{at}.credentials"), message);
    }
    Ok(())
}

/// Checks that a mount path is below the mount root and overlaps no other volume's.
fn check_mount_path<'a>(at: &str, path: &'a str, mounted: &mut Vec<Vec<&'a str>>) -> Result<(), ApiError> {
    let field = format!("{at}.relativeMountPath");
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let escapes = path.starts_with('/') || parts.iter().any(|part| matches!(*part, "." | ".."));
    if parts.is_empty() || escapes || path.contains('\0') {
        return refuse(&field, &format!("'{path}' is not a relative path below the mount root"));
    }
    if mounted.iter().any(|other| other.starts_with(&parts) || parts.starts_with(other)) {
        return refuse(&field, &format!("'{path}' lies on another volume's mount path: give each its own"));
    }
    mounted.push(parts);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_kind_of_volume_is_looked_into() {
        let check = |value: Value, refused: Option<&str>| {
            let volumes: MountVolumes = serde_json::from_value(value).expect("well-formed");
            let target = check_volumes("v", Some(&volumes)).err().map(|error| error.target.unwrap_or_default());
            assert_eq!(target.as_deref(), refused);
        };
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/fileservers/f";
        let server = |id: &str, at: &str| json!({"fileServer": {"id": id}, "relativeMountPath": at});
        let blob = json!({"accountName": "a", "containerName": "c", "relativeMountPath": "b", "credentials": {}});
        let unmanaged = json!({"mountCommand": "mount -t nfs x", "relativeMountPath": "u"});
        check(
            json!({"azureBlobFileSystems": [blob], "fileServers": [server(id, "n")], "unmanagedFileSystems": [unmanaged]}),
            None,
        );
        check(json!({"fileServers": [server("x", "n")]}), Some("v.fileServers[0].fileServer.id"));
        check(
            json!({"azureBlobFileSystems": [blob], "fileServers": [server(id, "b/below")]}),
            Some("v.fileServers[0].relativeMountPath"),
        );
        check(
            json!({"unmanagedFileSystems": [{"mountCommand": " ", "relativeMountPath": "u"}]}),
            Some("v.unmanagedFileSystems[0].mountCommand"),
        );
    }
}
