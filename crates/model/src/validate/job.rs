//! Validation of jobs: nodes, paths, directories, variables; and valid settings that this server cannot run.

use std::collections::BTreeSet;

use super::extensions::check_extensions;
use super::limits::{check_job_sizes, check_variable_sizes};
use super::prefix::{JOB_ROOTS, check_prefix};
use super::sweep::check_sweep;
use super::toolkit::check_toolkit;
use super::volumes::check_volumes;
use super::{MAX_NODES, blank, is_variable_name, refuse};
use crate::batchai::{BatchAiError, EnvironmentVariable, JobSpec, STDOUTERR, SecretVariable};
use crate::container::{is_image_reference, parse_size};
use crate::error::ApiError;

pub fn check_job(spec: &JobSpec) -> Result<(), ApiError> {
    if spec.node_count < 1 {
        let message = format!("nodeCount is {}: a job needs at least 1 node", spec.node_count);
        return Err(ApiError::invalid("properties.nodeCount", message));
    }
    if spec.node_count > MAX_NODES {
        let message = format!("nodeCount is {}: a cluster has at most {MAX_NODES} nodes", spec.node_count);
        return Err(ApiError::invalid("properties.nodeCount", message));
    }
    check_job_sizes(spec)?;
    check_toolkit(spec)?;
    check_container(spec)?;
    if spec.constraints.max_wall_clock_time.0.is_zero() {
        return refuse(
            "properties.constraints.maxWallClockTime",
            "the time a job may run is zero: give one such as P7D, or leave it out",
        );
    }
    if spec.std_out_err_path_prefix.trim().is_empty() {
        return refuse(
            "properties.stdOutErrPathPrefix",
            "the path for logs is empty: give one, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare",
        );
    }
    check_prefix("properties.stdOutErrPathPrefix", &spec.std_out_err_path_prefix, &JOB_ROOTS)?;
    if let Some(preparation) = &spec.job_preparation
        && preparation.command_line.trim().is_empty()
    {
        return refuse(
            "properties.jobPreparation.commandLine",
            "the command line is empty: give one or leave jobPreparation out",
        );
    }
    check_directory_ids(spec)?;
    check_variables("properties", &spec.environment_variables, &spec.secrets)?;
    check_extensions(spec)?;
    check_sweep(spec)?;
    check_volumes("properties.mountVolumes", spec.mount_volumes.as_ref())
}

fn check_container(spec: &JobSpec) -> Result<(), ApiError> {
    let Some(container) = &spec.container_settings else { return Ok(()) };
    let field = "properties.containerSettings.imageSourceRegistry";
    let registry = &container.image_source_registry;
    if blank(Some(&registry.image)) {
        return refuse(&format!("{field}.image"), "the image is empty: give one such as ubuntu, or leave it all out");
    }
    if !is_image_reference(&registry.image) {
        return refuse(
            &format!("{field}.image"),
            &format!("'{}' is not an image name: use one such as ubuntu or demo.azurecr.io/image:tag", registry.image),
        );
    }
    if let Some(size) = &container.shm_size
        && parse_size(size).is_none()
    {
        return refuse(
            "properties.containerSettings.shmSize",
            &format!("'{size}' is not a memory size: use one such as 64m or 16gb"),
        );
    }
    let Some(credentials) = &registry.credentials else { return Ok(()) };
    if blank(Some(&credentials.username)) {
        return refuse(&format!("{field}.credentials.username"), "the user name is empty: give one");
    }
    match (&credentials.password, &credentials.password_secret_reference) {
        (None, None) => {
            refuse(&format!("{field}.credentials"), "no password is given: give password or passwordSecretReference")
        }
        (Some(_), Some(_)) => refuse(
            &format!("{field}.credentials"),
            "both password and passwordSecretReference are given: give one of them",
        ),
        _ => Ok(()),
    }
}

