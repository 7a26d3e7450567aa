//! Limits of free-form maps and lists: number of entries and length of texts. Tags have the resource manager's limits;
//! others have those of Linux, or are far above common use. Each error names the field.

use super::refuse;
use crate::batchai::{EnvironmentVariable, JobSpec, MountVolumes, SecretVariable, Tags};
use crate::error::ApiError;

/// Tags per resource, the resource manager's limit.
pub const MAX_TAGS: usize = 50;
const MAX_TAG_NAME: usize = 512;
const MAX_TAG_VALUE: usize = 256;
/// Variables per job or setup task, plain and secret each.
const MAX_VARIABLES: usize = 1_000;
/// Bytes per argument or variable. Linux allows less than 128 KiB; the difference is for additions of the launcher.
const MAX_ARGUMENT: usize = 120 << 10;
/// Directories of each kind.
const MAX_DIRECTORIES: usize = 256;
/// Jobs that a job depends on.
pub(super) const MAX_DEPENDENCIES: usize = 100;
/// Volumes of all kinds together.
const MAX_VOLUMES: usize = 100;
const MAX_PATH: usize = 4_096;

/// Checks the tags of a group, workspace or storage account.
pub fn check_tags(tags: &Tags) -> Result<(), ApiError> {
    check_count("tags", "tags", tags.len(), MAX_TAGS)?;
    for (name, value) in tags {
        if name.chars().count() > MAX_TAG_NAME {
            let begin: String = name.chars().take(20).collect();
            let message = format!("the name '{begin}…' of a tag is too long: use at most {MAX_TAG_NAME} characters");
            return refuse("tags", &message);
        }
        if value.chars().count() > MAX_TAG_VALUE {
            let message = format!("the value of the tag '{name}' is too long: use at most {MAX_TAG_VALUE} characters");
            return refuse(&format!("tags.{name}"), &message);
        }
    }
    Ok(())
}

/// Checks the lists, paths and command lines of a job.
pub(super) fn check_job_sizes(spec: &JobSpec) -> Result<(), ApiError> {
    let (inputs, outputs) = ("properties.inputDirectories", "properties.outputDirectories");
    check_count(inputs, "directories", spec.input_directories.len(), MAX_DIRECTORIES)?;
    check_count(outputs, "directories", spec.output_directories.len(), MAX_DIRECTORIES)?;
    check_path("properties.stdOutErrPathPrefix", &spec.std_out_err_path_prefix)?;
    for (i, directory) in spec.input_directories.iter().enumerate() {
        check_path(&format!("{inputs}[{i}].id"), &directory.id)?;
        check_path(&format!("{inputs}[{i}].path"), &directory.path)?;
    }
    for (i, directory) in spec.output_directories.iter().enumerate() {
        check_path(&format!("{outputs}[{i}].id"), &directory.id)?;
        check_path(&format!("{outputs}[{i}].pathPrefix"), &directory.path_prefix)?;
        check_path(&format!("{outputs}[{i}].pathSuffix"), directory.path_suffix.as_deref().unwrap_or_default())?;
    }
    if let Some(preparation) = &spec.job_preparation {
        check_argument("properties.jobPreparation.commandLine", &preparation.command_line)?;
    }
    if let Some(container) = &spec.container_settings {
        let image = "properties.containerSettings.imageSourceRegistry.image";
        check_path(image, &container.image_source_registry.image)?;
    }
    Ok(())
}

pub(super) fn check_variable_sizes(
    at: &str,
    plain: &[EnvironmentVariable],
    secrets: &[SecretVariable],
) -> Result<(), ApiError> {
    check_count(&format!("{at}.environmentVariables"), "variables", plain.len(), MAX_VARIABLES)?;
    check_count(&format!("{at}.secrets"), "secrets", secrets.len(), MAX_VARIABLES)?;
    for (i, variable) in plain.iter().enumerate() {
        check_argument(&format!("{at}.environmentVariables[{i}].name"), &variable.name)?;
        check_argument(&format!("{at}.environmentVariables[{i}].value"), &variable.value)?;
    }
    for (i, secret) in secrets.iter().enumerate() {
        check_argument(&format!("{at}.secrets[{i}].name"), &secret.name)?;
        if let Some(value) = &secret.value {
            check_argument(&format!("{at}.secrets[{i}].value"), value.expose())?;
        }
    }
    Ok(())
}

