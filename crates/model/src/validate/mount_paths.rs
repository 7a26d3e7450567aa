//! Warnings about paths of a job that begin with a mount root variable and a directory where no volume is mounted:
//! usually a spelling mistake. Batch AI accepts such a job, and so does Corro: the path is a directory on the node's
//! own disk. Pure.

use crate::batchai::{JobSpec, MountVolumes};
use crate::mount::{MountRoot, below, components, mount_paths};

/// One warning for each path below a mount root that is on none of its volumes. `cluster` has the cluster's volumes.
pub fn unmounted_paths(spec: &JobSpec, cluster: Option<&MountVolumes>) -> Vec<String> {
    let logs = ("properties.stdOutErrPathPrefix".to_owned(), spec.std_out_err_path_prefix.as_str(), Usage::Logs);
    let inputs = spec.input_directories.iter().enumerate();
    let inputs =
        inputs.map(|(i, input)| (format!("properties.inputDirectories[{i}].path"), input.path.as_str(), Usage::Input));
    let outputs = spec.output_directories.iter().enumerate();
    let outputs = outputs.map(|(i, output)| {
        (format!("properties.outputDirectories[{i}].pathPrefix"), output.path_prefix.as_str(), Usage::Output)
    });
    let job = spec.mount_volumes.as_ref();
    let python = spec.python_environment.as_ref();
    let sources = [
        ("workingDirectory", spec.working_directory.as_deref()),
        ("pythonEnvironment.requirementsFile", python.and_then(|python| python.requirements_file.as_deref())),
        ("pythonEnvironment.condaFile", python.and_then(|python| python.conda_file.as_deref())),
    ];
    let sources =
        sources.into_iter().filter_map(|(name, path)| Some((format!("properties.{name}"), path?, Usage::Input)));
    let paths = std::iter::once(logs).chain(inputs).chain(outputs).chain(sources);
    paths.filter_map(|(field, path, usage)| Some(format!("{field}: {}", warning(path, usage, cluster, job)?))).collect()
}

/// What the job does with a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usage {
    Logs,
    Input,
    Output,
}

fn warning(path: &str, usage: Usage, cluster: Option<&MountVolumes>, job: Option<&MountVolumes>) -> Option<String> {
    let roots = [(MountRoot::Job, job, "the job"), (MountRoot::Cluster, cluster, "the cluster")];
    let at = roots.iter().position(|(root, ..)| below(path, *root).is_some())?;
    let wanted = below(path, roots[at].0)?;
    let mounted = mount_paths(roots[at].1);
    if mounted.iter().any(|mount| is_served(&wanted, mount, usage)) || (wanted.is_empty() && usage == Usage::Input) {
        return None;
    }
    let name = first_unmounted(&wanted, &mounted);
    // Only the node knows the value of a variable.
    if name.contains('$') {
        return None;
    }
    let mut known = if mounted.is_empty() { "none".to_owned() } else { mounted.join(", ") };
    let (other_root, other_volumes, owner) = roots[1 - at];
    if let Some(mount) = mount_paths(other_volumes).iter().find(|mount| wanted.starts_with(&components(mount))) {
        known += &format!("; {owner} mounts '{mount}' below ${}", other_root.variable());
    }
    let effect = match usage {
        Usage::Logs => "the logs stay on the node",
        Usage::Input => "the job does not find its files there",
        Usage::Output => "its files stay on the node",
    };
    let place = if name.is_empty() { "the mount root itself".to_owned() } else { format!("'{name}'") };
    Some(format!("no volume is mounted at {place} (mounted: {known}); {effect}"))
}

/// Whether `wanted` is on the volume at `mount`. An input directory may also contain volumes.
fn is_served(wanted: &[&str], mount: &str, usage: Usage) -> bool {
    let mount = components(mount);
    wanted.starts_with(&mount) || (usage == Usage::Input && mount.starts_with(wanted))
}

