//! The tutorial's resources on a site, created by the commands of the tutorial, and the jobs that run on them.

use anyhow::{Context, Result};
use corro_model::batchai::JobCreateParameters;
use serde_json::{Value, json};

use crate::api::Api;
use crate::site::Site;

pub const GROUP: &str = "batchai.horovod";
pub const WORKSPACE: &str = "batchaidev";
pub const EXPERIMENT: &str = "cifar";
pub const CLUSTER: &str = "nc6cluster";
pub const ACCOUNT: &str = "mystorageaccount";
pub const SHARE: &str = "myshare";
/// Nodes of the tutorial's cluster.
pub const NODES: usize = 4;
/// `-g … -w …`.
pub const IN_WORKSPACE: &str = "-g batchai.horovod -w batchaidev";

/// Creates group, workspace, experiment, cluster with this many nodes, storage account, share, directory.
pub fn make_resources(site: &Site, nodes: usize) -> Result<()> {
    site.corro(&format!("group create -n {GROUP} -l eastus"))?;
    site.corro(&format!("batchai workspace create -g {GROUP} -n {WORKSPACE}"))?;
    site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n {EXPERIMENT}"))?;
    let login = "--user-name me --password not-a-secret";
    site.corro(&format!(
        "batchai cluster create {IN_WORKSPACE} -n {CLUSTER} --vm-size Standard_NC6 {login} --target {nodes}"
    ))?;
    site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} -l eastus --sku Standard_LRS"))?;
    site.corro(&format!("storage share create -n {SHARE} --account-name {ACCOUNT}"))?;
    site.corro(&format!("storage directory create -n cifar -s {SHARE} --account-name {ACCOUNT}"))
}

/// A `job.json` on all nodes that mounts the share and logs to it, with these toolkit settings.
pub fn job_json(settings: Value) -> Value {
    let mut properties = json!({
        "nodeCount": NODES,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
        "mountVolumes": {"azureFileShares": [{
            "azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file.core.windows.net/myshare",
            "relativeMountPath": "myshare"
        }]}
    });
    if let (Some(properties), Value::Object(settings)) = (properties.as_object_mut(), settings) {
        properties.extend(settings);
    }
    json!({ "properties": properties })
}

/// Request body for that file, with the cluster's id and the account key filled in.
pub fn job_request(mut job: Value, api: &Api, account_key: &str) -> Result<JobCreateParameters> {
    let properties = &mut job["properties"];
    let subscription = api.subscription();
    properties["cluster"] = json!({"id": format!(
        "/subscriptions/{subscription}/resourceGroups/{GROUP}/providers/Microsoft.BatchAI/workspaces/{WORKSPACE}/clusters/{CLUSTER}"
    )});
    let share = &mut properties["mountVolumes"]["azureFileShares"][0];
    share["accountName"] = json!(ACCOUNT);
    share["azureFileUrl"] = json!(format!("https://{ACCOUNT}.file.core.windows.net/{SHARE}"));
    share["credentials"] = json!({ "accountKey": account_key });
    serde_json::from_value(job).context("a job of this benchmark is not valid")
}

/// Settings for one rank per node that runs this command.
pub fn ranks(command: &[String]) -> Value {
    let quoted: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    json!({"customMpiSettings": {"commandLine": quoted.join(" ")}})
}