pub(super) fn check_volume_sizes(field: &str, volumes: &MountVolumes) -> Result<(), ApiError> {
    let (shares, blobs) = (&volumes.azure_file_shares, &volumes.azure_blob_file_systems);
    let (servers, others) = (&volumes.file_servers, &volumes.unmanaged_file_systems);
    let count = shares.len() + blobs.len() + servers.len() + others.len();
    check_count(field, "volumes", count, MAX_VOLUMES)?;
    let paths = [
        ("azureFileShares", shares.iter().map(|volume| &volume.relative_mount_path).collect::<Vec<_>>()),
        ("azureBlobFileSystems", blobs.iter().map(|volume| &volume.relative_mount_path).collect()),
        ("fileServers", servers.iter().map(|volume| &volume.relative_mount_path).collect()),
        ("unmanagedFileSystems", others.iter().map(|volume| &volume.relative_mount_path).collect()),
    ];
    for (kind, paths) in paths {
        for (i, path) in paths.into_iter().enumerate() {
            check_path(&format!("{field}.{kind}[{i}].relativeMountPath"), path)?;
        }
    }
    for (i, server) in servers.iter().enumerate() {
        let inside = server.source_directory.as_deref().unwrap_or_default();
        check_path(&format!("{field}.fileServers[{i}].sourceDirectory"), inside)?;
    }
    for (i, unmanaged) in others.iter().enumerate() {
        check_argument(&format!("{field}.unmanagedFileSystems[{i}].mountCommand"), &unmanaged.mount_command)?;
    }
    Ok(())
}

/// Checks a text that becomes one argument of a program, such as a command line or a variable.
pub(super) fn check_argument(field: &str, text: &str) -> Result<(), ApiError> {
    match text.len() > MAX_ARGUMENT {
        true => refuse(field, &format!("it has {} bytes: use at most {MAX_ARGUMENT}, or a script", text.len())),
        false => Ok(()),
    }
}

pub(super) fn check_path(field: &str, text: &str) -> Result<(), ApiError> {
    match text.len() > MAX_PATH {
        true => refuse(field, &format!("it has {} bytes: use at most {MAX_PATH}", text.len())),
        false => Ok(()),
    }
}

pub(super) fn check_count(field: &str, what: &str, count: usize, most: usize) -> Result<(), ApiError> {
    match count > most {
        true => refuse(field, &format!("{count} {what} are given: use at most {most}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::validate::check_job;

    #[test]
    fn tags_are_few_and_short() {
        let tags = |count: usize| (0..count).map(|number| (number.to_string(), String::new())).collect::<Tags>();
        let target = |tags: &Tags| check_tags(tags).err().map(|error| error.target.unwrap_or_default());
        assert_eq!(target(&tags(MAX_TAGS)), None);
        assert_eq!(target(&tags(MAX_TAGS + 1)).as_deref(), Some("tags"));
        assert_eq!(target(&tags(60_000)).as_deref(), Some("tags"));
        let tag = |name: usize, value: usize| Tags::from([("é".repeat(name), "é".repeat(value))]);
        assert_eq!(target(&tag(MAX_TAG_NAME, MAX_TAG_VALUE)), None);
        assert_eq!(target(&tag(MAX_TAG_NAME + 1, 1)).as_deref(), Some("tags"));
        assert_eq!(target(&tag(1, MAX_TAG_VALUE + 1)).as_deref(), Some("tags.é"));
    }

    #[test]
    fn lists_and_texts_of_a_job_have_bounds() {
        let many = |count: usize, entry: fn(usize) -> Value| Value::Array((0..count).map(entry).collect());
        let check = |field: &str, at: &str, value: Value| {
            let mut job =
                json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "customToolkitSettings": {"commandLine": "a"}});
            job[at] = value;
            let spec: JobSpec = serde_json::from_value(job).expect("well-formed");
            let refused = check_job(&spec).err().map(|error| error.target.unwrap_or_default());
            assert_eq!(refused.as_deref(), (!field.is_empty()).then_some(field));
        };
        let long = "a".repeat(MAX_ARGUMENT + 1);
        let variable = |number: usize| json!({"name": format!("A{number}"), "value": "x"});
        check("", "environmentVariables", many(MAX_VARIABLES, variable));
        check("properties.environmentVariables", "environmentVariables", many(MAX_VARIABLES + 1, variable));
        check("properties.secrets", "secrets", many(MAX_VARIABLES + 1, variable));
        check("properties.secrets[0].value", "secrets", json!([{"name": "A", "value": long}]));
        check(
            "properties.environmentVariables[0].value",
            "environmentVariables",
            json!([{"name": "A", "value": long}]),
        );
        check("properties.customToolkitSettings.commandLine", "customToolkitSettings", json!({"commandLine": long}));
        check("properties.jobPreparation.commandLine", "jobPreparation", json!({"commandLine": long}));
        let output = |number: usize| json!({"id": format!("A{number}"), "pathPrefix": "x"});
        let input = |number: usize| json!({"id": format!("A{number}"), "path": "x"});
        check("", "outputDirectories", many(MAX_DIRECTORIES, output));
        check("properties.outputDirectories", "outputDirectories", many(MAX_DIRECTORIES + 1, output));
        check("properties.inputDirectories", "inputDirectories", many(MAX_DIRECTORIES + 1, input));
        check("properties.stdOutErrPathPrefix", "stdOutErrPathPrefix", json!("a".repeat(MAX_PATH + 1)));
        let volume = |number: usize| json!({"mountCommand": "x", "relativeMountPath": format!("v{number}")});
        let volumes = |count: usize| json!({"unmanagedFileSystems": many(count, volume)});
        check("", "mountVolumes", volumes(MAX_VOLUMES));
        check("properties.mountVolumes", "mountVolumes", volumes(MAX_VOLUMES + 1));
    }
}
