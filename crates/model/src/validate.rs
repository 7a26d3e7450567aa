//! What is refused, in one place: called by the CLI for early hints and by the server for authority. Each refusal names
//! the field, the cause and the fix.

use crate::batchai::{
    ClusterSpec, EnvironmentVariable, FileServerSpec, JobSpec, MountVolumes, ScaleSettings, SecretVariable, SetupTask,
    ToolType, UserAccountSettings,
};
use crate::error::ApiError;
use crate::vm_size;

/// The service's limit on nodes of one cluster.
pub const MAX_NODES: i32 = 100;
/// More processes than this on one node is a mistake in `processCount`.
const MAX_PROCESSES_PER_NODE: i32 = 64;

pub fn check_cluster(spec: &ClusterSpec) -> Result<(), ApiError> {
    if vm_size::find(&spec.vm_size).is_none() {
        let message = format!(
            "'{}' is not a VM size this server knows: use one such as Standard_NC6, Standard_D2_v2 or Standard_D1",
            spec.vm_size
        );
        return Err(ApiError::invalid("properties.vmSize", message));
    }
    check_scale(&spec.scale_settings)?;
    check_account("properties.userAccountSettings", &spec.user_account_settings)?;
    if let Some(setup) = &spec.node_setup {
        if let Some(task) = &setup.setup_task {
            check_setup("properties.nodeSetup.setupTask", task)?;
        }
        check_volumes("properties.nodeSetup.mountVolumes", setup.mount_volumes.as_ref())?;
    }
    Ok(())
}

fn check_setup(field: &str, task: &SetupTask) -> Result<(), ApiError> {
    if blank(Some(&task.command_line)) {
        return refuse(&format!("{field}.commandLine"), "the command line is empty: give one or leave setupTask out");
    }
    if blank(Some(&task.std_out_err_path_prefix)) {
        return refuse(
            &format!("{field}.stdOutErrPathPrefix"),
            "the path for logs is empty: give one, such as $AZ_BATCHAI_MOUNT_ROOT/myshare",
        );
    }
    check_variables(field, &task.environment_variables, &task.secrets)
}

/// The most address ranges that may be named.
const MAX_ADDRESS_RANGES: usize = 400;
const MAX_DISKS: i32 = 64;

pub fn check_file_server(spec: &FileServerSpec) -> Result<(), ApiError> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if spec.vm_size.is_empty() || !spec.vm_size.chars().all(word) {
        let message = format!("'{}' is not a VM size: use one such as Standard_D2_v2", spec.vm_size);
        return Err(ApiError::invalid("properties.vmSize", message));
    }
    let ssh = &spec.ssh_configuration;
    if ssh.public_ips_to_allow.as_ref().is_some_and(|ranges| ranges.len() > MAX_ADDRESS_RANGES) {
        let message = format!("more than {MAX_ADDRESS_RANGES} address ranges are given: join some of them");
        return Err(ApiError::invalid("properties.sshConfiguration.publicIPsToAllow", message));
    }
    check_account("properties.sshConfiguration.userAccountSettings", &ssh.user_account_settings)?;
    let disks = &spec.data_disks;
    if disks.disk_size_in_gb < 1 {
        let message = format!("diskSizeInGB is {}: use 1 or more", disks.disk_size_in_gb);
        return Err(ApiError::invalid("properties.dataDisks.diskSizeInGB", message));
    }
    if !(1..=MAX_DISKS).contains(&disks.disk_count) {
        let message = format!("diskCount is {}: use a number from 1 to {MAX_DISKS}", disks.disk_count);
        return Err(ApiError::invalid("properties.dataDisks.diskCount", message));
    }
    Ok(())
}

fn check_account(field: &str, account: &UserAccountSettings) -> Result<(), ApiError> {
    if account.admin_user_name.is_empty() {
        return refuse(&format!("{field}.adminUserName"), "the admin user name is empty: give one");
    }
    if account.admin_user_ssh_public_key.is_none() && account.admin_user_password.is_none() {
        return refuse(field, "neither an SSH public key nor a password is given: give one");
    }
    Ok(())
}

