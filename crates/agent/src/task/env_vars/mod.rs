//! Composes the environment of a job's processes on this node, and the directories that follow from it. Pure: the
//! node's own variables are an argument. Never prints a value.

mod expand;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corro_model::batchai::EnvironmentVariable;
use corro_model::node::{SetupOrder, TaskOrder, TaskSecret};

use crate::storage::directories::Layout;
use crate::task::env_vars::expand::{UnknownName, expand};

/// Variable with the working directory of a job that names one, for ranks that another launcher starts.
pub const WORKING_DIRECTORY_VARIABLE: &str = "CORRO_WORKING_DIRECTORY";

/// Environment of job preparation. Ranks get further variables on top.
#[derive(Clone, Debug, PartialEq)]
pub struct Environment {
    pub variables: BTreeMap<String, String>,
    /// Directory of the job's logs.
    pub log_directory: PathBuf,
    /// Directories that must exist before anything of the job starts.
    pub output_directories: Vec<PathBuf>,
    /// Directory in which the job's processes start.
    pub working_directory: PathBuf,
}

/// Composes the environment in steps, each of which may refer to the variables of those before: the node's own
/// variables, the service's, inputs and outputs, the user's variables, the user's secrets.
///
/// `gpus` is the number of GPUs that the job has on this node, which may be fewer than its VM size has.
pub fn compose(inherited: BTreeMap<String, String>, layout: &Layout, order: &TaskOrder, gpus: usize) -> Environment {
    let mut variables = inherited;
    variables.extend(service_variables(layout, order));
    variables.extend(gpu_count_variables(gpus));

    let prefix = absolute(layout, &expand(&order.std_out_err_path_prefix, &variables, UnknownName::Remove));
    let log_directory = prefix.join(&order.segment).join("stdouterr");
    variables.insert("AZ_BATCHAI_STDOUTERR_DIR".to_owned(), text(&log_directory));

    for input in &order.input_directories {
        let path = expand(&input.path, &variables, UnknownName::Remove);
        variables.insert(format!("AZ_BATCHAI_INPUT_{}", input.id), path);
    }
    let mut output_directories = Vec::new();
    for output in &order.output_directories {
        let prefix = absolute(layout, &expand(&output.path_prefix, &variables, UnknownName::Remove));
        let mut path = prefix.join(&order.segment).join("outputs");
        if let Some(suffix) = output.path_suffix.as_deref() {
            let suffix = expand(suffix, &variables, UnknownName::Remove);
            // A suffix stays below its prefix, however it begins and whatever its variables contain.
            path.extend(suffix.split('/').filter(|part| !matches!(*part, "" | "." | "..")));
        }
        variables.insert(format!("AZ_BATCHAI_OUTPUT_{}", output.id), text(&path));
        output_directories.push(path);
    }
    add_plain_variables(&mut variables, &order.environment);
    let working_directory = match &order.working_directory {
        Some(path) => expand_path(path, &variables, &layout.job_temp),
        None => layout.job_temp.clone(),
    };
    if order.working_directory.is_some() {
        variables.insert(WORKING_DIRECTORY_VARIABLE.to_owned(), text(&working_directory));
    }
    add_secrets(&mut variables, &order.secrets);
    Environment { variables, log_directory, output_directories, working_directory }
}

/// A path of the job with its variables expanded, relative to `base`.
pub fn expand_path(path: &str, variables: &BTreeMap<String, String>, base: &Path) -> PathBuf {
    base.join(expand(path, variables, UnknownName::Remove))
}

/// Environment of the setup task, and the directory of its logs.
pub fn for_setup(
    inherited: BTreeMap<String, String>,
    mounts: &Path,
    home: &Path,
    order: &SetupOrder,
) -> (BTreeMap<String, String>, PathBuf) {
    let mut variables = inherited;
    variables.insert("AZ_BATCHAI_MOUNT_ROOT".to_owned(), text(mounts));
    variables.insert("HOME".to_owned(), text(home));
    let prefix = home.join(expand(&order.std_out_err_path_prefix, &variables, UnknownName::Remove));
    let logs = prefix.join(&order.segment);
    variables.insert("AZ_BATCHAI_STDOUTERR_DIR".to_owned(), text(&logs));
    add_plain_variables(&mut variables, &order.environment);
    add_secrets(&mut variables, &order.secrets);
    (variables, logs)
}

