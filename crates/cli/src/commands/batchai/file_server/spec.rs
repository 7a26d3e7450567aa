//! Request for a new file server, from the command line and a configuration file; the command line wins. Pure.

use clap::Args;
use corro_model::batchai::{
    CachingType, DataDisks, DiskType, FileServerSpec, ResourceId, SshConfiguration, UserAccountSettings,
};
use serde::Deserialize;

use crate::commands::batchai::admin_account::FileAccount;
use crate::error::CliError;
use crate::resource::resource_ref::is_resource_id;

const HEADING: &str = "Storage Disks";

#[derive(Args, Debug, Default)]
pub struct DiskArgs {
    /// Number of disks. Stored and shown, but not used
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = HEADING)]
    disk_count: Option<i32>,
    /// Size of each disk, in GB. Stored and shown, but not used
    #[arg(long, value_name = "GB", allow_negative_numbers = true, help_heading = HEADING)]
    disk_size: Option<i32>,
    /// Caching of the disks: none, readonly or readwrite. Stored and shown, but not used [default: none]
    #[arg(long, value_name = "TYPE", value_parser = caching_type, help_heading = HEADING)]
    caching_type: Option<CachingType>,
    /// Type of the disks: Premium_LRS or Standard_LRS. Stored and shown, but not used
    #[arg(long, value_name = "SKU", value_parser = disk_type, help_heading = HEADING)]
    storage_sku: Option<DiskType>,
}

/// A file server file, where every field is optional: the command line can set it.
#[derive(Debug, Default, Deserialize)]
pub struct ServerFile {
    #[serde(default)]
    pub properties: ServerFileProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerFileProperties {
    vm_size: Option<String>,
    pub ssh_configuration: FileSsh,
    data_disks: FileDisks,
    subnet: Option<ResourceId>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSsh {
    #[serde(rename = "publicIPsToAllow")]
    public_ips_to_allow: Option<Vec<String>>,
    pub user_account_settings: FileAccount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileDisks {
    #[serde(rename = "diskSizeInGB")]
    disk_size_in_gb: Option<i32>,
    caching_type: Option<CachingType>,
    disk_count: Option<i32>,
    storage_account_type: Option<DiskType>,
}

pub fn plan(
    file: ServerFileProperties,
    (vm_size, disks, subnet): (Option<&str>, &DiskArgs, Option<&str>),
    user_account_settings: UserAccountSettings,
) -> Result<FileServerSpec, CliError> {
    let missing = |message: &str, flag: &str| CliError::new(message).hint(format!("give {flag}"));
    // A missing count and 0 are the same: no disk.
    let some = |argument: Option<i32>, file: Option<i32>| argument.or(file).filter(|n| *n != 0);
    let data_disks = DataDisks {
        disk_size_in_gb: some(disks.disk_size, file.data_disks.disk_size_in_gb)
            .ok_or_else(|| missing("Please provide disk size in Gb.", "--disk-size"))?,
        disk_count: some(disks.disk_count, file.data_disks.disk_count).ok_or_else(|| {
            missing("Please provide number of data disks (at least one disk is required).", "--disk-count")
        })?,
        caching_type: disks.caching_type.or(file.data_disks.caching_type).unwrap_or_default(),
        storage_account_type: disks.storage_sku.or(file.data_disks.storage_account_type).ok_or_else(|| {
            missing("Please provide storage account type (storage sku).", "--storage-sku Standard_LRS")
        })?,
    };
    let vm_size = vm_size.map(str::to_owned).or(file.vm_size);
    if subnet.is_some_and(|id| !is_resource_id(id)) {
        return Err(CliError::new("Ill-formed subnet resource id"));
    }
    Ok(FileServerSpec {
        vm_size: vm_size.ok_or_else(|| missing("Please provide VM size.", "--vm-size Standard_D2_v2"))?,
        ssh_configuration: SshConfiguration {
            public_ips_to_allow: file.ssh_configuration.public_ips_to_allow,
            user_account_settings,
        },
        data_disks,
        subnet: subnet.map(|id| ResourceId { id: id.to_owned() }).or(file.subnet),
    })
}

fn caching_type(text: &str) -> Result<CachingType, String> {
    match text.to_ascii_lowercase().as_str() {
        "none" => Ok(CachingType::None),
        "readonly" => Ok(CachingType::ReadOnly),
        "readwrite" => Ok(CachingType::ReadWrite),
        _ => Err("use 'none', 'readonly' or 'readwrite'".to_owned()),
    }
}

fn disk_type(text: &str) -> Result<DiskType, String> {
    match text.to_ascii_lowercase().as_str() {
        "premium_lrs" => Ok(DiskType::Premium),
        "standard_lrs" => Ok(DiskType::Standard),
        _ => Err("use 'Premium_LRS' or 'Standard_LRS'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(file: Value, vm_size: Option<&str>, disks: DiskArgs, expected: Result<Value, &str>) {
        let file: ServerFile = serde_json::from_value(json!({ "properties": file })).expect("a file");
        let account = UserAccountSettings {
            admin_user_name: "me".into(),
            admin_user_ssh_public_key: Some("ssh-rsa x".into()),
            admin_user_password: None,
        };
        match (plan(file.properties, (vm_size, &disks, None), account), expected) {
            (Ok(spec), Ok(expected)) => {
                let spec = serde_json::to_value(spec).expect("JSON");
                assert_eq!(json!({"vmSize": spec["vmSize"], "dataDisks": spec["dataDisks"]}), expected);
            }
            (Err(error), Err(message)) => assert_eq!(error.message, message),
            (got, expected) => panic!("{got:?} is not {expected:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_said_in_the_order_of_az() {
        let size = DiskArgs { disk_size: Some(10), ..DiskArgs::default() };
        let count = DiskArgs { disk_size: Some(10), disk_count: Some(2), ..DiskArgs::default() };
        let all = || DiskArgs {
            disk_size: Some(10),
            disk_count: Some(2),
            storage_sku: Some(DiskType::Premium),
            caching_type: None,
        };
        check(json!({}), None, DiskArgs::default(), Err("Please provide disk size in Gb."));
        check(json!({}), None, size, Err("Please provide number of data disks (at least one disk is required)."));
        check(json!({}), None, count, Err("Please provide storage account type (storage sku)."));
        check(json!({}), None, all(), Err("Please provide VM size."));
        check(
            json!({}),
            Some("Standard_D1"),
            all(),
            Ok(json!({"vmSize": "Standard_D1", "dataDisks": {
                "diskSizeInGB": 10, "diskCount": 2, "storageAccountType": "Premium_LRS", "cachingType": "none"
            }})),
        );
    }

    #[test]
    fn the_command_line_beats_the_file() {
        let file = json!({"vmSize": "STANDARD_D1", "dataDisks": {"diskSizeInGB": 10, "diskCount": 1,
                          "storageAccountType": "Standard_LRS", "cachingType": "readonly"}});
        let two = DiskArgs { disk_count: Some(2), ..DiskArgs::default() };
        check(
            file,
            None,
            two,
            Ok(json!({"vmSize": "STANDARD_D1", "dataDisks": {
                "diskSizeInGB": 10, "diskCount": 2, "storageAccountType": "Standard_LRS", "cachingType": "readonly"
            }})),
        );
    }
}
