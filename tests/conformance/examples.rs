//! Every example of the document, sent to a real server in the order of a workspace's life. `Site::arm` validates the responses
//! against the schemas; here they are compared with the examples: every field of an example must be present in ours.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::fixture::{NO_BODY, wait_for_operation};
use crate::harness::http::Response;
use crate::harness::schema::Direction;
use crate::harness::swagger::{Operation, document};
use crate::harness::{Site, wait_for};

/// The subscription id in the examples.
const EXAMPLE_SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";

struct Examples<'a> {
    site: &'a Site,
    used: BTreeSet<String>,
}

impl Examples<'_> {
    fn text(&self, name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/data/examples").join(name);
        // One example spells the experiment's name differently from all the others.
        let text = std::fs::read_to_string(path).expect("an example").replace("demo_experimnet", "demo_experiment");
        text.replace(EXAMPLE_SUBSCRIPTION, self.site.profile()["subscription"].as_str().expect("text"))
    }

    /// Sends the example's request, corrected by `correct` where the example itself is wrong.
    #[track_caller]
    fn send_corrected(&mut self, name: &str, correct: impl FnOnce(&mut Value)) -> (Value, Response) {
        self.used.insert(name.to_owned());
        let mut example: Value = serde_json::from_str(&self.text(name)).expect("JSON");
        correct(&mut example);
        let operation = document().operations().find(|operation| is_shown_by(operation, name)).expect("an operation");
        let parameters = example["parameters"].as_object().expect("an object");
        let value_of = |name: &str| parameters.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name}"));
        let fill = |segment: &str| match segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) {
            Some(name) => value_of(name).to_owned(),
            None => segment.to_owned(),
        };
        let path = operation.path.split('/').map(fill).collect::<Vec<_>>().join("/");
        let query = ["api-version", "outputdirectoryid"].into_iter().filter(|name| parameters.contains_key(*name));
        let query = query.map(|name| format!("{name}={}", value_of(name))).collect::<Vec<_>>().join("&");
        let body = parameters.get("parameters").cloned().unwrap_or(NO_BODY);
        let described = operation.value["parameters"].as_array().into_iter().flatten().find(|p| p["in"] == "body");
        if let Some(described) = described {
            let found = document().schemas().violations(&described["schema"], &body, Direction::Request);
            assert!(found.is_empty(), "the request of {name}: {found:?}");
        }
        let response = self.site.arm(&operation.method.to_uppercase(), &format!("{path}?{query}"), body);
        assert!(example["responses"].get(response.status.to_string()).is_some(), "{name}: {response}");
        (example, response)
    }

    /// Sends the example and waits for the operation it started, if any.
    #[track_caller]
    fn send(&mut self, name: &str) -> Response {
        let (_, response) = self.send_corrected(name, |_| {});
        wait_for_operation(self.site, &response);
        response
    }

    /// Sends the example and compares its response, which has a body.
    #[track_caller]
    fn compare(&mut self, name: &str, absent: &[&str]) -> Value {
        let (example, response) = self.send_corrected(name, |_| {});
        let ours = response.is(200).json();
        let mut missing = Vec::new();
        lacking("$", &example["responses"]["200"]["body"], &ours, &mut missing);
        missing.retain(|path| !absent.contains(&path.as_str()));
        assert!(missing.is_empty(), "{name} shows {missing:?}, ours does not: {ours:#}");
        ours
    }
}

fn is_shown_by(operation: &Operation<'_>, example: &str) -> bool {
    operation.value["x-ms-examples"].as_array().is_some_and(|names| names.iter().any(|name| name == example))
}

