//! Fixture: a resource group, a workspace and an experiment, and waiting for operations.

use serde_json::{Value, json};

use crate::harness::http::Response;
use crate::harness::{Site, wait_for};

pub const NO_BODY: Value = Value::Null;

/// Creates the group `g`, the workspace `w` in it and the experiment `e`; returns the workspace's path.
pub fn workspace(site: &Site) -> String {
    let group = format!("{}/resourceGroups/g", site.subscription());
    site.arm("PUT", &group, json!({"location": "eastus"})).is(201);
    let workspace = format!("{group}/providers/Microsoft.BatchAI/workspaces/w");
    site.arm("PUT", &workspace, json!({"location": "eastus"})).is(200);
    site.arm("PUT", &format!("{workspace}/experiments/e"), NO_BODY).is(200);
    workspace
}

pub fn cluster_body(nodes: i32) -> Value {
    json!({"properties": {
        "vmSize": "Standard_D1",
        "scaleSettings": {"manual": {"targetNodeCount": nodes}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "hush-hush"}
    }})
}

/// A job that runs `command` on one node of the cluster with this id.
pub fn job_body(cluster: &str, command: &str) -> Value {
    json!({"properties": {
        "cluster": {"id": cluster}, "nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP_DIR",
        "customToolkitSettings": {"commandLine": command}
    }})
}

/// Waits for the operation of a response. A response without an operation is final already.
#[track_caller]
pub fn wait_for_operation(site: &Site, response: &Response) {
    assert!(matches!(response.status, 200 | 202 | 204), "{response}");
    let Some(url) = response.header("azure-asyncoperation") else { return };
    let target = url.strip_prefix(&site.url).expect("an absolute URL of this server").to_owned();
    wait_for("the operation to end", || site.arm("GET", &target, NO_BODY).is(200).json()["status"] == "Succeeded");
}