/// Error of a valid job that this server cannot run; `None` if it can.
pub fn unsupported(spec: &JobSpec) -> Option<BatchAiError> {
    let error = |field: String, why: &str| {
        Some(BatchAiError::new("NotSupported", format!("{field}: {why}")).with("Field", field))
    };
    let vault = "key vaults are not supported: give the value itself";
    if let Some(secret) = spec.secrets.iter().find(|secret| secret.value.is_none()) {
        return error(format!("properties.secrets ({})", secret.name), vault);
    }
    let registry = spec.container_settings.as_ref().and_then(|c| c.image_source_registry.credentials.as_ref());
    if registry.is_some_and(|credentials| credentials.password.is_none()) {
        return error("properties.containerSettings.imageSourceRegistry.credentials".to_owned(), vault);
    }
    None
}

fn check_directory_ids(spec: &JobSpec) -> Result<(), ApiError> {
    let inputs = spec.input_directories.iter().map(|d| ("properties.inputDirectories", d.id.as_str()));
    let outputs = spec.output_directories.iter().map(|d| ("properties.outputDirectories", d.id.as_str()));
    let mut seen = BTreeSet::new();
    for (field, id) in inputs.chain(outputs) {
        if !is_variable_name(id) {
            return refuse(
                field,
                &format!(
                    "'{id}' cannot be a directory id: use letters, digits and '_', as it becomes part of a variable's name"
                ),
            );
        }
        if !seen.insert((field, id)) {
            return refuse(field, &format!("the id '{id}' is given twice: give each directory its own"));
        }
    }
    for (i, directory) in spec.output_directories.iter().enumerate() {
        let field = format!("properties.outputDirectories[{i}]");
        if directory.id == STDOUTERR {
            let message = format!("'{STDOUTERR}' is where every job's logs are: give the directory another id");
            return refuse(&format!("{field}.id"), &message);
        }
        check_prefix(&format!("{field}.pathPrefix"), &directory.path_prefix, &JOB_ROOTS)?;
        let suffix = directory.path_suffix.as_deref().unwrap_or_default();
        if suffix.split('/').any(|part| matches!(part, "." | "..")) {
            let message = format!("'{suffix}' leads out of the output directory: leave '.' and '..' out");
            return refuse(&format!("{field}.pathSuffix"), &message);
        }
    }
    Ok(())
}

