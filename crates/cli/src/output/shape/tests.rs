//! Answers of the service against what `az` printed for them, and the soundness of `shapes.json`.

use super::attributes::SHAPES;
use super::*;
use serde_json::{Map, json};

const CLUSTER_ID: &str = "/subscriptions/0/resourceGroups/demo_resource_group/providers/Microsoft.BatchAI/workspaces/demo_workspace/clusters/demo_cluster";

#[test]
fn every_nested_shape_exists() {
    for (name, shape) in SHAPES.iter() {
        for (attribute, rule) in shape.own.iter().chain(&shape.properties) {
            let kind = rule.split(' ').next().unwrap_or_default().trim_start_matches('?');
            match kind {
                "value" | "time" | "duration" | "float" => {}
                nested => assert!(
                    SHAPES.contains_key(&nested[1..nested.len() - 1]),
                    "{name}.{attribute} is of unknown kind {kind}"
                ),
            }
        }
    }
}

#[test]
fn every_printable_shape_exists() {
    use Shape::*;
    for shape in [
        Workspace,
        Experiment,
        Cluster,
        Job,
        JobFile,
        RemoteLogin,
        FileServer,
        Usage,
        ResourceGroup,
        StorageAccount,
        StorageAccountKey,
        Share,
        ShareDirectory,
        ShareFile,
        Container,
        Blob,
    ] {
        assert!(SHAPES.contains_key(shape.name()), "{shape:?}");
    }
}

#[test]
fn workspace_of_the_swagger_example() {
    let wire = json!({
        "id": "/subscriptions/0/resourceGroups/demo_resource_group/providers/Microsoft.BatchAI/workspaces/demo_workspace",
        "name": "demo_workspace",
        "type": "Microsoft.BatchAI/Workspaces",
        "location": "eastus",
        "properties": {
            "creationTime": "2017-07-01T00:41:13.629Z",
            "provisioningState": "succeeded",
            "provisioningStateTransitionTime": "2017-07-01T00:41:13Z"
        }
    });
    assert_eq!(
        Shape::Workspace.apply(&wire),
        json!({
            "creationTime": "2017-07-01T00:41:13.629000+00:00",
            "id": wire["id"],
            "location": "eastus",
            "name": "demo_workspace",
            "provisioningState": "succeeded",
            "provisioningStateTransitionTime": "2017-07-01T00:41:13+00:00",
            "resourceGroup": "demo_resource_group",
            "tags": null,
            "type": "Microsoft.BatchAI/Workspaces"
        })
    );
}

#[test]
fn job_of_the_swagger_example() {
    let wire = json!({
        "id": "/subscriptions/0/resourceGroups/demo_resource_group/providers/Microsoft.BatchAI/workspaces/demo_workspace/experiments/demo_experiment/jobs/demo_job",
        "name": "demo_job",
        "type": "Microsoft.BatchAI/Jobs",
        "properties": {
            "experimentName": "demo_experiment",
            "cluster": { "id": CLUSTER_ID },
            "nodeCount": 1,
            "toolType": "custom",
            "customToolkitSettings": { "commandLine": "echo hi", "later": 1 },
            "inputDirectories": [{ "id": "INPUT", "path": "$AZ_BATCHAI_MOUNT_ROOT/azfiles/input" }],
            "constraints": { "maxWallClockTime": "P7D" },
            "executionInfo": { "startTime": "2017-09-27T23:36:54.115Z" }
        }
    });
    let printed = Shape::Job.apply(&wire);
    assert_eq!(printed.get("experimentName"), None, "the SDK does not know it");
    assert_eq!(printed.get("properties"), None, "flattened");
    assert_eq!(printed["cluster"], json!({"id": CLUSTER_ID, "resourceGroup": "demo_resource_group"}));
    assert_eq!(printed["customToolkitSettings"], json!({"commandLine": "echo hi"}));
    assert_eq!(printed["constraints"], json!({"maxWallClockTime": "7 days, 0:00:00"}));
    assert_eq!(
        printed["executionInfo"],
        json!({"endTime": null, "errors": null, "exitCode": null, "startTime": "2017-09-27T23:36:54.115000+00:00"})
    );
    assert_eq!(printed["inputDirectories"], json!([{"id": "INPUT", "path": "$AZ_BATCHAI_MOUNT_ROOT/azfiles/input"}]));
    assert_eq!(printed["horovodSettings"], Value::Null);
    let mut queued = wire.clone();
    queued["properties"]["waitingFor"] = "nodes".into();
    queued["properties"]["waiting"] =
        json!({"reason": "behind", "position": 2, "estimatedStart": "2017-09-27T23:36:54Z"});
    let queued = Shape::Job.apply(&queued);
    assert_eq!((&queued["waitingFor"], &queued["waiting"]["position"]), (&json!("nodes"), &json!(2)));
    assert_eq!(queued["waiting"]["estimatedStart"], "2017-09-27T23:36:54+00:00");
    assert_eq!(printed.as_object().map(Map::len), Some(33), "32 attributes and resourceGroup");
}

