//! Request for a new cluster, from the command line and a configuration file; the command line wins. Pure: key, user name and file content are
//! arguments.

use corro_model::batchai::{
    ClusterSpec, ImageReference, NodeSetup, ResourceId, ScaleSettings, SetupTask, UserAccountSettings,
    VirtualMachineConfiguration, VmPriority,
};
use serde::Deserialize;

use crate::commands::batchai::admin_account::FileAccount;
use crate::commands::batchai::cluster::{automatic, manual};
use crate::error::CliError;
use crate::resource::resource_ref::is_resource_id;

/// A cluster file, where every field is optional: the command line can set it.
#[derive(Debug, Default, Deserialize)]
pub struct ClusterFile {
    #[serde(default)]
    pub properties: ClusterFileProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFileProperties {
    pub vm_size: Option<String>,
    pub vm_priority: Option<VmPriority>,
    pub scale_settings: Option<ScaleSettings>,
    pub virtual_machine_configuration: Option<VirtualMachineConfiguration>,
    pub user_account_settings: Option<FileAccount>,
    pub node_setup: Option<NodeSetup>,
    pub subnet: Option<ResourceId>,
}

/// Settings of the command line.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    pub vm_size: Option<String>,
    pub vm_priority: Option<VmPriority>,
    pub target: Option<i32>,
    pub min: Option<i32>,
    pub max: Option<i32>,
    pub image: Option<String>,
    pub custom_image: Option<String>,
    pub setup_task: Option<String>,
    pub setup_task_output: Option<String>,
    pub subnet: Option<String>,
}

pub fn plan(
    file: ClusterFileProperties,
    options: &ClusterOptions,
    account: UserAccountSettings,
) -> Result<ClusterSpec, CliError> {
    let vm_size = options.vm_size.clone().or(file.vm_size).ok_or_else(|| {
        CliError::new("Please provide VM size").hint("give --vm-size, for example --vm-size Standard_NC6")
    })?;
    if options.subnet.as_deref().is_some_and(|id| !is_resource_id(id)) {
        return Err(CliError::new("Ill-formed subnet resource id"));
    }
    let mut node_setup = file.node_setup;
    if let Some(task) = setup_task(options)? {
        node_setup.get_or_insert_default().setup_task = Some(task);
    }
    Ok(ClusterSpec {
        vm_size,
        vm_priority: options.vm_priority.or(file.vm_priority).unwrap_or_default(),
        scale_settings: scale(options, file.scale_settings)?,
        virtual_machine_configuration: image(options)?.or(file.virtual_machine_configuration),
        user_account_settings: account,
        node_setup,
        subnet: options.subnet.clone().map(|id| ResourceId { id }).or(file.subnet),
    })
}

fn scale(options: &ClusterOptions, file: Option<ScaleSettings>) -> Result<ScaleSettings, CliError> {
    match (options.target, options.min, options.max) {
        (None, None, None) => file.ok_or_else(|| {
            CliError::new("Please provide scale setting for the cluster via command line or configuration file")
                .hint("give --target 4 for a fixed size, or --min 0 --max 4 to let it follow the jobs")
        }),
        (Some(target), None, None) => Ok(manual(target)),
        (_, Some(_), None) | (_, None, Some(_)) => {
            Err(CliError::new("You need to either provide both min and max node counts or not provide any of them"))
        }
        (_, Some(min), Some(max)) if min > max => {
            Err(CliError::new("Maximum nodes count must be greater or equal to minimum nodes count"))
        }
        (target, Some(min), Some(max)) if min == max && target.is_none_or(|target| target == min) => Ok(manual(min)),
        (target, Some(min), Some(max)) => Ok(automatic(min, max, target.unwrap_or(0))),
    }
}

