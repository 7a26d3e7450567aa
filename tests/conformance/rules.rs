//! Rules that a schema cannot express: headers, versions, case, repeated and conflicting PUTs, terminating jobs, cascading
//! deletion.

use serde_json::{Value, json};

use super::fixture::{NO_BODY, cluster_body, job_body, wait_for_operation, workspace};
use crate::harness::{Site, wait_for};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS me@host";

#[test]
fn headers_of_every_answer() {
    let site = Site::start();
    let workspace = workspace(&site);
    let shown = site.arm("GET", &workspace, NO_BODY).is(200);
    for (name, value) in [
        ("cache-control", "no-cache"),
        ("pragma", "no-cache"),
        ("expires", "-1"),
        ("content-type", "application/json; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("vary", "Accept-Encoding"),
    ] {
        assert_eq!(shown.required_header(name), value, "{name}");
    }
    for name in ["request-id", "x-ms-request-id", "x-ms-correlation-request-id", "x-ms-routing-request-id", "date"] {
        assert!(!shown.required_header(name).is_empty(), "{name}");
    }
    // A single resource has an etag.
    let tag = shown.required_header("etag");
    assert!(tag.starts_with("\"0x") && tag.ends_with('"'), "{tag}");
    assert!(httpdate::parse_http_date(&shown.required_header("last-modified")).is_ok());
    assert_eq!(site.arm("GET", &workspace, NO_BODY).required_header("etag"), tag);
    let tagged = site.arm("PATCH", &workspace, json!({"tags": {"a": "b"}})).is(200);
    assert_ne!(tagged.required_header("etag"), tag, "it changed");
    assert_eq!(site.arm("GET", &format!("{workspace}/clusters"), NO_BODY).is(200).header("etag"), None);
    // The first line of a 404 names the missing resource.
    let missing = site.arm("GET", &format!("{workspace}/clusters/Nobody"), NO_BODY).is(404);
    assert_eq!(missing.headers.lines().next(), Some("HTTP/1.1 404 The specified cluster Nobody is not found"));
}

#[test]
fn versions_of_the_interface() {
    let site = Site::start();
    let list = format!("{}/providers/Microsoft.BatchAI/workspaces", site.subscription());
    site.arm("GET", &format!("{list}?api-version=2018-05-01"), NO_BODY).is(200);
    site.arm("GET", &format!("{list}?API-Version=2018-05-01"), NO_BODY).is(200);
    site.arm("GET", &format!("{list}?api-version="), NO_BODY).refused(400, "MissingApiVersionParameter");
    let old = site.arm("GET", &format!("{list}?api-version=2018-03-01"), NO_BODY);
    let message = old.refused(400, "NoRegisteredProviderFound").json()["error"]["message"].to_string();
    assert!(message.contains("2018-03-01") && message.contains("'2018-05-01'"), "{message}");
    site.arm("GET", "/providers/Microsoft.BatchAI/operations", NO_BODY).is(200);
    site.arm("GET", "/providers/microsoft.batchai/OPERATIONS", NO_BODY).is(200);
}

#[test]
fn names_are_found_in_any_case_and_shown_as_made() {
    let site = Site::start();
    let workspace = workspace(&site);
    let experiment = format!("{workspace}/experiments/MyExperiment");
    site.arm("PUT", &experiment, NO_BODY).is(200);
    let cluster = format!("{workspace}/clusters/MyCluster");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(0)));
    // The cluster is named in another case than at its creation; the response has the original case.
    let job = format!("{experiment}/jobs/MyJob");
    wait_for_operation(&site, &site.arm("PUT", &job, job_body(&cluster.to_lowercase(), "true")));
    let path = job.replace("MyExperiment", "MYEXPERIMENT").replace("MyJob", "myjob");
    let shown = site.arm("GET", &path, NO_BODY).is(200).json();
    assert_eq!((&shown["id"], &shown["name"]), (&json!(job), &json!("MyJob")));
    let properties = &shown["properties"];
    assert_eq!(
        (&properties["cluster"]["id"], &properties["experimentName"]),
        (&json!(cluster), &json!("MyExperiment"))
    );
    let segment = properties["jobOutputDirectoryPathSegment"].as_str().expect("text");
    assert!(segment.contains("/workspaces/w/experiments/MyExperiment/jobs/MyJob/"), "{segment}");
    // The same name in another case is the same job.
    site.arm("PUT", &path, job_body(&cluster, "true")).is(200);
    site.arm("PUT", &path, job_body(&cluster, "false")).refused(409, "JobAlreadyExists");
}