pub fn check_scale(scale: &ScaleSettings) -> Result<(), ApiError> {
    let field = "properties.scaleSettings";
    match (&scale.manual, &scale.auto_scale) {
        (Some(manual), None) => {
            if !(0..=MAX_NODES).contains(&manual.target_node_count) {
                let message =
                    format!("targetNodeCount is {}: use a number from 0 to {MAX_NODES}", manual.target_node_count);
                return Err(ApiError::invalid("properties.scaleSettings.manual.targetNodeCount", message));
            }
            Ok(())
        }
        (None, Some(auto)) => {
            let (min, max) = (auto.minimum_node_count, auto.maximum_node_count);
            if min < 0 || max > MAX_NODES || min > max {
                let message = format!(
                    "minimumNodeCount is {min} and maximumNodeCount {max}: use 0 <= minimum <= maximum <= {MAX_NODES}"
                );
                return Err(ApiError::invalid("properties.scaleSettings.autoScale", message));
            }
            Ok(())
        }
        (None, None) => refuse(field, "no scale settings are given: give 'manual' or 'autoScale'"),
        (Some(_), Some(_)) => refuse(field, "both 'manual' and 'autoScale' are given: give one of them"),
    }
}

pub fn check_job(spec: &JobSpec) -> Result<(), ApiError> {
    if spec.node_count < 1 {
        let message = format!("nodeCount is {}: a job needs at least 1 node", spec.node_count);
        return Err(ApiError::invalid("properties.nodeCount", message));
    }
    if spec.node_count > MAX_NODES {
        let message = format!("nodeCount is {}: a cluster has at most {MAX_NODES} nodes", spec.node_count);
        return Err(ApiError::invalid("properties.nodeCount", message));
    }
    check_toolkit(spec)?;
    if spec.std_out_err_path_prefix.trim().is_empty() {
        return refuse(
            "properties.stdOutErrPathPrefix",
            "the path for logs is empty: give one, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare",
        );
    }
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
    check_volumes("properties.mountVolumes", spec.mount_volumes.as_ref())
}

fn check_toolkit(spec: &JobSpec) -> Result<(), ApiError> {
    let field_names = |tools: &[ToolType]| tools.iter().map(|t| t.settings_field()).collect::<Vec<_>>().join(", ");
    let tool = match spec.toolkits()[..] {
        [tool] => tool,
        [] => {
            let all = field_names(&ToolType::ALL);
            return Err(ApiError::invalid(
                "properties",
                format!("no toolkit settings are given: give exactly one of {all}"),
            ));
        }
        ref several => {
            let given = field_names(several);
            return Err(ApiError::invalid(
                "properties",
                format!("several toolkit settings are given ({given}): give exactly one"),
            ));
        }
    };
    let field = format!("properties.{}", tool.settings_field());
    if !tool.can_run() {
        let message =
            "jobs of this kind cannot be run yet: use horovodSettings, customMpiSettings or customToolkitSettings";
        return refuse(&field, message);
    }
    if tool == ToolType::Custom
        && spec.custom_toolkit_settings.as_ref().is_none_or(|s| blank(s.command_line.as_deref()))
    {
        return refuse(&format!("{field}.commandLine"), "the command line is empty: give one");
    }
    if tool == ToolType::CustomMpi && spec.custom_mpi_settings.as_ref().is_none_or(|s| blank(Some(&s.command_line))) {
        return refuse(&format!("{field}.commandLine"), "the command line is empty: give one");
    }
    if let Some(settings) = &spec.horovod_settings
        && blank(Some(&settings.python_script_file_path))
    {
        return refuse(&format!("{field}.pythonScriptFilePath"), "the script's path is empty: give one");
    }
    let processes = spec.process_count();
    if processes < 1 || processes > spec.node_count * MAX_PROCESSES_PER_NODE {
        let most = spec.node_count * MAX_PROCESSES_PER_NODE;
        let message =
            format!("processCount is {processes}: use a number from 1 to {most} on {} nodes", spec.node_count);
        return Err(ApiError::invalid(&format!("{field}.processCount"), message));
    }
    Ok(())
}

fn check_directory_ids(spec: &JobSpec) -> Result<(), ApiError> {
    let inputs = spec.input_directories.iter().map(|d| ("properties.inputDirectories", d.id.as_str()));
    let outputs = spec.output_directories.iter().map(|d| ("properties.outputDirectories", d.id.as_str()));
    let mut seen = std::collections::BTreeSet::new();
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
    Ok(())
}

