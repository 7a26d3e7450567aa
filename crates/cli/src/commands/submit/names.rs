//! Names of what `corro submit` creates: jobs after the script, clusters after the VM size. Pure.

use corro_model::vm_size::{VM_SIZES, VmSize};

/// Name of the group, the workspace and the cluster that are created if none is named.
pub const DEFAULT_NAME: &str = "default";
/// Share for the directories of jobs.
pub const SHARE: &str = "projects";
/// Name of the `n`th job with this stem: `train-3`.
pub fn numbered(stem: &str, n: u32) -> String {
    format!("{stem}-{n}")
}

/// The number after the highest one among existing jobs with this stem.
pub fn next_number<'a>(stem: &str, existing: impl IntoIterator<Item = &'a str>) -> u32 {
    let number = |name: &str| name.strip_prefix(stem)?.strip_prefix('-')?.parse::<u32>().ok();
    existing.into_iter().filter_map(number).max().map_or(1, |last| last.saturating_add(1))
}

/// Name of a storage account for this group: at most 24 lower-case letters and digits.
pub fn account_name(group: &str) -> String {
    let letters: String = group.chars().filter(char::is_ascii_alphanumeric).take(15).collect();
    format!("{}projects", letters.to_lowercase())
}

/// Resources that a job asks for on each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    pub gpus: Option<u32>,
    pub cores: Option<u32>,
    pub memory_gib: Option<u32>,
}

impl NodeResources {
    pub fn is_empty(&self) -> bool {
        *self == NodeResources::default()
    }

    /// Whether a node of this size has them.
    pub fn fit(&self, size: &VmSize) -> bool {
        size.gpus >= self.gpus.unwrap_or(0)
            && size.cores >= self.cores.unwrap_or(0)
            && size.memory_gib >= self.memory_gib.unwrap_or(0)
    }

    /// The resources in words: "1 GPU, 8 cores".
    pub fn text(&self) -> String {
        let parts = [
            self.gpus.map(|n| if n == 1 { "1 GPU".to_owned() } else { format!("{n} GPUs") }),
            self.cores.map(|n| if n == 1 { "1 core".to_owned() } else { format!("{n} cores") }),
            self.memory_gib.map(|n| format!("{n} GiB of memory")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// The VM size of a new cluster if no resources are asked for.
pub const DEFAULT_VM_SIZE: &str = "STANDARD_D2_V2";

/// The smallest VM size with these resources: fewest GPUs, then cores, then memory. `None` if no size has that much.
pub fn smallest_vm_size(wanted: &NodeResources) -> Option<&'static VmSize> {
    if wanted.is_empty() {
        return VM_SIZES.iter().find(|size| size.name == DEFAULT_VM_SIZE);
    }
    VM_SIZES.iter().filter(|size| wanted.fit(size)).min_by_key(|size| (size.gpus, size.cores, size.memory_gib))
}

/// The name of the cluster that is created for these resources: `default`, or the size's name in lower case, such as `nc6`.
pub fn cluster_name(wanted: &NodeResources, size: &VmSize) -> String {
    if wanted.is_empty() {
        return DEFAULT_NAME.to_owned();
    }
    size.name.trim_start_matches("STANDARD_").to_lowercase().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::names::{NameKind, check_name};

    #[test]
    fn jobs_are_numbered_after_the_highest() {
        assert_eq!(next_number("train", []), 1);
        assert_eq!(next_number("train", ["train-2", "train-10", "training-99", "train-x", "train"]), 11);
    }

    #[test]
    fn account_names_are_allowed() {
        for (group, expected) in [
            ("default", "defaultprojects"),
            ("Team.A_b-c", "teamabcprojects"),
            ("...", "projects"),
            ("x123456789012345678", "x12345678901234projects"),
        ] {
            assert_eq!(account_name(group), expected);
            check_name(NameKind::StorageAccount, expected).expect("allowed");
        }
    }

    #[test]
    fn the_smallest_size_is_chosen() {
        let check = |gpus, cores, memory_gib, name: &str, cluster: &str| {
            let wanted = NodeResources { gpus, cores, memory_gib };
            let size = smallest_vm_size(&wanted).expect("a size");
            assert_eq!((size.name, cluster_name(&wanted, size).as_str()), (name, cluster));
        };
        check(None, None, None, "STANDARD_D2_V2", "default");
        check(Some(1), None, None, "STANDARD_NC6", "nc6");
        check(None, Some(16), None, "STANDARD_F16", "f16");
        check(None, None, Some(100), "STANDARD_G3", "g3");
        assert_eq!(smallest_vm_size(&NodeResources { gpus: Some(1000), cores: None, memory_gib: None }), None);
    }
}
