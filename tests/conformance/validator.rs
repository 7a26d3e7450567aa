//! Tests of the schema checker itself: responses that violate the document are rejected, each for its own reason, and valid
//! ones pass.

use serde_json::{Value, json};

use crate::harness::http::Response;
use crate::harness::schema::{Direction, EXTRAS};
use crate::harness::swagger::document;

fn violations(definition: &str, value: Value, direction: Direction) -> Vec<String> {
    let schema = json!({"$ref": format!("#/definitions/{definition}")});
    document().schemas().violations(&schema, &value, direction)
}

#[test]
fn violations_of_schemas_are_caught() {
    let check = |definition: &str, value: Value, expected: &[&str]| {
        assert_eq!(violations(definition, value, Direction::Response), expected, "{definition}");
    };
    let experiment = |properties: Value| json!({"id": "i", "name": "n", "type": "t", "properties": properties});
    check("Experiment", experiment(json!({"creationTime": "2018-06-07T21:16:21.13Z"})), &[]);
    check("Experiment", experiment(json!({"creationTime": 7})), &["$.properties.creationTime: 7 is no string"]);
    check(
        "Experiment",
        experiment(json!({"creationTime": "2018-06-07 21:16"})),
        &["$.properties.creationTime: '2018-06-07 21:16' is not a date-time"],
    );
    check(
        "Experiment",
        experiment(json!({"creationTime": "2018-06-07T21:16:21.130Z"})),
        &["$.properties.creationTime: '2018-06-07T21:16:21.130Z' is not a date-time"],
    );
    check(
        "Experiment",
        experiment(json!({"provisioningState": "Succeeded"})),
        &[r#"$.properties.provisioningState: "Succeeded" is not one of ["creating","deleting","succeeded","failed"]"#],
    );
    // `allOf`: `id` is declared by the parent, `colour` nowhere.
    check("Experiment", json!({"id": 1}), &["$.id: 1 is no string"]);
    check("Experiment", json!({"colour": "red"}), &["$.colour: not in the document"]);
    check("Experiment", json!({"id": null}), &["$.id: null, where absent values are left out"]);
    check("Experiment", json!([]), &["$: [] is no object"]);
    // Required, arrays, references inside them.
    check("ResourceId", json!({}), &["$: 'id' is required"]);
    check("ClusterListResult", json!({"value": {}}), &["$.value: {} is no array"]);
    check(
        "ClusterListResult",
        json!({"value": [{}, {"properties": {"currentNodeCount": "3"}}]}),
        &[r#"$.value[1].properties.currentNodeCount: "3" is no integer"#],
    );
    check(
        "NodeStateCounts",
        json!({"idleNodeCount": 3_000_000_000_i64}),
        &["$.idleNodeCount: 3000000000 is too large"],
    );
    // Maps are checked by value.
    check("Workspace", json!({"tags": {"a": "b"}}), &[]);
    check("Workspace", json!({"tags": {"a": 1}}), &["$.tags.a: 1 is no string"]);
    // Inline schemas have no name and are closed all the same.
    check(
        "JobProperties",
        json!({"constraints": {"maxWallClockTime": "7.00:00:00", "more": 1}}),
        &["$.constraints.maxWallClockTime: '7.00:00:00' is not a duration", "$.constraints.more: not in the document"],
    );
    // Properties that the service itself sent beside its document.
    check("JobProperties", json!({"experimentName": "e", "toolType": "pytorch"}), &[]);
    check(
        "JobProperties",
        json!({"toolType": "mxnet"}),
        &[concat!(
            r#"$.toolType: "mxnet" is not one of "#,
            r#"["cntk","tensorflow","caffe","caffe2","chainer","horovod","custommpi","custom"]"#
        )],
    );
}

#[test]
fn a_request_gives_nothing_that_is_read_only() {
    let body = json!({"location": "eastus", "tags": {}});
    assert!(violations("WorkspaceCreateParameters", body, Direction::Request).is_empty());
    let task = json!({"commandLine": "a", "stdOutErrPathPrefix": "x", "stdOutErrPathSuffix": "y"});
    assert!(violations("SetupTask", task.clone(), Direction::Response).is_empty());
    let expected = ["$.stdOutErrPathSuffix: read-only, and given in a request"];
    assert_eq!(violations("SetupTask", task, Direction::Request), expected);
}

#[test]
fn violations_of_answers_are_caught() {
    let check = |method: &str, path: &str, status: u16, headers: &str, body: &str, expected: &[&str]| {
        let path = format!("/subscriptions/s/resourcegroups/g/providers/microsoft.batchai/workspaces/w{path}");
        let operation = document().find(method, &path).unwrap_or_else(|| panic!("no operation for {path}"));
        let headers = format!("HTTP/1.1 {status} X\r\n{headers}");
        let response = Response { status, headers, body: body.as_bytes().to_vec() };
        assert_eq!(document().violations(operation, &response), expected, "{}", operation.id);
    };
    let kind = "Content-Type: application/json; charset=utf-8";
    check("GET", "/experiments", 200, kind, r#"{"value":[]}"#, &[]);
    check("GET", "/experiments", 200, "", r#"{"value":[]}"#, &["the content type is ''"]);
    check("GET", "/experiments", 204, kind, "", &["the status 204 is not one of the document's"]);
    check("DELETE", "/experiments/e", 204, "", "", &[]);
    check("DELETE", "/experiments/e", 204, "", "{}", &["a body, where 204 has none"]);
    let poll = "Azure-AsyncOperation: http://a/b\r\nLocation: http://a/c\r\nRetry-After: 0";
    check("DELETE", "/experiments/e", 202, poll, "", &[]);
    check(
        "DELETE",
        "/experiments/e",
        202,
        "Location: /c",
        "",
        &["no absolute URL in azure-asyncoperation", "no absolute URL in location", "no whole number in retry-after"],
    );
    check("GET", "/clusters/c", 404, kind, r#"{"error":{"code":"ClusterNotFound","message":"m"}}"#, &[]);
    check("GET", "/clusters/c", 404, kind, r#"{"error":{"code":"x"}}"#, &["$.error.message: missing or empty"]);
    check(
        "GET",
        "/clusters/c",
        404,
        kind,
        r#"{"error":{"code":"x","message":"m","why":"?"}}"#,
        &["$.error.why: not in the document"],
    );
}

#[test]
fn the_document_knows_29_operations_and_we_know_the_same() {
    let ours = corro_model::ops::ALL;
    let mut known: Vec<&str> = document().operations().map(|operation| operation.id).collect();
    known.sort_unstable();
    assert_eq!(known.len(), 29);
    for operation in document().operations() {
        let (_, method, path) =
            ours.iter().find(|(id, _, _)| *id == operation.id).unwrap_or_else(|| panic!("no {}", operation.id));
        assert!(method.as_str().eq_ignore_ascii_case(operation.method), "{}", operation.id);
        let plain = |path: &str| {
            let segments = path.split('/').map(|s| if s.starts_with('{') { "{}" } else { s });
            segments.collect::<Vec<_>>().join("/")
        };
        assert_eq!(plain(path), plain(operation.path), "{}", operation.id);
    }
}

#[test]
fn our_extras_are_few() {
    assert!(EXTRAS.iter().all(|(definition, _)| *definition == "JobProperties"), "{EXTRAS:?}");
}