fn check_variables(at: &str, plain: &[EnvironmentVariable], secrets: &[SecretVariable]) -> Result<(), ApiError> {
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
    if let Some(secret) = secrets.iter().find(|secret| secret.value.is_none()) {
        return refuse(
            &format!("{at}.secrets"),
            &format!("the secret '{}' has no value: give 'value' (key vaults are not supported)", secret.name),
        );
    }
    Ok(())
}

fn check_volumes(field: &str, volumes: Option<&MountVolumes>) -> Result<(), ApiError> {
    let Some(volumes) = volumes else { return Ok(()) };
    let unsupported = [
        ("fileServers", volumes.file_servers.is_empty()),
        ("unmanagedFileSystems", volumes.unmanaged_file_systems.is_empty()),
    ];
    if let Some((kind, _)) = unsupported.iter().find(|(_, empty)| !empty) {
        return refuse(
            &format!("{field}.{kind}"),
            "volumes of this kind cannot be mounted yet: use azureFileShares or azureBlobFileSystems",
        );
    }
    let mut places: Vec<(String, &str)> = Vec::new();
    for (i, share) in volumes.azure_file_shares.iter().enumerate() {
        let at = format!("{field}.azureFileShares[{i}]");
        if share.share_name().is_none() {
            return refuse(
                &format!("{at}.azureFileUrl"),
                &format!(
                    "'{}' names no share: write https://ACCOUNT.file.core.windows.net/SHARE",
                    share.azure_file_url
                ),
            );
        }
        places.push((at, &share.relative_mount_path));
    }
    for (i, blob) in volumes.azure_blob_file_systems.iter().enumerate() {
        let at = format!("{field}.azureBlobFileSystems[{i}]");
        if blank(blob.account_name.as_deref()) {
            return refuse(&format!("{at}.accountName"), "no storage account is named: give its name");
        }
        if blank(Some(&blob.container_name)) {
            return refuse(&format!("{at}.containerName"), "no container is named: give its name");
        }
        places.push((at, &blob.relative_mount_path));
    }
    let mut mounted: Vec<Vec<&str>> = Vec::new();
    for (at, path) in places {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let escapes = path.starts_with('/') || parts.iter().any(|p| matches!(*p, "." | ".."));
        if parts.is_empty() || escapes || path.contains('\0') {
            return refuse(
                &format!("{at}.relativeMountPath"),
                &format!("'{path}' is not a relative path below the mount root"),
            );
        }
        if mounted.iter().any(|other| other.starts_with(&parts) || parts.starts_with(other)) {
            return refuse(
                &format!("{at}.relativeMountPath"),
                &format!("'{path}' lies on another volume's mount path: give each its own"),
            );
        }
        mounted.push(parts);
    }
    Ok(())
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn blank(text: Option<&str>) -> bool {
    text.is_none_or(|text| text.trim().is_empty())
}

fn refuse(field: &str, message: &str) -> Result<(), ApiError> {
    Err(ApiError::invalid(field, message))
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
        check("properties.nodeCount", |j| j["nodeCount"] = json!(1000));
        check("properties", |j| j["customToolkitSettings"] = Value::Null);
        check("properties", |j| j["horovodSettings"] = json!({"pythonScriptFilePath": "a.py"}));
        check("properties.customToolkitSettings.commandLine", |j| {
            j["customToolkitSettings"] = json!({"commandLine": " "})
        });
        check("properties.stdOutErrPathPrefix", |j| j["stdOutErrPathPrefix"] = json!(""));
        check("properties.outputDirectories", |j| j["outputDirectories"] = json!([{"id": "a b", "pathPrefix": "x"}]));
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
    fn scale_settings_are_exactly_one() {
        let check = |value: Value, ok: bool| {
            let scale: ScaleSettings = serde_json::from_value(value.clone()).expect("well-formed");
            assert_eq!(check_scale(&scale).is_ok(), ok, "{value}");
        };
        check(json!({}), false);
        check(json!({"manual": {"targetNodeCount": 0}}), true);
        check(json!({"manual": {"targetNodeCount": -1}}), false);
        check(json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}), true);
        check(json!({"autoScale": {"minimumNodeCount": 2, "maximumNodeCount": 1}}), false);
        check(json!({"manual": {}, "autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}), false);
    }
}
