//! Where a job's output is: on a share that the server can read, on another volume, or on the nodes only. Pure.

use super::JobNames;
use crate::batchai::{JobSpec, MountVolumes};
use crate::layout::main_logs;
use crate::mount::{MountRoot, below, find_container, find_share, is_on_volume};

/// Sentence about a running job whose output is only on its nodes.
pub fn unshared_output(spec: &JobSpec, volumes: Option<&MountVolumes>) -> Option<String> {
    let prefix = &spec.std_out_err_path_prefix;
    (log_location(spec, volumes) == LogLocation::Node).then(|| {
        format!(
            "Its output is written to {prefix} on its nodes, which is not a share: to follow and keep it, mount a \
             share and set stdOutErrPathPrefix to a directory on it."
        )
    })
}

/// Kind of the volume with a job's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogLocation {
    /// A file share or a blob container, which the server can read.
    Storage,
    /// A file server or another file system.
    OtherVolume,
    /// No volume: the disk of each node.
    Node,
}

/// Finds where a job's logs are. A path below the root of a cluster that is gone counts as on a share.
fn log_location(spec: &JobSpec, volumes: Option<&MountVolumes>) -> LogLocation {
    let (prefix, own) = (spec.std_out_err_path_prefix.as_str(), spec.mount_volumes.as_ref());
    let is_known = volumes.is_some() || below(prefix, MountRoot::Cluster).is_none();
    if !is_known || find_share(prefix, volumes, own).is_some() || find_container(prefix, volumes, own).is_some() {
        return LogLocation::Storage;
    }
    match is_on_volume(prefix, volumes, own) {
        true => LogLocation::OtherVolume,
        false => LogLocation::Node,
    }
}

/// Sentence that says where to read the output of a failed job.
pub fn output(spec: &JobSpec, names: JobNames<'_>, volumes: Option<&MountVolumes>, preparing: bool) -> String {
    let prefix = &spec.std_out_err_path_prefix;
    match log_location(spec, volumes) {
        LogLocation::Node => {
            return format!(
                "Its output was written to {prefix} on its nodes, which is not a share: to keep it, mount a share and \
                 set stdOutErrPathPrefix to a directory on it."
            );
        }
        LogLocation::OtherVolume => {
            return format!("Its output is in {prefix}, on a volume that is not a share: read it where it is mounted.");
        }
        LogLocation::Storage => {}
    }
    let JobNames { group, workspace, experiment, job } = names;
    let place = format!("-g {group} -w {workspace} -e {experiment} -j {job}");
    match preparing {
        true => format!("Its output is on the share: list the files with 'corro batchai job file list {place}'."),
        false => {
            let (_, log) = main_logs(spec);
            format!("Its output is on the share: 'corro batchai job file stream {place} -f {log}'.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_location_of_logs_depends_on_the_volumes() {
        let (storage, other, node) = (LogLocation::Storage, LogLocation::OtherVolume, LogLocation::Node);
        let volumes: MountVolumes = serde_json::from_value(json!({
            "azureFileShares": [{"azureFileUrl": "https://a.file.x/s", "relativeMountPath": "share"}],
            "azureBlobFileSystems": [{"accountName": "a", "containerName": "c", "relativeMountPath": "blobs"}],
            "fileServers": [{"fileServer": {"id": "/f"}, "relativeMountPath": "nfs"}],
        }))
        .expect("volumes");
        let check = |prefix: &str, of_job: LogLocation, of_cluster: LogLocation, gone: LogLocation| {
            let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": prefix});
            let mut spec: JobSpec = serde_json::from_value(spec).expect("a job");
            assert_eq!(log_location(&spec, None), gone, "{prefix}");
            assert_eq!(log_location(&spec, Some(&volumes)), of_cluster, "{prefix}");
            spec.mount_volumes = Some(volumes.clone());
            assert_eq!(log_location(&spec, Some(&MountVolumes::default())), of_job, "{prefix}");
            assert_eq!(unshared_output(&spec, Some(&MountVolumes::default())).is_some(), of_job == node, "{prefix}");
        };
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/share/x", storage, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/blobs", storage, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/nfs/x", other, node, node);
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/sahre", node, node, node);
        check("$AZ_BATCHAI_MOUNT_ROOT/share", node, storage, storage);
        check("$AZ_BATCHAI_MOUNT_ROOT/nfs", node, other, storage);
        check("$AZ_BATCHAI_JOB_TEMP", node, node, node);
    }
}