pub(super) fn check_variables(
    at: &str,
    plain: &[EnvironmentVariable],
    secrets: &[SecretVariable],
) -> Result<(), ApiError> {
    check_variable_sizes(at, plain, secrets)?;
    let plain = plain.iter().map(|v| ("environmentVariables", v.name.as_str()));
    let secret = secrets.iter().map(|v| ("secrets", v.name.as_str()));
    for (field, name) in plain.chain(secret) {
        if !is_variable_name(name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return refuse(
                &format!("{at}.{field}"),
                &format!("'{name}' is not a variable name: use letters, digits and '_', not starting with a digit"),
            );
        }
    }
    let field = format!("{at}.secrets");
    for secret in secrets {
        let name = &secret.name;
        match (&secret.value, &secret.value_secret_reference) {
            (None, None) => {
                let message = format!("the secret '{name}' has no value: give 'value' or 'valueSecretReference'");
                return refuse(&field, &message);
            }
            (Some(_), Some(_)) => {
                let message = format!("the secret '{name}' has a value and a reference to one: give one of them");
                return refuse(&field, &message);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(change: impl FnOnce(&mut Value)) -> Result<(), (String, String)> {
        let mut value = json!({
            "nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
            "customToolkitSettings": {"commandLine": "echo hi"}
        });
        change(&mut value);
        let spec: JobSpec = serde_json::from_value(value).expect("well-formed");
        check_job(&spec).map_err(|error| (error.target.unwrap_or_default(), error.message))
    }

    #[test]
    fn a_plain_job_is_fine() {
        assert_eq!(job(|_| {}), Ok(()));
    }

    #[test]
    fn refusals_name_the_field() {
        let check = |field: &str, change: fn(&mut Value)| {
            assert_eq!(job(change).expect_err(field).0, field);
        };
        check("properties.nodeCount", |j| j["nodeCount"] = json!(0));
        check("properties.nodeCount", |j| j["nodeCount"] = json!(100_000));
        check("properties", |j| j["customToolkitSettings"] = Value::Null);
        check("properties", |j| j["horovodSettings"] = json!({"pythonScriptFilePath": "a.py"}));
        check("properties.customToolkitSettings.commandLine", |j| {
            j["customToolkitSettings"] = json!({"commandLine": " "})
        });
        check("properties.constraints.maxWallClockTime", |j| {
            j["constraints"] = json!({"maxWallClockTime": "00:00:00"});
        });
        check("properties.containerSettings.imageSourceRegistry.credentials", |j| {
            j["containerSettings"] = json!({"imageSourceRegistry": {"image": "i", "credentials": {"username": "u"}}});
        });
        check("properties.containerSettings.imageSourceRegistry.image", |j| {
            j["containerSettings"] = json!({"imageSourceRegistry": {"image": "../containers/x"}});
        });
        check("properties.containerSettings.shmSize", |j| {
            j["containerSettings"] = json!({"shmSize": "much", "imageSourceRegistry": {"image": "i"}});
        });
        check("properties.stdOutErrPathPrefix", |j| j["stdOutErrPathPrefix"] = json!(""));
        check("properties.stdOutErrPathPrefix", |j| j["stdOutErrPathPrefix"] = json!("/etc/cron.d"));
        check("properties.stdOutErrPathPrefix", |j| {
            j["stdOutErrPathPrefix"] = json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/../../../..");
        });
        check("properties.outputDirectories[0].pathPrefix", |j| {
            j["outputDirectories"] = json!([{"id": "A", "pathPrefix": "/etc"}]);
        });
        check("properties.outputDirectories", |j| j["outputDirectories"] = json!([{"id": "a b", "pathPrefix": "x"}]));
        check("properties.outputDirectories[0].id", |j| {
            j["outputDirectories"] = json!([{"id": "stdouterr", "pathPrefix": "x"}]);
        });
        check("properties.outputDirectories[1].pathSuffix", |j| {
            let directory = |id: &str, suffix: &str| json!({"id": id, "pathPrefix": "x", "pathSuffix": suffix});
            j["outputDirectories"] = json!([directory("A", "/models..a/b"), directory("B", "a/../../../b")]);
        });
        check("properties.environmentVariables", |j| j["environmentVariables"] = json!([{"name": "1x", "value": ""}]));
        check("properties.secrets", |j| j["secrets"] = json!([{"name": "S"}]));
        check("properties.mountVolumes.azureFileShares[0].relativeMountPath", |j| {
            j["mountVolumes"] =
                json!({"azureFileShares": [{"azureFileUrl": "https://a.b/s", "relativeMountPath": "../x"}]});
        });
        check("properties.mountVolumes.azureFileShares[0].azureFileUrl", |j| {
            j["mountVolumes"] =
                json!({"azureFileShares": [{"azureFileUrl": "https://a.b/", "relativeMountPath": "x"}]});
        });
    }

    #[test]
    fn what_cannot_be_run_yet_is_accepted_and_named() {
        let check = |field: Option<&str>, change: fn(&mut Value)| {
            let mut value =
                json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "customToolkitSettings": {"commandLine": "a"}});
            change(&mut value);
            let spec: JobSpec = serde_json::from_value(value).expect("well-formed");
            check_job(&spec).expect("it is accepted");
            assert_eq!(unsupported(&spec).map(|error| error.details[0].value.clone()).as_deref(), field);
        };
        check(None, |_| {});
        check(None, |j| {
            j["customToolkitSettings"] = Value::Null;
            j["caffe2Settings"] = json!({"pythonScriptFilePath": "a.py"});
        });
        check(Some("properties.secrets (S)"), |j| {
            j["secrets"] =
                json!([{"name": "S", "valueSecretReference": {"sourceVault": {"id": "v"}, "secretUrl": "u"}}]);
        });
    }
}