#[test]
fn nested_ids_get_their_group() {
    let wire = json!({"id": CLUSTER_ID, "properties": {
        "nodeSetup": {"mountVolumes": {"azureFileShares": [{"accountName": "a", "credentials": {}}]}},
        "subnet": {"id": "/subscriptions/0/resourceGroups/other/providers/Microsoft.Network/virtualNetworks/v/subnets/s"}
    }});
    let printed = Shape::Cluster.apply(&wire);
    assert_eq!(printed["subnet"]["resourceGroup"], "other");
    assert_eq!(
        printed["nodeSetup"]["mountVolumes"]["azureFileShares"],
        json!([{
            "accountName": "a", "azureFileUrl": null, "directoryMode": null, "fileMode": null, "relativeMountPath": null,
            "credentials": {"accountKey": null, "accountKeySecretReference": null}
        }])
    );
}

#[test]
fn job_files_are_flat_and_ports_are_floats() {
    let files = json!([
        {"name": "stdout.txt", "fileType": "file", "downloadUrl": "u",
         "properties": {"lastModified": "2018-07-18T22:46:32Z", "contentLength": 2316480}},
        {"name": "counters", "fileType": "directory"}
    ]);
    assert_eq!(
        Shape::JobFile.apply(&files),
        json!([
            {"contentLength": 2316480, "downloadUrl": "u", "fileType": "file",
             "lastModified": "2018-07-18T22:46:32+00:00", "name": "stdout.txt"},
            {"contentLength": null, "downloadUrl": null, "fileType": "directory", "lastModified": null, "name": "counters"}
        ])
    );
    let login = json!([{"nodeId": "tvm-1", "ipAddress": "127.0.0.1", "port": 50000}]);
    assert_eq!(Shape::RemoteLogin.apply(&login)[0]["port"].to_string(), "50000.0");
}

#[test]
fn resource_groups_keep_their_wrapper_and_get_no_group() {
    let wire = json!({"id": "/subscriptions/0/resourceGroups/g", "name": "g", "location": "eastus",
                      "properties": {"provisioningState": "Succeeded"}});
    assert_eq!(
        Shape::ResourceGroup.apply(&wire),
        json!({"id": "/subscriptions/0/resourceGroups/g", "location": "eastus", "managedBy": null, "name": "g",
               "properties": {"provisioningState": "Succeeded"}, "tags": null})
    );
}

#[test]
fn storage_account_attributes_have_the_sdk_names() {
    let wire = json!({
        "id": "/subscriptions/0/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a",
        "properties": {"supportsHttpsTrafficOnly": false, "networkAcls": {"defaultAction": "Allow"}}
    });
    let printed = Shape::StorageAccount.apply(&wire);
    assert_eq!(printed["enableHttpsTrafficOnly"], false);
    assert_eq!(printed["networkRuleSet"]["defaultAction"], "Allow");
    let keys: Vec<&String> = printed.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        [
            "accessTier",
            "creationTime",
            "customDomain",
            "enableHttpsTrafficOnly",
            "encryption",
            "id",
            "identity",
            "isHnsEnabled",
            "kind",
            "lastGeoFailoverTime",
            "location",
            "name",
            "networkRuleSet",
            "primaryEndpoints",
            "primaryLocation",
            "provisioningState",
            "resourceGroup",
            "secondaryEndpoints",
            "secondaryLocation",
            "sku",
            "statusOfPrimary",
            "statusOfSecondary",
            "tags",
            "type"
        ]
    );
}