fn image(options: &ClusterOptions) -> Result<Option<VirtualMachineConfiguration>, CliError> {
    let Some(image) = &options.image else {
        return match options.custom_image {
            Some(_) => {
                Err(CliError::new("You need to specify --image argument with information about the custom image"))
            }
            None => Ok(None),
        };
    };
    if options.custom_image.as_deref().is_some_and(|id| !is_resource_id(id)) {
        return Err(CliError::new("Ill-formed custom image resource id"));
    }
    let mut reference = image_reference(image)?;
    reference.virtual_machine_image_id = options.custom_image.clone();
    Ok(Some(VirtualMachineConfiguration { image_reference: reference }))
}

fn image_reference(image: &str) -> Result<ImageReference, CliError> {
    let reference = |publisher: &str, offer: &str, sku: &str, version: Option<&str>| ImageReference {
        publisher: publisher.to_owned(),
        offer: offer.to_owned(),
        sku: sku.to_owned(),
        version: version.map(str::to_owned),
        virtual_machine_image_id: None,
    };
    match image.to_ascii_lowercase().as_str() {
        "ubuntults" => return Ok(reference("Canonical", "UbuntuServer", "16.04-LTS", None)),
        "ubuntudsvm" => {
            return Ok(reference("microsoft-ads", "linux-data-science-vm-ubuntu", "linuxdsvmubuntu", None));
        }
        _ => {}
    }
    match image.split(':').collect::<Vec<_>>()[..] {
        [publisher, offer, sku, version] => {
            let parts = [("publisher", publisher), ("offer", offer), ("sku", sku)];
            match parts.iter().find(|(_, value)| value.is_empty()) {
                Some((part, _)) => Err(CliError::new(format!("Image {part} must be provided in --image argument"))),
                None => Ok(reference(publisher, offer, sku, Some(version).filter(|version| !version.is_empty()))),
            }
        }
        [_] => Err(CliError::new(format!(
            "Unsupported image alias \"{image}\", supported aliases are UbuntuLTS, UbuntuDSVM"
        ))),
        _ => Err(CliError::new("--image must have format \"publisher:offer:sku:version\" or \"publisher:offer:sku:\"")),
    }
}

