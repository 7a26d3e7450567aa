//! The job of a trial, made from the job of another trial of the same sweep. They differ in parameters, arguments and the directory. Pure.

use corro_model::batchai::{JobSpec, SweepTrial};

use super::arguments::{arguments_of, variables_of};
use crate::commands::submit::values::shell_line;
use crate::project_upload::job_directory::JobDirectory;

/// The directory of a trial in that of its sweep. Further attempts to make the trial have directories of their own.
pub fn trial_directory(sweep_directory: &str, trial: u32, attempt: u32) -> String {
    match attempt {
        1 => format!("{sweep_directory}/{trial:03}"),
        _ => format!("{sweep_directory}/{trial:03}.{attempt}"),
    }
}

/// The directory of the sweep, by that of one of its trials.
pub fn sweep_directory(of_trial: &JobDirectory) -> &str {
    of_trial.path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The job of `trial` with its directory at `path`, like the job `reference`; `None` if `corro sweep` did not make that one.
pub fn job_of_trial(reference: &JobSpec, trial: SweepTrial, path: String) -> Option<JobSpec> {
    let own = reference.sweep.as_deref()?;
    let from = JobDirectory::of(reference)?;
    let to = JobDirectory { path, ..from.clone() };
    let mut spec = reference.clone();
    move_paths(&mut spec, &from.node_path(""), &to.node_path(""));
    let line = |trial: &SweepTrial| shell_line(&arguments_of(&own.arguments, &trial.parameters));
    let (old, new) = (line(own), line(&trial));
    let begin = arguments_text(&mut spec)?;
    *begin = format!("{}{new}", begin.strip_suffix(&old)?);
    for variable in variables_of(&trial.parameters) {
        // In place, so that the order does not depend on the reference.
        match spec.environment_variables.iter_mut().find(|known| known.name == variable.name) {
            Some(known) => *known = variable,
            None => spec.environment_variables.push(variable),
        }
    }
    spec.sweep = Some(Box::new(trial));
    Some(spec)
}

/// The text that ends with the arguments of the program.
fn arguments_text(spec: &mut JobSpec) -> Option<&mut String> {
    let horovod = spec.horovod_settings.as_mut().and_then(|settings| settings.command_line_args.as_mut());
    let torch = spec.py_torch_settings.as_mut().and_then(|settings| settings.command_line_args.as_mut());
    let custom = spec.custom_toolkit_settings.as_mut().and_then(|settings| settings.command_line.as_mut());
    let mpi = spec.custom_mpi_settings.as_mut().map(|settings| &mut settings.command_line);
    horovod.or(torch).or(custom).or(mpi)
}

/// Replaces the directory in all paths that `corro submit` makes.
fn move_paths(spec: &mut JobSpec, from: &str, to: &str) {
    let python = spec.python_environment.as_mut();
    let (requirements, conda) =
        python.map_or((None, None), |python| (python.requirements_file.as_mut(), python.conda_file.as_mut()));
    let scripts = [
        spec.horovod_settings.as_mut().map(|settings| &mut settings.python_script_file_path),
        spec.py_torch_settings.as_mut().map(|settings| &mut settings.python_script_file_path),
        Some(&mut spec.std_out_err_path_prefix),
        spec.working_directory.as_mut(),
        requirements,
        conda,
    ];
    for path in scripts.into_iter().flatten() {
        match path.strip_prefix(from) {
            Some(below) if below.is_empty() || below.starts_with('/') => *path = format!("{to}{below}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::{JobCreateParameters, SweepParameter};
    use corro_model::validate::check_job;
    use serde_json::{Value, json};

    const ROOT: &str = "$AZ_BATCHAI_JOB_MOUNT_ROOT/projects/w/e/rates";

    fn trial(number: u32, rate: &str) -> SweepTrial {
        let trial = json!({
            "name": "rates", "trial": number, "trialCount": 12, "space": ["lr=1,2"], "parameters": [{"name": "lr", "value": rate}],
            "arguments": ["--data", "a b", "--lr", "{lr}"],
        });
        serde_json::from_value(trial).expect("a trial")
    }

    fn spec(number: u32, rate: &str, toolkit: &str, settings: Value) -> JobSpec {
        let directory = format!("{ROOT}/{number:03}");
        let file = json!({"properties": {
            "nodeCount": 2, toolkit: settings, "stdOutErrPathPrefix": format!("{directory}/.corro/logs"),
            "workingDirectory": format!("{directory}/src"),
            "pythonEnvironment": {"requirementsFile": format!("{directory}/.corro/requirements.txt")},
            "mountVolumes": {"azureFileShares": [{
                "accountName": "acc", "azureFileUrl": "https://acc.file.core.windows.net/projects", "relativeMountPath": "projects"}]},
            "environmentVariables": [{"name": "A", "value": ROOT}, {"name": "CORRO_PARAM_LR", "value": rate}],
            "sweep": trial(number, rate),
        }});
        let job: JobCreateParameters = serde_json::from_value(file).expect("a job file");
        check_job(&job.properties).expect("valid");
        job.properties
    }

    #[test]
    fn trials_differ_in_parameters_and_directory_only() {
        let check = |toolkit: &str, settings: fn(u32, &str) -> Value| {
            let (first, eleventh) = (settings(1, "0.5"), settings(11, "1e-05"));
            let reference = spec(1, "0.5", toolkit, first);
            let directory = JobDirectory::of(&reference).expect("a directory");
            let path = |trial| trial_directory(sweep_directory(&directory), trial, 1);
            let made = job_of_trial(&reference, trial(11, "1e-05"), path(11)).expect("a trial's job");
            assert_eq!(made, spec(11, "1e-05", toolkit, eleventh), "{toolkit}");
            // And back.
            assert_eq!(job_of_trial(&made, trial(1, "0.5"), path(1)), Some(reference));
        };
        check(
            "customToolkitSettings",
            |_, rate| json!({"commandLine": format!("python3 train.py --data 'a b' --lr {rate}")}),
        );
        check("customMpiSettings", |_, rate| json!({"commandLine": format!("--data 'a b' --lr {rate}")}));
        let script = |number: u32, rate: &str| json!({"pythonScriptFilePath": format!("{ROOT}/{number:03}/train.py"), "commandLineArgs": format!("--data 'a b' --lr {rate}")});
        check("horovodSettings", script);
        check("pyTorchSettings", script);
    }

    #[test]
    fn each_attempt_has_a_directory_of_its_own() {
        assert_eq!(
            [1, 2].map(|attempt| trial_directory("w/e/rates", 7, attempt)),
            ["w/e/rates/007", "w/e/rates/007.2"]
        );
        let reference = spec(1, "0.5", "customToolkitSettings", json!({"commandLine": "x --data 'a b' --lr 0.5"}));
        let second =
            job_of_trial(&reference, trial(1, "0.5"), trial_directory("w/e/rates", 1, 2)).expect("a trial's job");
        assert_eq!(JobDirectory::of(&second).map(|directory| directory.path).as_deref(), Some("w/e/rates/001.2"));
        assert_eq!(job_of_trial(&second, trial(1, "0.5"), "w/e/rates/001".to_owned()), Some(reference));
    }

    #[test]
    fn a_job_of_another_origin_makes_no_trials() {
        let settings = json!({"commandLine": "python3 train.py --data 'a b' --lr 0.5"});
        let made = spec(1, "0.5", "customToolkitSettings", settings);
        let refuse = |change: fn(&mut JobSpec)| {
            let mut changed = made.clone();
            change(&mut changed);
            assert_eq!(job_of_trial(&changed, trial(2, "2"), "w/e/rates/002".to_owned()), None);
        };
        refuse(|spec| spec.sweep = None);
        refuse(|spec| spec.std_out_err_path_prefix = "$AZ_BATCHAI_JOB_MOUNT_ROOT/projects".to_owned());
        refuse(|spec| spec.custom_toolkit_settings.as_mut().expect("settings").command_line = Some("true".to_owned()));
    }

    #[test]
    fn values_that_a_shell_would_split_are_quoted() {
        let reference = spec(1, "0.5", "customToolkitSettings", json!({"commandLine": "x --data 'a b' --lr 0.5"}));
        let mut odd = trial(2, "2");
        odd.parameters = vec![SweepParameter { name: "lr".to_owned(), value: "a; rm *".to_owned() }];
        let made = job_of_trial(&reference, odd, "w/e/rates/002".to_owned()).expect("a trial's job");
        let line = made.custom_toolkit_settings.and_then(|settings| settings.command_line);
        assert_eq!(line.as_deref(), Some("x --data 'a b' --lr 'a; rm *'"));
    }
}
