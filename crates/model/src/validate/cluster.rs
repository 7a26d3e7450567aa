//! Validation of clusters and file servers: sizes, counts, accounts.

use super::job::check_variables;
use super::limits::{check_argument, check_path};
use super::prefix::{SETUP_ROOTS, check_prefix};
use super::volumes::check_volumes;
use super::{MAX_NODES, blank, refuse, ssh_key};
use crate::batchai::{
    AppInsightsReference, ClusterSpec, FileServerSpec, ScaleSettings, SetupTask, UserAccountSettings,
};
use crate::error::ApiError;
use crate::vm_size;

pub fn check_cluster(spec: &ClusterSpec) -> Result<(), ApiError> {
    if vm_size::find(&spec.vm_size).is_none() {
        let what = match vm_size::is_refused(&spec.vm_size) {
            true => "is not a size for the nodes of a cluster",
            false => "is not a VM size this server knows",
        };
        let message = format!("'{}' {what}: use one such as Standard_NC6, Standard_D2_v2 or Standard_D1", spec.vm_size);
        return Err(ApiError::invalid("properties.vmSize", message));
    }
    check_scale(&spec.scale_settings)?;
    check_account("properties.userAccountSettings", &spec.user_account_settings)?;
    if let Some(setup) = &spec.node_setup {
        if let Some(task) = &setup.setup_task {
            check_setup("properties.nodeSetup.setupTask", task)?;
        }
        check_volumes("properties.nodeSetup.mountVolumes", setup.mount_volumes.as_ref())?;
        if let Some(settings) = &setup.performance_counters_settings {
            check_insights(&settings.app_insights_reference)?;
        }
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
    check_argument(&format!("{field}.commandLine"), &task.command_line)?;
    check_path(&format!("{field}.stdOutErrPathPrefix"), &task.std_out_err_path_prefix)?;
    check_prefix(&format!("{field}.stdOutErrPathPrefix"), &task.std_out_err_path_prefix, &SETUP_ROOTS)?;
    check_variables(field, &task.environment_variables, &task.secrets)?;
    // A node would wait for a key vault forever.
    if let Some(secret) = task.secrets.iter().find(|secret| secret.value.is_none()) {
        let message = format!("the secret '{}' has no value: give 'value' (key vaults are not supported)", secret.name);
        return refuse(&format!("{field}.secrets"), &message);
    }
    Ok(())
}

fn check_insights(reference: &AppInsightsReference) -> Result<(), ApiError> {
    let field = "properties.nodeSetup.performanceCountersSettings.appInsightsReference";
    if blank(Some(&reference.component.id)) {
        return refuse(&format!("{field}.component.id"), "the component's id is empty: give one");
    }
    match (&reference.instrumentation_key, &reference.instrumentation_key_secret_reference) {
        (None, None) => refuse(field, "no key is given: give instrumentationKey or instrumentationKeySecretReference"),
        (Some(_), Some(_)) => {
            refuse(field, "both instrumentationKey and instrumentationKeySecretReference are given: give one of them")
        }
        _ => Ok(()),
    }
}

/// Maximum number of address ranges.
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
    let (key, password) = (account.admin_user_ssh_public_key.as_deref(), account.password());
    let Some(key) = key.filter(|key| !key.trim().is_empty()) else {
        return match password {
            Some(_) => Ok(()),
            None => refuse(field, "neither an SSH public key nor a password is given: give one"),
        };
    };
    // With a password, a placeholder key from an example is accepted, since the password is enough to log in.
    let good = if password.is_some() { ssh_key::looks_like_one(key) } else { ssh_key::is_one(key) };
    if !good {
        let message = "it is not an SSH public key: give the text of a file such as ~/.ssh/id_rsa.pub (ssh-rsa AAAA…)";
        return refuse(&format!("{field}.adminUserSshPublicKey"), message);
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
            let initial = auto.initial_node_count;
            if initial < 0 || initial > max {
                let message = format!("initialNodeCount is {initial}: use a number from 0 to the maximum, {max}");
                return Err(ApiError::invalid("properties.scaleSettings.autoScale.initialNodeCount", message));
            }
            Ok(())
        }
        (None, None) => refuse(field, "no scale settings are given: give 'manual' or 'autoScale'"),
        (Some(_), Some(_)) => refuse(field, "both 'manual' and 'autoScale' are given: give one of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        check(json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1, "initialNodeCount": 2}}), false);
        check(json!({"manual": {}, "autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}), false);
    }

    #[test]
    fn a_file_server_needs_disks_and_a_way_in() {
        let check = |field: &str, change: fn(&mut Value)| {
            let mut value = json!({
                "vmSize": "Standard_DS2_v2", "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
                "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "x"}}
            });
            change(&mut value);
            let spec: FileServerSpec = serde_json::from_value(value).expect("well-formed");
            let target = check_file_server(&spec).map_err(|error| error.target.unwrap_or_default());
            assert_eq!(target, if field.is_empty() { Ok(()) } else { Err(field.to_owned()) });
        };
        check("", |_| {});
        check("properties.vmSize", |f| f["vmSize"] = json!("../x"));
        check("properties.dataDisks.diskCount", |f| f["dataDisks"]["diskCount"] = json!(0));
        check("properties.sshConfiguration.userAccountSettings", |f| {
            f["sshConfiguration"]["userAccountSettings"] = json!({"adminUserName": "me"});
        });
        let account = "properties.sshConfiguration.userAccountSettings";
        check(account, |f| f["sshConfiguration"]["userAccountSettings"]["adminUserPassword"] = json!(" "));
        check(account, |f| {
            f["sshConfiguration"]["userAccountSettings"] = json!({"adminUserName": "me", "adminUserSshPublicKey": ""});
        });
        check(&format!("{account}.adminUserSshPublicKey"), |f| {
            f["sshConfiguration"]["userAccountSettings"]["adminUserSshPublicKey"] = json!("garbage");
        });
        check(&format!("{account}.adminUserSshPublicKey"), |f| {
            f["sshConfiguration"]["userAccountSettings"] =
                json!({"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa AAAAB3NzaC1yc..."});
        });
        check("", |f| {
            f["sshConfiguration"]["userAccountSettings"]["adminUserSshPublicKey"] = json!("ssh-rsa AAAAB3NzaC1yc...");
        });
        check("properties.sshConfiguration.publicIPsToAllow", |f| {
            f["sshConfiguration"]["publicIPsToAllow"] = json!(vec!["10.0.0.0/8"; 401]);
        });
    }
}