fn setup_task(options: &ClusterOptions) -> Result<Option<SetupTask>, CliError> {
    match (&options.setup_task, &options.setup_task_output) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(CliError::new("--setup-task requires providing of --setup-task-output")),
        (Some(command), Some(output)) => Ok(Some(SetupTask {
            command_line: command.clone(),
            environment_variables: Vec::new(),
            secrets: Vec::new(),
            std_out_err_path_prefix: output.clone(),
            std_out_err_path_suffix: None,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn account() -> UserAccountSettings {
        UserAccountSettings {
            admin_user_name: "me".into(),
            admin_user_ssh_public_key: Some("ssh-rsa x".into()),
            admin_user_password: None,
        }
    }

    fn options() -> ClusterOptions {
        ClusterOptions { vm_size: Some("Standard_NC6".into()), target: Some(4), ..ClusterOptions::default() }
    }

    fn check(file: Value, options: ClusterOptions, expected: Result<Value, &str>) {
        let file: ClusterFile = serde_json::from_value(file).expect("a file");
        match (plan(file.properties, &options, account()), expected) {
            (Ok(spec), Ok(expected)) => {
                let spec = serde_json::to_value(spec).expect("JSON");
                for (key, value) in expected.as_object().expect("an object") {
                    assert_eq!(&spec[key], value, "{key}");
                }
            }
            (Err(error), Err(message)) => assert!(error.message.starts_with(message), "{error}"),
            (got, expected) => panic!("{got:?} is not {expected:?}"),
        }
    }

    fn scale_of(target: Option<i32>, min: Option<i32>, max: Option<i32>, expected: Result<Value, &str>) {
        check(
            json!({}),
            ClusterOptions { target, min, max, ..options() },
            expected.map(|scale| json!({"scaleSettings": scale})),
        );
    }

    #[test]
    fn the_cluster_of_the_tutorial() {
        check(
            json!({}),
            ClusterOptions { vm_priority: Some(VmPriority::Dedicated), ..options() },
            Ok(json!({
                "vmSize": "Standard_NC6", "vmPriority": "dedicated",
                "scaleSettings": {"manual": {"targetNodeCount": 4, "nodeDeallocationOption": "requeue"}},
                "userAccountSettings": {"adminUserName": "me", "adminUserSshPublicKey": "ssh-rsa x"}
            })),
        );
    }

    #[test]
    fn scale_rules() {
        let manual = |n: i32| Ok(json!({"manual": {"targetNodeCount": n, "nodeDeallocationOption": "requeue"}}));
        let auto = |min: i32, max: i32, start: i32| {
            Ok(json!({"autoScale": {"minimumNodeCount": min, "maximumNodeCount": max, "initialNodeCount": start}}))
        };
        scale_of(None, Some(2), Some(2), manual(2));
        scale_of(Some(2), Some(2), Some(2), manual(2));
        scale_of(None, Some(0), Some(4), auto(0, 4, 0));
        scale_of(Some(1), Some(0), Some(4), auto(0, 4, 1));
        scale_of(None, None, None, Err("Please provide scale setting"));
        scale_of(None, Some(1), None, Err("You need to either provide both min and max"));
        scale_of(None, None, Some(1), Err("You need to either provide both min and max"));
        scale_of(None, Some(3), Some(1), Err("Maximum nodes count must be"));
    }

    #[test]
    fn the_command_line_beats_the_file() {
        let file = json!({"$schema": "x", "properties": {
            "vmSize": "STANDARD_D1", "vmPriority": "lowpriority",
            "scaleSettings": {"manual": {"targetNodeCount": 1}}
        }});
        check(
            file.clone(),
            ClusterOptions::default(),
            Ok(json!({"vmSize": "STANDARD_D1", "vmPriority": "lowpriority"})),
        );
        check(file, options(), Ok(json!({"vmSize": "Standard_NC6", "vmPriority": "lowpriority"})));
        check(
            json!({}),
            ClusterOptions { target: Some(1), ..ClusterOptions::default() },
            Err("Please provide VM size"),
        );
    }

    #[test]
    fn images() {
        let with = |image: &str, expected: Result<Value, &str>| {
            let options = ClusterOptions { image: Some(image.into()), ..options() };
            check(
                json!({}),
                options,
                expected.map(|image| json!({"virtualMachineConfiguration": {"imageReference": image}})),
            );
        };
        with("ubuntults", Ok(json!({"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS"})));
        with("a:b:c:", Ok(json!({"publisher": "a", "offer": "b", "sku": "c"})));
        with("a:b:c:1", Ok(json!({"publisher": "a", "offer": "b", "sku": "c", "version": "1"})));
        with("a:b", Err("--image must have format"));
        with("a::c:", Err("Image offer must be provided in --image argument"));
        with("windows", Err("Unsupported image alias"));
        check(
            json!({}),
            ClusterOptions { custom_image: Some("id".into()), ..options() },
            Err("You need to specify --image"),
        );
        let both =
            |id: &str| ClusterOptions { custom_image: Some(id.into()), image: Some("ubuntults".into()), ..options() };
        check(json!({}), both("id"), Err("Ill-formed custom image resource id"));
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/i";
        let image = json!({"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS",
                           "virtualMachineImageId": id});
        check(json!({}), both(id), Ok(json!({"virtualMachineConfiguration": {"imageReference": image}})));
    }

    #[test]
    fn a_setup_task_needs_a_place_for_its_output() {
        let task = ClusterOptions { setup_task: Some("true".into()), ..options() };
        check(json!({}), task.clone(), Err("--setup-task requires providing of --setup-task-output"));
        check(
            json!({}),
            ClusterOptions { setup_task_output: Some("out".into()), ..task },
            Ok(json!({"nodeSetup": {"setupTask": {"commandLine": "true", "stdOutErrPathPrefix": "out"}}})),
        );
    }
}