/// Paths that `theirs` has and `ours` lacks, or has with another type. Lists are compared by their first items.
fn lacking(path: &str, theirs: &Value, ours: &Value, missing: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Null, _) => {}
        (Value::Object(theirs), Value::Object(ours)) => {
            for (name, value) in theirs.iter().filter(|(_, value)| !value.is_null()) {
                let path = format!("{path}.{name}");
                match ours.get(name) {
                    Some(ours) => lacking(&path, value, ours, missing),
                    None => missing.push(path),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => match (theirs.first(), ours.first()) {
            (Some(theirs), Some(ours)) => lacking(&format!("{path}[]"), theirs, ours, missing),
            (Some(_), None) => missing.push(format!("{path}[]")),
            (None, _) => {}
        },
        (Value::String(_), Value::String(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::Bool(_), Value::Bool(_)) => {}
        _ => missing.push(path.to_owned()),
    }
}

#[test]
fn every_example_is_answered_as_the_document_says() {
    let site = Site::start();
    let mut examples = Examples { site: &site, used: BTreeSet::new() };
    let group = format!("{}/resourceGroups/demo_resource_group", site.subscription());
    site.arm("PUT", &group, json!({"location": "eastus"})).is(201);
    let workspaces = format!("{group}/providers/Microsoft.BatchAI/workspaces");

    let actions = examples.compare("ListOperation.json", &[]);
    assert_eq!(actions["value"].as_array().map(Vec::len), Some(26));
    let theirs: Value = serde_json::from_str(&examples.text("ListOperation.json")).expect("JSON");
    let names = |list: &Value| -> Vec<String> {
        let list = list["value"].as_array().expect("a list").iter();
        list.map(|action| action["name"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(names(&actions), names(&theirs["responses"]["200"]["body"]));
    let usages = examples.compare("ListUsages.json", &[]);
    let theirs: Value = serde_json::from_str(&examples.text("ListUsages.json")).expect("JSON");
    let usage_names = |list: &Value| -> Vec<Value> {
        list["value"].as_array().expect("a list").iter().map(|usage| usage["name"].clone()).collect()
    };
    assert_eq!(usage_names(&usages), usage_names(&theirs["responses"]["200"]["body"]));

    examples.compare("PutWorkspace.json", &[]);
    examples.compare("GetWorkspace.json", &[]);
    assert_eq!(examples.compare("PatchWorkspace.json", &[])["tags"], json!({"key1": "value1"}));
    examples.compare("ListWorkspace.json", &[]);
    examples.compare("ListWorkspaceByResourceGroup.json", &[]);
    // The example sends a body where the operation has none: it is ignored.
    examples.compare("PutExperiment.json", &[]);
    examples.compare("GetExperiment.json", &[]);
    examples.compare("ListExperimentByWorkspace.json", &[]);

    assert_eq!(examples.send("PutFileServer.json").status, 202);
    examples.compare("PutFileServer.json", &[]);
    examples.compare("GetFileServer.json", &[]);
    examples.compare("ListFileServerByWorkspace.json", &[]);

    // The cluster mounts a file server of another workspace: without it the request is refused, as nothing could ever mount it.
    // With it, it is accepted, and the cluster is in the file server's subnet.
    let example: Value = serde_json::from_str(&examples.text("PutCluster.json")).expect("JSON");
    let path = format!("{workspaces}/demo_workspace/clusters/demo_cluster");
    let refused =
        site.arm("PUT", &path, example["parameters"]["parameters"].clone()).refused(404, "FileServerNotFound").json();
    assert_eq!(refused["error"]["target"], "properties.nodeSetup.mountVolumes.fileServers[0].fileServer.id");
    site.arm("PUT", &format!("{workspaces}/demo_workspaces"), json!({"location": "eastus"})).is(200);
    let example: Value = serde_json::from_str(&examples.text("PutFileServer.json")).expect("JSON");
    let server = format!("{workspaces}/demo_workspaces/fileServers/fileservercedd134b");
    wait_for_operation(&site, &site.arm("PUT", &server, example["parameters"]["parameters"].clone()));
    assert_eq!(examples.send("PutCluster.json").status, 202);
    let cluster = examples.compare("PutCluster.json", &[]);
    let subnet = site.arm("GET", &server, NO_BODY).is(200).json()["properties"]["subnet"].clone();
    assert_eq!(cluster["properties"]["subnet"], subnet);
    examples.compare("GetCluster.json", &[]);
    examples.compare("ListClusterByWorkspace.json", &[]);
    // Its volumes cannot be mounted here: the resource is created, and its nodes report why they are unusable.
    let path = format!("{workspaces}/demo_workspace/clusters/demo_cluster");
    wait_for("the node to fail", || {
        let errors = &site.arm("GET", &path, NO_BODY).is(200).json()["properties"]["errors"];
        errors[0]["code"].as_str().is_some_and(|code| code.ends_with("MountError"))
    });
    // One entry for each node with an SSH endpoint; this cluster's node may have none.
    examples.compare("ClusterListRemoteLoginInfo.json", &["$.value[]"]);
    examples.compare("PatchCluster.json", &[]);

    // The example names a cluster by an invalid path (`workspace` for `workspaces`): refused, correctly.
    let example: Value = serde_json::from_str(&examples.text("PutJob.json")).expect("JSON");
    let path = format!("{workspaces}/demo_workspace/experiments/demo_experiment/jobs/demo_job");
    let response = site.arm("PUT", &path, example["parameters"]["parameters"].clone());
    assert_eq!(response.refused(400, "InvalidPropertyValue").json()["error"]["target"], "properties.cluster.id");
    let correct = |example: &mut Value| {
        let id = &mut example["parameters"]["parameters"]["properties"]["cluster"]["id"];
        *id = json!(id.as_str().expect("text").replace("/workspace/", "/workspaces/"));
    };
    let (_, accepted) = examples.send_corrected("PutJob.json", correct);
    wait_for_operation(&site, &accepted.is(202));
    let (_, again) = examples.send_corrected("PutJob.json", correct);
    again.is(200);
    // It waits for nodes, so it has not started.
    examples.compare("GetJob.json", &["$.properties.executionInfo"]);
    examples.compare("ListJobByExperiment.json", &["$.value[].properties.executionInfo"]);
    // Nothing is written before it starts, and it has no nodes.
    examples.compare("ListOutputFiles.json", &["$.value[]"]);
    examples.compare("JobListRemoteLoginInfo.json", &["$.value[]"]);
    assert_eq!(examples.send("TerminateJob.json").status, 202);
    assert_eq!(examples.send("TerminateJob.json").status, 200, "it has ended");

    for name in ["Job", "Experiment", "Cluster", "FileServer", "Workspace"] {
        let file = format!("Delete{name}.json");
        assert_eq!(examples.send(&file).status, 202, "{file}");
        assert_eq!(examples.send(&file).status, 204, "{file}, once it is gone");
    }

    let all: BTreeSet<String> = document()
        .operations()
        .flat_map(|operation| operation.value["x-ms-examples"].as_array().cloned().unwrap_or_default())
        .map(|name| name.as_str().expect("text").to_owned())
        .collect();
    assert_eq!(examples.used, all, "every example was sent");
    assert_eq!(all.len(), 29);
}
