//! Names of the variables that Batch AI gives to jobs, and misspelled ones in a job file. Pure.

use super::facts::JobFacts;
use crate::batchai::JobSpec;
use crate::spelling::most_similar;

/// Variables that a job may have besides those of its directories.
const VARIABLES: [&str; 17] = [
    "AZ_BATCHAI_JOB_MOUNT_ROOT",
    "AZ_BATCHAI_JOB_TEMP",
    "AZ_BATCHAI_JOB_TEMP_DIR",
    "AZ_BATCHAI_MOUNT_ROOT",
    "AZ_BATCHAI_MPI_HOST_FILE",
    "AZ_BATCHAI_MPI_MASTER_NODE",
    "AZ_BATCHAI_NUM_GPUS",
    "AZ_BATCHAI_NUM_GPUS_PER_NODE",
    "AZ_BATCHAI_PS_HOSTS",
    "AZ_BATCHAI_PYTORCH_BACKEND",
    "AZ_BATCHAI_PYTORCH_INIT_METHOD",
    "AZ_BATCHAI_SHARED_JOB_TEMP",
    "AZ_BATCHAI_STDOUTERR_DIR",
    "AZ_BATCHAI_TASK_INDEX",
    "AZ_BATCHAI_WORKER_HOSTS",
    "AZ_BATCH_HOST_LIST",
    "AZ_BATCH_MASTER_NODE",
];

/// A variable of Batch AI in the job's command lines that the job does not have, and the one that was probably meant.
pub fn misspelled_variable(facts: &JobFacts<'_>) -> Option<(String, Option<String>)> {
    let known = variables(facts.spec);
    let texts = command_texts(facts.spec);
    let mut used = texts.iter().flat_map(|text| names_in(text)).filter(|name| name.starts_with("AZ_BATCHAI"));
    let wrong = used.find(|name| !known.iter().any(|known| known == name))?;
    let meant = most_similar(wrong, known.iter().map(String::as_str)).map(str::to_owned);
    Some((wrong.to_owned(), meant))
}

fn variables(spec: &JobSpec) -> Vec<String> {
    let inputs = spec.input_directories.iter().map(|input| format!("AZ_BATCHAI_INPUT_{}", input.id));
    let outputs = spec.output_directories.iter().map(|output| format!("AZ_BATCHAI_OUTPUT_{}", output.id));
    let own = spec.environment_variables.iter().map(|variable| variable.name.clone());
    let secrets = spec.secrets.iter().map(|secret| secret.name.clone());
    VARIABLES.iter().map(|name| (*name).to_owned()).chain(inputs).chain(outputs).chain(own).chain(secrets).collect()
}

/// Command lines, arguments and paths of the job's settings.
fn command_texts(spec: &JobSpec) -> Vec<&str> {
    let mut texts: Vec<Option<&str>> = Vec::new();
    for settings in [&spec.horovod_settings, &spec.chainer_settings].into_iter().flatten() {
        texts.extend([Some(settings.python_script_file_path.as_str()), settings.command_line_args.as_deref()]);
    }
    if let Some(settings) = &spec.py_torch_settings {
        texts.extend([Some(settings.python_script_file_path.as_str()), settings.command_line_args.as_deref()]);
    }
    if let Some(settings) = &spec.tensor_flow_settings {
        texts.extend([
            Some(settings.python_script_file_path.as_str()),
            settings.master_command_line_args.as_deref(),
            settings.worker_command_line_args.as_deref(),
        ]);
    }
    if let Some(settings) = &spec.caffe2_settings {
        texts.extend([Some(settings.python_script_file_path.as_str()), settings.command_line_args.as_deref()]);
    }
    texts.push(spec.custom_toolkit_settings.as_ref().and_then(|settings| settings.command_line.as_deref()));
    texts.push(spec.custom_mpi_settings.as_ref().map(|settings| settings.command_line.as_str()));
    texts.push(spec.job_preparation.as_ref().map(|preparation| preparation.command_line.as_str()));
    texts.push(spec.working_directory.as_deref());
    texts.into_iter().flatten().collect()
}

/// Names of variables in a text: `$NAME` and `${NAME}`.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    })
}
