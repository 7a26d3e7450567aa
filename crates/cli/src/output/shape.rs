//! Turns a service answer into the object that `az` prints. The command handlers enter with the wire value and the
//! name of its shape; the attribute trees of the retired SDK live beside this file in `shapes.json`.
//! It never fails: an attribute of an unexpected kind passes through as it came, so a newer server stays readable.
//!
//! In `shapes.json` a shape has `own` attributes, found at the top of the wire object, and `properties`, which the
//! wire keeps in a wrapper and the SDK flattens. An attribute is `KIND [WIRE_NAME]`; the kinds are `value`, `time`,
//! `duration`, `float`, `{shape}` and `[shape]`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::python_time;

/// The resources a command can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Workspace,
    Experiment,
    Cluster,
    Job,
    JobFile,
    #[cfg_attr(not(test), expect(dead_code, reason = "the commands that list nodes are not there yet"))]
    RemoteLogin,
    ResourceGroup,
    StorageAccount,
    StorageAccountKey,
    Share,
    ShareDirectory,
    ShareFile,
}

impl Shape {
    /// What `az` prints for `wire`: one object, or a list of them when `wire` is an array.
    pub fn apply(self, wire: &Value) -> Value {
        let shape = &SHAPES[self.name()];
        let mut printed = match wire {
            Value::Array(items) => items.iter().map(|item| convert(shape, item)).collect(),
            one => convert(shape, one),
        };
        add_resource_group(&mut printed);
        printed
    }

    /// Fields of `wire` that this resource does not have, as paths such as `properties.nodeCont`.
    pub fn unknown_fields(self, wire: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        find_unknown(&SHAPES[self.name()], wire, "", &mut unknown);
        unknown
    }

    const fn name(self) -> &'static str {
        match self {
            Shape::Workspace => "workspace",
            Shape::Experiment => "experiment",
            Shape::Cluster => "cluster",
            Shape::Job => "job",
            Shape::JobFile => "file",
            Shape::RemoteLogin => "remoteLoginInformation",
            Shape::ResourceGroup => "resourceGroup",
            Shape::StorageAccount => "storageAccount",
            Shape::StorageAccountKey => "storageAccountKey",
            Shape::Share => "storageShare",
            Shape::ShareDirectory => "storageDirectory",
            Shape::ShareFile => "storageFile",
        }
    }
}

#[derive(Deserialize)]
struct Attributes {
    own: BTreeMap<String, String>,
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

static SHAPES: LazyLock<BTreeMap<String, Attributes>> =
    LazyLock::new(|| serde_json::from_str(include_str!("shapes.json")).expect("the embedded shapes are valid JSON"));

fn convert(shape: &Attributes, wire: &Value) -> Value {
    let Value::Object(wire) = wire else { return wire.clone() };
    let mut printed = Map::new();
    take(&shape.own, Some(wire), &mut printed);
    take(&shape.properties, wire.get("properties").and_then(Value::as_object), &mut printed);
    Value::Object(printed)
}

fn take(attributes: &BTreeMap<String, String>, wire: Option<&Map<String, Value>>, printed: &mut Map<String, Value>) {
    for (attribute, rule) in attributes {
        let (kind, wire_name) = rule.split_once(' ').unwrap_or((rule, attribute));
        let value = wire.and_then(|object| object.get(wire_name)).unwrap_or(&Value::Null);
        printed.insert(attribute.clone(), convert_attribute(kind, value));
    }
}

fn convert_attribute(kind: &str, value: &Value) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("time", Value::String(text)) => python_time::date_time(text).into(),
        ("duration", Value::String(text)) => python_time::duration(text).into(),
        ("float", Value::Number(number)) => number.as_f64().into(),
        ("value", value) => value.clone(),
        (kind, Value::Object(_)) if kind.starts_with('{') => convert(nested(kind), value),
        (kind, Value::Array(items)) if kind.starts_with('[') => {
            items.iter().map(|item| convert(nested(kind), item)).collect()
        }
        (_, unexpected) => unexpected.clone(),
    }
}

fn nested(kind: &str) -> &'static Attributes {
    &SHAPES[&kind[1..kind.len() - 1]]
}

fn find_unknown(shape: &Attributes, wire: &Value, at: &str, unknown: &mut Vec<String>) {
    let Value::Object(object) = wire else { return };
    for (key, value) in object {
        if key == "properties" && !shape.properties.is_empty() {
            if let Value::Object(wrapped) = value {
                wrapped.iter().for_each(|(key, value)| {
                    check_field(&shape.properties, key, value, &format!("{at}properties.{key}"), unknown);
                });
            }
        } else {
            check_field(&shape.own, key, value, &format!("{at}{key}"), unknown);
        }
    }
}

fn check_field(attributes: &BTreeMap<String, String>, key: &str, value: &Value, path: &str, unknown: &mut Vec<String>) {
    let rule = attributes.iter().find_map(|(attribute, rule)| {
        let (kind, wire_name) = rule.split_once(' ').unwrap_or((rule, attribute));
        (wire_name == key).then_some(kind)
    });
    match (rule, value) {
        (None, _) => unknown.push(path.to_owned()),
        (Some(kind), Value::Object(_)) if kind.starts_with('{') => {
            find_unknown(nested(kind), value, &format!("{path}."), unknown);
        }
        (Some(kind), Value::Array(items)) if kind.starts_with('[') => {
            for (at, item) in items.iter().enumerate() {
                find_unknown(nested(kind), item, &format!("{path}[{at}]."), unknown);
            }
        }
        _ => {}
    }
}

/// Adds `resourceGroup` wherever `id` names a resource inside a group. A resource group's own id is shorter and so gets
/// none; the vault of a secret reference is skipped, as `az` does.
fn add_resource_group(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(add_resource_group),
        Value::Object(object) => {
            let group = object.get("id").and_then(Value::as_str).and_then(group_of).map(str::to_owned);
            if let Some(group) = group {
                object.entry("resourceGroup").or_insert(Value::String(group));
            }
            object.iter_mut().filter(|(key, _)| *key != "sourceVault").for_each(|(_, item)| add_resource_group(item));
        }
        _ => {}
    }
}

fn group_of(id: &str) -> Option<&str> {
    let parts: Vec<&str> = id.split('/').collect();
    (parts.len() > 8 && parts[3].eq_ignore_ascii_case("resourceGroups")).then(|| parts[4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CLUSTER_ID: &str = "/subscriptions/0/resourceGroups/demo_resource_group/providers/Microsoft.BatchAI/workspaces/demo_workspace/clusters/demo_cluster";

    #[test]
    fn every_nested_shape_exists() {
        for (name, shape) in SHAPES.iter() {
            for (attribute, rule) in shape.own.iter().chain(&shape.properties) {
                let kind = rule.split(' ').next().unwrap_or_default();
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
            ResourceGroup,
            StorageAccount,
            StorageAccountKey,
            Share,
            ShareDirectory,
            ShareFile,
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
        assert_eq!(
            printed["inputDirectories"],
            json!([{"id": "INPUT", "path": "$AZ_BATCHAI_MOUNT_ROOT/azfiles/input"}])
        );
        assert_eq!(printed["horovodSettings"], Value::Null);
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
}