#[test]
fn the_same_again_is_no_change_and_another_is_refused_by_field() {
    let site = Site::start();
    let workspace = workspace(&site);
    let conflicts = |path: &str, body: Value, field: &str| {
        let response = site.arm("PUT", path, body).is(409).json();
        assert_eq!(response["error"]["target"], field, "{response}");
        assert!(response["error"]["message"].as_str().is_some_and(|text| text.contains(field)), "{response}");
    };
    // Workspaces: the location is immutable, tags may change.
    let made = site.arm("GET", &workspace, NO_BODY).is(200).json();
    assert_eq!(site.arm("PUT", &workspace, json!({"location": "East US"})).is(200).json(), made);
    conflicts(&workspace, json!({"location": "westus"}), "location");
    let tagged = site.arm("PUT", &workspace, json!({"location": "eastus", "tags": {"a": "b"}})).is(200).json();
    assert_eq!((&tagged["tags"], &tagged["properties"]), (&json!({"a": "b"}), &made["properties"]));
    site.arm("PUT", &format!("{workspace}2"), json!({})).refused(400, "InvalidRequestBody");
    site.arm("PUT", &format!("{workspace}2"), json!({"location": " "})).refused(400, "InvalidPropertyValue");

    // Clusters: spelling does not matter, content does.
    let cluster = format!("{workspace}/clusters/c");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(0)));
    let shown = site.arm("GET", &cluster, NO_BODY).is(200).json();
    let mut spelled = cluster_body(0);
    spelled["properties"]["vmSize"] = json!("STANDARD_d1");
    spelled["properties"]["vmPriority"] = json!("dedicated");
    assert_eq!(site.arm("PUT", &cluster, spelled).is(200).json(), shown);
    conflicts(&cluster, cluster_body(1), "properties.scaleSettings.manual.targetNodeCount");
    let mut other = cluster_body(0);
    other["properties"]["userAccountSettings"]["adminUserName"] = json!("you");
    conflicts(&cluster, other, "properties.userAccountSettings.adminUserName");
    // After a resize a PUT may repeat the new size.
    let auto = json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}});
    site.arm("PATCH", &cluster, json!({"properties": {"scaleSettings": auto}})).is(200);
    let mut resized = cluster_body(0);
    resized["properties"]["scaleSettings"] = auto;
    site.arm("PUT", &cluster, resized).is(200);
    // An empty PATCH changes nothing; one with both kinds of scaling is refused.
    site.arm("PATCH", &cluster, json!({"properties": {}})).is(200);
    let both = json!({"manual": {"targetNodeCount": 0}, "autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}});
    let refused = site.arm("PATCH", &cluster, json!({"properties": {"scaleSettings": both}})).is(400).json();
    assert_eq!(refused["error"]["target"], "properties.scaleSettings");

    // Jobs: a secret is content too, though it is never shown.
    let job = format!("{workspace}/experiments/e/jobs/j");
    let body = |value: &str| {
        let mut body = job_body(&cluster, "true");
        body["properties"]["secrets"] = json!([{"name": "S", "value": value}]);
        body
    };
    wait_for_operation(&site, &site.arm("PUT", &job, body("one")));
    let shown = site.arm("PUT", &job, body("one")).is(200).json();
    assert_eq!(shown["properties"]["secrets"], json!([{"name": "S"}]));
    let refused = site.arm("PUT", &job, body("two")).refused(409, "JobAlreadyExists").text();
    assert!(refused.contains("the value of a secret differs") && !refused.contains("two"), "{refused}");
    let mut larger = body("one");
    larger["properties"]["nodeCount"] = json!(2);
    conflicts(&job, larger, "properties.nodeCount");
}

#[test]
fn defaults_are_filled_in_and_shown() {
    let site = Site::start();
    let workspace = workspace(&site);
    let cluster = format!("{workspace}/clusters/c");
    let bare = json!({"properties": {
        "vmSize": "Standard_NC6", "virtualMachineConfiguration": {},
        "userAccountSettings": {"adminUserName": "me", "adminUserSshPublicKey": KEY},
        "nodeSetup": {"performanceCountersSettings": {"appInsightsReference": {
            "component": {"id": "/subscriptions/s/insights"}, "instrumentationKey": "canary-key"
        }}}
    }});
    wait_for_operation(&site, &site.arm("PUT", &cluster, bare));
    let shown = site.arm("GET", &cluster, NO_BODY).is(200);
    assert!(!shown.text().contains("canary"), "{shown}");
    let properties = &shown.json()["properties"];
    assert_eq!((&properties["vmSize"], &properties["vmPriority"]), (&json!("STANDARD_NC6"), &json!("dedicated")));
    let by_hand = json!({"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}});
    assert_eq!(properties["scaleSettings"], by_hand);
    let image = json!({"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS", "version": "latest"});
    assert_eq!(properties["virtualMachineConfiguration"]["imageReference"], image);
    assert_eq!(properties["userAccountSettings"]["adminUserSshPublicKey"], KEY);
    let insights = json!({"component": {"id": "/subscriptions/s/insights"}});
    assert_eq!(properties["nodeSetup"]["performanceCountersSettings"]["appInsightsReference"], insights);

    let job = format!("{workspace}/experiments/e/jobs/j");
    let wall = |text: &str| {
        let mut body = job_body(&cluster, "true");
        body["properties"]["constraints"] = json!({"maxWallClockTime": text});
        body
    };
    wait_for_operation(&site, &site.arm("PUT", &job, job_body(&cluster, "true")));
    let properties = site.arm("GET", &job, NO_BODY).is(200).json()["properties"].clone();
    assert_eq!(properties["constraints"], json!({"maxWallClockTime": "P7D"}));
    assert_eq!((&properties["schedulingPriority"], &properties["toolType"]), (&json!("normal"), &json!("custom")));
    assert_eq!(properties["executionStateTransitionTime"], properties["creationTime"]);
    assert_eq!((&properties["executionState"], properties.get("executionInfo")), (&json!("queued"), None));
    // Both notations of a duration are equal.
    site.arm("PUT", &job, wall("7.00:00:00")).is(200);
    site.arm("PUT", &job, wall("P7D")).is(200);
    site.arm("PUT", &format!("{job}2"), wall("soon")).refused(400, "InvalidRequestBody");
    site.arm("PUT", &format!("{job}2"), wall("PT0S")).refused(400, "InvalidPropertyValue");
}

#[test]
fn a_job_may_run_on_a_cluster_of_another_group_and_its_end_names_the_cause() {
    let site = Site::start();
    let here = workspace(&site);
    let group = format!("{}/resourceGroups/elsewhere", site.subscription());
    site.arm("PUT", &group, json!({"location": "westus"})).is(201);
    let there = format!("{group}/providers/Microsoft.BatchAI/workspaces/there");
    site.arm("PUT", &there, json!({"location": "westus"})).is(200);
    let cluster = format!("{there}/clusters/c");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(1)));
    let job = |name: &str| format!("{here}/experiments/e/jobs/{name}");
    wait_for_operation(&site, &site.arm("PUT", &job("long"), job_body(&cluster, "sleep 1000")));
    let state = |name: &str| site.arm("GET", &job(name), NO_BODY).is(200).json()["properties"].clone();
    wait_for("the job to run", || state("long")["executionState"] == "running");
    wait_for_operation(&site, &site.arm("PUT", &job("waiting"), job_body(&cluster, "true")));
    wait_for_operation(&site, &site.arm("DELETE", &cluster, NO_BODY));
    for name in ["long", "waiting"] {
        let ended = state(name);
        assert_eq!(ended["executionState"], "failed", "{ended}");
        let info = &ended["executionInfo"];
        assert_eq!((&info["errors"][0]["code"], info.get("exitCode")), (&json!("JobTerminated"), None), "{info}");
        let message = info["errors"][0]["message"].as_str().expect("text");
        assert!(message.contains("its cluster was deleted") && !message.contains("by the user"), "{message}");
    }
    // Missing clusters, in all variants.
    let unknown = site.arm("PUT", &job("x"), job_body(&cluster, "true")).refused(404, "ClusterNotFound").json();
    assert_eq!(unknown["error"]["target"], "properties.cluster.id");
    let stranger = cluster.replace(&site.subscription(), "/subscriptions/00000000-0000-0000-0000-000000000000");
    site.arm("PUT", &job("x"), job_body(&stranger, "true")).refused(404, "SubscriptionNotFound");
    site.arm("PUT", &job("x"), job_body("c", "true")).refused(400, "InvalidPropertyValue");
}

#[test]
fn a_workspace_that_leaves_is_seen_leaving_and_takes_everything_along() {
    let site = Site::start();
    let workspace = workspace(&site);
    let cluster = format!("{workspace}/clusters/c");
    wait_for_operation(&site, &site.arm("PUT", &cluster, cluster_body(1)));
    let job = format!("{workspace}/experiments/e/jobs/j");
    // It takes its five seconds to end, so that the leaving state is visible.
    wait_for_operation(
        &site,
        &site.arm("PUT", &job, job_body(&cluster, "trap '' TERM; sleep 1000 & wait; wait; sleep 1000")),
    );
    wait_for("the job to run", || {
        site.arm("GET", &job, NO_BODY).is(200).json()["properties"]["executionState"] == "running"
    });
    let leaving = site.arm("DELETE", &workspace, NO_BODY).is(202);
    let list = format!("{}/providers/Microsoft.BatchAI/workspaces", site.subscription());
    let shown = site.arm("GET", &list, NO_BODY).is(200).json();
    assert_eq!(shown["value"][0]["properties"]["provisioningState"], "deleting", "{shown}");
    let clusters = site.arm("GET", &format!("{workspace}/clusters"), NO_BODY).is(200).json();
    assert_eq!(clusters["value"][0]["properties"]["provisioningState"], "deleting", "{clusters}");
    // Nothing new can be created in it.
    site.arm("PUT", &format!("{workspace}/experiments/late"), NO_BODY).refused(409, "ResourceBeingDeleted");
    site.arm("PUT", &workspace, json!({"location": "eastus"})).refused(409, "ResourceBeingDeleted");
    wait_for_operation(&site, &leaving);
    assert_eq!(site.arm("GET", &list, NO_BODY).is(200).json(), json!({"value": []}));
    site.arm("GET", &cluster, NO_BODY).refused(404, "WorkspaceNotFound");
    site.arm("DELETE", &workspace, NO_BODY).is(204);
}