/// The beginning of `wanted` up to the first directory that leads to no volume.
fn first_unmounted(wanted: &[&str], mounted: &[&str]) -> String {
    let common = |mount: &&str| components(mount).iter().zip(wanted).take_while(|(a, b)| a == b).count();
    let n_known = mounted.iter().map(common).max().unwrap_or(0);
    wanted[..wanted.len().min(n_known + 1)].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volumes(paths: &[&str]) -> MountVolumes {
        let share = |path: &&str| json!({"azureFileUrl": "https://a.file.x/s", "relativeMountPath": path});
        let shares: Vec<Value> = paths.iter().map(share).collect();
        serde_json::from_value(json!({"azureFileShares": shares})).expect("volumes")
    }

    fn warnings(job: Value, of_job: &[&str], of_cluster: Option<&[&str]>) -> Vec<String> {
        let mut value = json!({"nodeCount": 1, "stdOutErrPathPrefix": "logs"});
        value.as_object_mut().expect("an object").extend(job.as_object().expect("an object").clone());
        let mut spec: JobSpec = serde_json::from_value(value).expect("a job");
        spec.mount_volumes = Some(volumes(of_job));
        unmounted_paths(&spec, of_cluster.map(volumes).as_ref())
    }

    #[test]
    fn a_path_without_a_volume_is_named_with_the_volumes_there_are() {
        let check = |prefix: &str, of_job: &[&str], of_cluster: Option<&[&str]>, expected: &str| {
            let found = warnings(json!({"stdOutErrPathPrefix": prefix}), of_job, of_cluster);
            let whole = format!(
                "properties.stdOutErrPathPrefix: no volume is mounted at {expected}; the logs stay on the node"
            );
            assert_eq!(found, [whole], "{prefix}");
        };
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/wrok", &["work"], None, "'wrok' (mounted: work)");
        check("${AZ_BATCHAI_JOB_MOUNT_ROOT}/wrok/a/b", &["work", "x"], None, "'wrok' (mounted: work, x)");
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/a/c/d", &["a/b"], None, "'a/c' (mounted: a/b)");
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT", &["work"], None, "the mount root itself (mounted: work)");
        check("$AZ_BATCHAI_JOB_MOUNT_ROOT/work", &[], None, "'work' (mounted: none)");
        check("$AZ_BATCHAI_MOUNT_ROOT/work", &[], None, "'work' (mounted: none)");
        check("$AZ_BATCHAI_MOUNT_ROOT/wrok", &[], Some(&["work"]), "'wrok' (mounted: work)");
        check(
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/a",
            &[],
            Some(&["work"]),
            "'work' (mounted: none; the cluster mounts 'work' below $AZ_BATCHAI_MOUNT_ROOT)",
        );
        check(
            "$AZ_BATCHAI_MOUNT_ROOT/work",
            &["work"],
            None,
            "'work' (mounted: none; the job mounts 'work' below $AZ_BATCHAI_JOB_MOUNT_ROOT)",
        );
    }

    #[test]
    fn other_directories_are_checked_as_well() {
        let found = warnings(
            json!({
                "inputDirectories": [
                    {"id": "A", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/data"},
                    {"id": "B", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/wrok/data"},
                ],
                "outputDirectories": [{"id": "M", "pathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/wrok"}],
                "workingDirectory": "$AZ_BATCHAI_JOB_MOUNT_ROOT/wrok/code",
                "pythonEnvironment": {"requirementsFile": "$AZ_BATCHAI_JOB_MOUNT_ROOT/work/requirements.txt"},
            }),
            &["work"],
            Some(&["shared"]),
        );
        assert_eq!(
            found,
            [
                "properties.inputDirectories[1].path: no volume is mounted at 'wrok' (mounted: work); the job does not \
                 find its files there",
                "properties.outputDirectories[0].pathPrefix: no volume is mounted at 'wrok' (mounted: shared); its files \
                 stay on the node",
                "properties.workingDirectory: no volume is mounted at 'wrok' (mounted: work); the job does not find its \
                 files there",
            ]
        );
    }

    #[test]
    fn other_paths_give_no_warning() {
        for prefix in [
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/work",
            "$AZ_BATCHAI_JOB_MOUNT_ROOT//./work/a/",
            "$AZ_BATCHAI_JOB_MOUNT_ROOT/$NAME/a",
            "$AZ_BATCHAI_MOUNT_ROOT/shared/x",
            "$AZ_BATCHAI_JOB_TEMP/x",
            "$AZ_BATCHAI_INPUT_DATA",
            "logs",
        ] {
            let found = warnings(json!({"stdOutErrPathPrefix": prefix}), &["work"], Some(&["shared"]));
            assert_eq!(found, Vec::<String>::new(), "{prefix}");
        }
        for path in ["$AZ_BATCHAI_JOB_MOUNT_ROOT", "$AZ_BATCHAI_JOB_MOUNT_ROOT/a", "/usr/share/data"] {
            let found = warnings(json!({"inputDirectories": [{"id": "A", "path": path}]}), &["a/b"], None);
            assert_eq!(found, Vec::<String>::new(), "{path}");
        }
    }
}