fn add_plain_variables(variables: &mut BTreeMap<String, String>, plain: &[EnvironmentVariable]) {
    for variable in plain {
        let value = expand(&variable.value, variables, UnknownName::Remove);
        variables.insert(variable.name.clone(), value);
    }
}

fn add_secrets(variables: &mut BTreeMap<String, String>, secrets: &[TaskSecret]) {
    for secret in secrets {
        let value = expand(secret.value.expose(), variables, UnknownName::Keep);
        variables.insert(secret.name.clone(), value);
    }
    // Names and values that `execve` cannot pass would prevent every process from starting.
    variables.retain(|name, value| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
}

/// Batch AI's variables with the number of GPUs.
pub fn gpu_count_variables(gpus: usize) -> [(String, String); 2] {
    ["AZ_BATCHAI_NUM_GPUS", "AZ_BATCHAI_NUM_GPUS_PER_NODE"].map(|name| (name.to_owned(), gpus.to_string()))
}

fn service_variables(layout: &Layout, order: &TaskOrder) -> Vec<(String, String)> {
    let names = order.launch_names();
    let master = names.first().map_or("", String::as_str);
    let mut variables = vec![
        ("AZ_BATCHAI_MOUNT_ROOT", text(&layout.mount_root)),
        ("AZ_BATCHAI_JOB_MOUNT_ROOT", text(&layout.job_mount_root)),
        ("AZ_BATCHAI_JOB_TEMP", text(&layout.job_temp)),
        ("AZ_BATCHAI_JOB_TEMP_DIR", text(&layout.jobs)),
        ("AZ_BATCHAI_SHARED_JOB_TEMP", text(&layout.shared)),
        ("AZ_BATCHAI_MPI_HOST_FILE", text(&layout.hostfile)),
        ("AZ_BATCH_HOST_LIST", names.join(",")),
        ("HOME", text(&layout.home)),
        // Recipes write their set-up there during job preparation and rely on it later.
        ("BASH_ENV", text(&layout.home.join(".bashrc"))),
    ];
    if order.layout.is_mpi() {
        variables.push(("AZ_BATCHAI_MPI_MASTER_NODE", master.to_owned()));
    }
    if order.hosts.len() > 1 {
        variables.push(("AZ_BATCH_MASTER_NODE", format!("{master}:{BATCH_PORT}")));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Relative paths are relative to the job's own directory.
fn absolute(layout: &Layout, path: &str) -> PathBuf {
    layout.job_temp.join(path)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Port that Azure Batch appended to the master's address.
const BATCH_PORT: u16 = 6000;

#[cfg(test)]
mod tests {
    use corro_model::Secret;
    use corro_model::batchai::{InputDirectory, OutputDirectory};

    use super::*;
    use crate::testing;

    fn compose_for(order: &TaskOrder) -> Environment {
        let inherited = [("PATH", "/usr/bin"), ("HOME", "/home/operator")];
        let inherited = inherited.map(|(name, value)| (name.to_owned(), value.to_owned()));
        compose(inherited.into(), &Layout::new(Path::new("/n"), "/tmp/n".into(), order), order, 3)
    }

    #[test]
    fn a_job_of_two_nodes_sees_every_variable() {
        let mut order = testing::order(2);
        // The machine has three of the four.
        order.gpus = 4;
        order.input_directories =
            vec![InputDirectory { id: "SCRIPTS".into(), path: "$AZ_BATCHAI_JOB_MOUNT_ROOT/s".into() }];
        let output = |id: &str, suffix: Option<&str>| OutputDirectory {
            id: id.into(),
            path_prefix: "${AZ_BATCHAI_MOUNT_ROOT}/external".into(),
            path_suffix: suffix.map(str::to_owned),
        };
        order.output_directories = vec![output("MODEL", Some("/../models/./../a")), output("ALL", None)];
        let variable = |name: &str, value: &str| EnvironmentVariable { name: name.into(), value: value.into() };
        order.environment = vec![
            variable("DATA", "$AZ_BATCHAI_INPUT_SCRIPTS/data$NOTHING"),
            variable("MORE", "$DATA/more"),
            variable("PATH", "/opt/bin:$PATH"),
        ];
        order.secrets = vec![TaskSecret { name: "KEY".into(), value: Secret::new("pa$word of $MORE") }];

        let environment = compose_for(&order);
        let seen: Vec<String> = environment.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let segment = "sub/rg/workspaces/w/experiments/e/jobs/j/guid";
        let expected = [
            "AZ_BATCHAI_INPUT_SCRIPTS=/n/jobs/w/e/j/mounts/s".to_owned(),
            "AZ_BATCHAI_JOB_MOUNT_ROOT=/n/jobs/w/e/j/mounts".to_owned(),
            "AZ_BATCHAI_JOB_TEMP=/n/jobs/w/e/j".to_owned(),
            "AZ_BATCHAI_JOB_TEMP_DIR=/n/jobs".to_owned(),
            "AZ_BATCHAI_MOUNT_ROOT=/n/mounts".to_owned(),
            "AZ_BATCHAI_MPI_HOST_FILE=/n/jobs/w/e/j/hostfile".to_owned(),
            "AZ_BATCHAI_MPI_MASTER_NODE=127.0.0.4".to_owned(),
            "AZ_BATCHAI_NUM_GPUS=3".to_owned(),
            "AZ_BATCHAI_NUM_GPUS_PER_NODE=3".to_owned(),
            format!("AZ_BATCHAI_OUTPUT_ALL=/n/mounts/external/{segment}/outputs"),
            format!("AZ_BATCHAI_OUTPUT_MODEL=/n/mounts/external/{segment}/outputs/models/a"),
            "AZ_BATCHAI_SHARED_JOB_TEMP=/n/jobs/w/e/j/shared".to_owned(),
            format!("AZ_BATCHAI_STDOUTERR_DIR=/n/jobs/w/e/j/mounts/logs/{segment}/stdouterr"),
            "AZ_BATCH_HOST_LIST=127.0.0.4,127.0.0.5".to_owned(),
            "AZ_BATCH_MASTER_NODE=127.0.0.4:6000".to_owned(),
            "BASH_ENV=/n/home/.bashrc".to_owned(),
            "DATA=/n/jobs/w/e/j/mounts/s/data".to_owned(),
            "HOME=/n/home".to_owned(),
            "KEY=pa$word of /n/jobs/w/e/j/mounts/s/data/more".to_owned(),
            "MORE=/n/jobs/w/e/j/mounts/s/data/more".to_owned(),
            "PATH=/opt/bin:/usr/bin".to_owned(),
        ];
        assert_eq!(seen, expected);
        assert_eq!(environment.output_directories.len(), 2);
        assert!(environment.log_directory.ends_with(format!("logs/{segment}/stdouterr")));
    }

    #[test]
    fn some_variables_are_for_some_jobs_only() {
        let one = compose_for(&TaskOrder { layout: testing::command("true"), ..testing::order(1) }).variables;
        assert_eq!(one["AZ_BATCH_HOST_LIST"], "127.0.0.4");
        assert!(!one.contains_key("AZ_BATCH_MASTER_NODE") && !one.contains_key("AZ_BATCHAI_MPI_MASTER_NODE"));
    }

    #[test]
    fn the_working_directory_is_the_jobs_own_unless_it_names_one() {
        for (given, expected) in [
            (None, "/n/jobs/w/e/j"),
            (Some("$AZ_BATCHAI_JOB_MOUNT_ROOT/share/$PROJECT"), "/n/jobs/w/e/j/mounts/share/cifar"),
            (Some("shared/a"), "/n/jobs/w/e/j/shared/a"),
            (Some("/srv/$KEY"), "/srv/"),
        ] {
            let mut order = testing::order(1);
            order.working_directory = given.map(str::to_owned);
            order.environment = vec![EnvironmentVariable { name: "PROJECT".into(), value: "cifar".into() }];
            order.secrets = vec![TaskSecret { name: "KEY".into(), value: Secret::new("hidden") }];
            let environment = compose_for(&order);
            assert_eq!(environment.working_directory, Path::new(expected), "{given:?}");
            let variable = environment.variables.get(WORKING_DIRECTORY_VARIABLE).map(String::as_str);
            assert_eq!(variable, given.map(|_| expected));
        }
    }

    #[test]
    fn prefixes_may_be_absolute_or_relative() {
        for (prefix, expected) in [("/tmp/x", "/tmp/x/"), ("here", "/n/jobs/w/e/j/here/"), ("$NONE", "/n/jobs/w/e/j/")]
        {
            let order = TaskOrder { std_out_err_path_prefix: prefix.into(), ..testing::order(1) };
            let directory = compose_for(&order).log_directory;
            let expected = format!("{expected}{}/stdouterr", order.segment);
            assert_eq!(directory.display().to_string(), expected, "{prefix}");
        }
    }
}
