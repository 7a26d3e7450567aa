//! Identifiers inside the system. A *key* is the lower-cased path of names (lookups ignore case); records keep the
//! original names. Also formats and parses full ARM ids.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Key: the path of names from the resource group down, lower-cased, joined with `/`.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Prefix of the keys of everything inside this resource.
            pub fn prefix(&self) -> String {
                format!("{}/", self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

key!(GroupKey);
key!(WorkspaceKey);
key!(ClusterKey);
key!(FileServerKey);
key!(ExperimentKey);
key!(JobKey);

impl GroupKey {
    pub fn new(group: &str) -> Self {
        Self(group.to_lowercase())
    }

    pub fn workspace(&self, name: &str) -> WorkspaceKey {
        WorkspaceKey(format!("{self}/{}", name.to_lowercase()))
    }
}

impl WorkspaceKey {
    pub fn group(&self) -> GroupKey {
        GroupKey(parent(&self.0).to_owned())
    }

    pub fn cluster(&self, name: &str) -> ClusterKey {
        ClusterKey(format!("{self}/{}", name.to_lowercase()))
    }

    pub fn file_server(&self, name: &str) -> FileServerKey {
        FileServerKey(format!("{self}/{}", name.to_lowercase()))
    }

    pub fn experiment(&self, name: &str) -> ExperimentKey {
        ExperimentKey(format!("{self}/{}", name.to_lowercase()))
    }
}

impl ClusterKey {
    pub fn workspace(&self) -> WorkspaceKey {
        WorkspaceKey(parent(&self.0).to_owned())
    }
}

impl FileServerKey {
    pub fn workspace(&self) -> WorkspaceKey {
        WorkspaceKey(parent(&self.0).to_owned())
    }
}

impl ExperimentKey {
    pub fn workspace(&self) -> WorkspaceKey {
        WorkspaceKey(parent(&self.0).to_owned())
    }

    pub fn job(&self, name: &str) -> JobKey {
        JobKey(format!("{self}/{}", name.to_lowercase()))
    }
}

impl JobKey {
    pub fn experiment(&self) -> ExperimentKey {
        ExperimentKey(parent(&self.0).to_owned())
    }
}

fn parent(key: &str) -> &str {
    key.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Node id, such as `tvm-676767296_1-20180718t174802z-p`: pool number, index that grows over resizes, time of
/// allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(String);

impl NodeId {
    pub fn new(pool: u32, index: u32, allocated: crate::Timestamp) -> Self {
        Self(format!("tvm-{pool}_{index}-{}-p", allocated.compact()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses an id. Accepts only the service's form, so that an id is safe as a directory name.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        (text.starts_with("tvm-") && text.len() <= 80 && text.chars().all(plain)).then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An attempt at running a job: the job's GUID and the number of the attempt, from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    pub job: String,
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.job, self.number)
    }
}

/// Full ARM ids, with names in their original case.
pub mod arm {
    pub fn group(subscription: &str, group: &str) -> String {
        format!("/subscriptions/{subscription}/resourceGroups/{group}")
    }

    pub fn workspace(subscription: &str, group_name: &str, workspace: &str) -> String {
        format!("{}/providers/Microsoft.BatchAI/workspaces/{workspace}", group(subscription, group_name))
    }

    pub fn storage_account(subscription: &str, group_name: &str, account: &str) -> String {
        format!("{}/providers/Microsoft.Storage/storageAccounts/{account}", group(subscription, group_name))
    }

    /// Names in the id of a resource inside a workspace.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WorkspaceResource<'a> {
        pub subscription: &'a str,
        pub group: &'a str,
        pub workspace: &'a str,
        pub name: &'a str,
    }

    /// Parses a cluster's ARM id into group, workspace and cluster.
    pub fn parse_cluster(id: &str) -> Option<(&str, &str, &str)> {
        in_workspace(id, "clusters").map(|found| (found.group, found.workspace, found.name))
    }

    pub fn parse_file_server(id: &str) -> Option<WorkspaceResource<'_>> {
        in_workspace(id, "fileServers")
    }

    /// Parses the ARM id of a resource type (`clusters`, `fileServers`), which is compared without case.
    pub fn in_workspace<'a>(id: &'a str, kind: &str) -> Option<WorkspaceResource<'a>> {
        let parts: Vec<&str> = id.trim_start_matches('/').trim_end_matches('/').split('/').collect();
        let [s, subscription, g, group, p, provider, w, workspace, k, name] = parts[..] else { return None };
        let fixed = [(s, "subscriptions"), (g, "resourceGroups"), (p, "providers"), (provider, "Microsoft.BatchAI")];
        let tail = [(w, "workspaces"), (k, kind)];
        let matches = fixed.iter().chain(&tail).all(|(got, want)| got.eq_ignore_ascii_case(want));
        matches.then_some(WorkspaceResource { subscription, group, workspace, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ignore_case_and_know_their_parents() {
        let job = GroupKey::new("Batchai.Horovod").workspace("Dev").experiment("Cifar").job("J1");
        assert_eq!(job.as_str(), "batchai.horovod/dev/cifar/j1");
        assert_eq!(job.experiment().workspace().group(), GroupKey::new("batchai.horovod"));
    }

    #[test]
    fn node_ids_have_the_service_form() {
        let time = crate::Timestamp::parse("2018-07-18T17:48:02Z").expect("a valid time");
        assert_eq!(NodeId::new(676_767_296, 1, time).as_str(), "tvm-676767296_1-20180718t174802z-p");
        assert_eq!(NodeId::parse("tvm-1/../x"), None);
        assert!(NodeId::parse("tvm-676767296_1-20180718t174802z-p").is_some());
    }

    #[test]
    fn cluster_ids_are_read_without_regard_to_case() {
        let id = "/subscriptions/s/resourcegroups/g/providers/microsoft.batchai/Workspaces/w/clusters/c";
        assert_eq!(arm::parse_cluster(id), Some(("g", "w", "c")));
        let found = arm::WorkspaceResource { subscription: "s", group: "g", workspace: "w", name: "c" };
        assert_eq!(arm::in_workspace(id, "clusters"), Some(found));
        assert_eq!(arm::parse_file_server(id), None);
        assert_eq!(arm::parse_cluster("/subscriptions/s/resourceGroups/g"), None);
    }
}
