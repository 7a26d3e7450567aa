//! REST exchange of the retired service's clients over raw HTTP: statuses, headers, shapes.

mod harness;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use harness::http::Response;
use harness::wire::VERSION;
use harness::{GROUP, Site, wait_for};
use serde_json::{Value, json};

const NO_BODY: Value = Value::Null;

fn group(site: &Site, name: &str) -> String {
    format!("{}/resourceGroups/{name}", site.subscription())
}

/// `2018-06-07T21:16:21.13Z`: UTC, at most milliseconds, no trailing zeros.
#[track_caller]
fn assert_timestamp(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is no timestamp"));
    let (whole, fraction) = match text.strip_suffix('Z').expect("UTC").split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.trim_end_matches('Z'), None),
    };
    let shape: String = whole.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00", "{text}");
    let good = |fraction: &str| {
        (1..=3).contains(&fraction.len()) && !fraction.ends_with('0') && fraction.bytes().all(|b| b.is_ascii_digit())
    };
    assert!(fraction.is_none_or(good), "{text}");
}

/// Asserts a 202 with both polling URLs, and follows them to the end of the operation.
#[track_caller]
fn follow(site: &Site, accepted: &Response, resource: &str) {
    assert_eq!((accepted.status, accepted.body.len()), (202, 0), "{accepted}");
    let retry_after: u32 = accepted.required_header("retry-after").parse().expect("whole seconds");
    assert!(retry_after <= 15, "{retry_after}");
    let (by_operation, by_location) =
        (accepted.required_header("azure-asyncoperation"), accepted.required_header("location"));
    for (url, word) in [(&by_operation, "operationresults"), (&by_location, "operationstatuses")] {
        let path = format!("{}{}/providers/Microsoft.BatchAI/locations/eastus/{word}/", site.url, site.subscription());
        assert!(url.starts_with(&path) && url.ends_with(&format!("?api-version={VERSION}")), "{url}");
    }
    let ask =
        |url: &str| site.arm("GET", url.strip_prefix(&site.url).expect("an absolute URL of this server"), NO_BODY);
    let mut last = Value::Null;
    wait_for("the operation to end", || {
        last = ask(&by_operation).is(200).json();
        assert_timestamp(&last["startTime"]);
        assert!(["InProgress", "Succeeded"].iter().any(|status| last["status"] == *status), "{last}");
        last["status"] == "Succeeded"
    });
    assert_timestamp(&last["endTime"]);
    let url = by_operation.split('?').next().expect("a path");
    assert_eq!((&last["id"], &last["name"]), (&json!(url), &json!(url.rsplit('/').next())), "{last}");
    assert_eq!(last["properties"]["resourceId"], resource, "{last}");
    assert!(matches!(ask(&by_location).status, 200 | 204));
}

#[test]
fn tokens() {
    let site = Site::start();
    let profile = site.profile();
    let (id, secret) = (profile["clientId"].as_str().expect("text"), profile["clientSecret"].as_str().expect("text"));
    let ask = |form: &str| {
        let kind = [("Content-Type", "application/x-www-form-urlencoded")];
        site.request("POST", "/adfs/oauth2/token", &kind, form.as_bytes())
    };
    let good = ask(&format!(
        "grant_type=client_credentials&client_id={id}&resource=https%3A%2F%2Fr%2F&client_secret={secret}"
    ))
    .is(200);
    assert!(good.required_header("content-type").starts_with("application/json"));
    let token = good.json();
    assert_eq!((&token["token_type"], &token["resource"]), (&json!("Bearer"), &json!("https://r/")));
    let number = |name: &str| token[name].as_str().expect("text").parse::<i64>().expect("a number");
    assert_eq!(number("expires_on") - number("not_before"), number("expires_in"));
    // One of the clients reads the tenant from it.
    let claims = token["access_token"].as_str().expect("text").split('.').nth(1).expect("a JWT").to_owned();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
    assert_eq!(claims["tid"], profile["tenant"]);
    for (form, error) in [
        (format!("grant_type=client_credentials&client_id={id}&client_secret=wrong"), "invalid_client"),
        (format!("grant_type=client_credentials&client_id=nobody&client_secret={secret}"), "invalid_client"),
        (format!("grant_type=password&client_id={id}&client_secret={secret}"), "unsupported_grant_type"),
        (String::new(), "invalid_request"),
    ] {
        let refused = ask(&form);
        assert!(matches!(refused.status, 400 | 401), "{refused}");
        assert_eq!(refused.json()["error"], error, "{refused}");
        assert!(refused.json()["error_description"].is_string());
    }
    let subscriptions = site.arm("GET", "/subscriptions?api-version=2016-06-01", NO_BODY).is(200).json();
    let only = &subscriptions["value"][0];
    assert_eq!((&only["id"], &only["subscriptionId"]), (&json!(site.subscription()), &profile["subscription"]));
    assert_eq!(only["state"], "Enabled");
}

#[test]
fn groups_and_rules_that_hold_everywhere() {
    let site = Site::start();
    let path = group(&site, "My.Group");
    assert_eq!(site.arm("HEAD", &path, NO_BODY).is(404).body.len(), 0);
    site.arm("GET", &path, NO_BODY).refused(404, "ResourceGroupNotFound");
    let body = json!({"location": "eastus", "tags": {"a": "b"}});
    let created = site.arm("PUT", &path, body.clone()).is(201);
    let shown = created.json();
    assert_eq!((&shown["id"], &shown["name"]), (&json!(path), &json!("My.Group")));
    assert_eq!((&shown["location"], &shown["tags"]), (&json!("eastus"), &json!({"a": "b"})));
    assert_eq!(shown["properties"]["provisioningState"], "Succeeded");
    assert_eq!(created.required_header("content-type"), "application/json; charset=utf-8");
    assert!(!created.required_header("x-ms-request-id").is_empty());
    assert_eq!(site.arm("PUT", &path, body).is(200).json(), shown);
    let there = site.arm("HEAD", &path, NO_BODY).is(204);
    assert!(there.body.is_empty());
    // Fixed segments in any case; names in any case, shown as created.
    for other in [
        path.replace("resourceGroups", "resourcegroups"),
        path.to_uppercase().replace("/SUBSCRIPTIONS", "/subscriptions"),
    ] {
        assert_eq!(site.arm("GET", &other, NO_BODY).is(200).json(), shown, "{other}");
    }
    let workspace = format!("{path}/providers/Microsoft.BatchAI/workspaces/w");
    site.arm("PUT", &workspace, json!({"location": "eastus"})).is(200);
    site.arm("GET", &workspace.replace("Microsoft.BatchAI", "microsoft.batchai"), NO_BODY).is(200);
    // Missing and invalid parameters.
    site.arm("GET", &format!("{path}?x=1"), NO_BODY).refused(400, "MissingApiVersionParameter");
    let stranger = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups?api-version=2018-05-01";
    let refused = site.arm("GET", stranger, NO_BODY).refused(404, "SubscriptionNotFound");
    let message = "The subscription '00000000-0000-0000-0000-000000000000' could not be found.";
    assert_eq!(refused.json()["error"]["message"], message);
    site.arm("GET", &format!("{path}/providers/Microsoft.Nothing/things"), NO_BODY).is(404);
    site.arm("PUT", &group(&site, "bad%20name!"), json!({"location": "eastus"})).is(400);
    let token = format!("Bearer {}", site.token());
    let target = format!("{}?api-version={VERSION}", group(&site, "other"));
    let unreadable = site.request("PUT", &target, &[("Authorization", &token)], b"{\"location\":");
    unreadable.refused(400, "InvalidRequestBody");
    // Deleted with everything in it.
    let accepted = site.arm("DELETE", &path, NO_BODY).is(202);
    let location = accepted.required_header("location");
    let poll = location.strip_prefix(&site.url).expect("an absolute URL of this server");
    wait_for("the group to be deleted", || match site.arm("GET", poll, NO_BODY).status {
        202 => false,
        status => status == 200,
    });
    site.arm("GET", &path, NO_BODY).refused(404, "ResourceGroupNotFound");
}

#[test]
fn workspaces_and_experiments() {
    let site = Site::start();
    site.arm("PUT", &group(&site, "g"), json!({"location": "eastus"})).is(201);
    let path = format!("{}/providers/Microsoft.BatchAI/workspaces/w", group(&site, "g"));
    let missing = site.arm("GET", &path, NO_BODY).refused(404, "WorkspaceNotFound");
    assert_eq!(missing.json()["error"]["message"], "The specified workspace w is not found");
    let made = site.arm("PUT", &path, json!({"location": "eastus"})).is(200).json();
    assert_eq!((&made["id"], &made["type"]), (&json!(path), &json!("Microsoft.BatchAI/workspaces")));
    assert_eq!((&made["name"], &made["location"]), (&json!("w"), &json!("eastus")));
    assert_eq!(made["properties"]["provisioningState"], "succeeded");
    assert_timestamp(&made["properties"]["creationTime"]);
    assert_timestamp(&made["properties"]["provisioningStateTransitionTime"]);
    assert_eq!(site.arm("PUT", &path, json!({"location": "eastus"})).is(200).json()["properties"], made["properties"]);
    let tagged = site.arm("PATCH", &path, json!({"tags": {"team": "blue"}})).is(200).json();
    assert_eq!(tagged["tags"], json!({"team": "blue"}));
    for list in [
        path.trim_end_matches("/w").to_owned(),
        format!("{}/providers/Microsoft.BatchAI/workspaces", site.subscription()),
    ] {
        let list = site.arm("GET", &list, NO_BODY).is(200).json();
        assert_eq!((&list["value"][0]["id"], list.get("nextLink")), (&json!(path), None));
    }
    // An empty body with a JSON content type.
    let experiment = format!("{path}/experiments/e");
    let made = site.arm("PUT", &experiment, NO_BODY).is(200).json();
    assert_eq!((&made["id"], &made["type"]), (&json!(experiment), &json!("Microsoft.BatchAI/workspaces/experiments")));
    assert_timestamp(&made["properties"]["creationTime"]);
    assert_eq!(site.arm("PUT", &experiment, NO_BODY).is(200).json(), made);
    assert_eq!(site.arm("GET", &format!("{path}/experiments"), NO_BODY).is(200).json(), json!({"value": [made]}));
    site.arm("GET", &format!("{path}/experiments/x"), NO_BODY).refused(404, "ExperimentNotFound");
    for absent in [
        format!("{path}/experiments/x"),
        format!("{path}x"),
        format!("{path}/clusters/x"),
        format!("{experiment}/jobs/x"),
    ] {
        assert_eq!(site.arm("DELETE", &absent, NO_BODY).is(204).body.len(), 0, "{absent}");
    }
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    follow(&site, &site.arm("DELETE", &experiment, NO_BODY), &format!("{subscription}$g$w$e"));
    site.arm("GET", &experiment, NO_BODY).refused(404, "ExperimentNotFound");
    follow(&site, &site.arm("DELETE", &path, NO_BODY), &format!("{subscription}$g$w"));
}

#[test]
fn clusters() {
    let site = Site::start();
    site.arm("PUT", &group(&site, "g"), json!({"location": "eastus"})).is(201);
    let workspace = format!("{}/providers/Microsoft.BatchAI/workspaces/w", group(&site, "g"));
    site.arm("PUT", &workspace, json!({"location": "East US"})).is(200);
    let path = format!("{workspace}/clusters/c");
    let body = |target: i32| {
        json!({"properties": {
            "vmSize": "Standard_NC6", "vmPriority": "dedicated",
            "scaleSettings": {"manual": {"targetNodeCount": target}},
            "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "hush-hush"}
        }})
    };
    site.arm("GET", &path, NO_BODY).refused(404, "ClusterNotFound");
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    follow(&site, &site.arm("PUT", &path, body(0)), &format!("{subscription}$g$w$c"));
    let cluster = site.arm("GET", &path, NO_BODY).is(200).json();
    assert_eq!((&cluster["id"], &cluster["type"]), (&json!(path), &json!("Microsoft.BatchAI/workspaces/clusters")));
    let properties = &cluster["properties"];
    assert_eq!((&properties["vmSize"], &properties["vmPriority"]), (&json!("STANDARD_NC6"), &json!("dedicated")));
    assert_eq!(
        properties["scaleSettings"],
        json!({"manual": {"targetNodeCount": 0, "nodeDeallocationOption": "requeue"}})
    );
    assert_eq!(
        properties["virtualMachineConfiguration"]["imageReference"],
        json!({"publisher": "Canonical", "offer": "UbuntuServer", "sku": "16.04-LTS", "version": "latest"})
    );
    assert_eq!(properties["userAccountSettings"], json!({"adminUserName": "me"}));
    assert_eq!((&properties["provisioningState"], &properties["currentNodeCount"]), (&json!("succeeded"), &json!(0)));
    let zero = json!({"idleNodeCount": 0, "runningNodeCount": 0, "preparingNodeCount": 0, "unusableNodeCount": 0, "leavingNodeCount": 0});
    assert_eq!(properties["nodeStateCounts"], zero);
    assert_eq!(properties.get("errors"), None, "absent values are omitted");
    for name in ["creationTime", "provisioningStateTransitionTime", "allocationStateTransitionTime"] {
        assert_timestamp(&properties[name]);
    }
    assert_eq!(site.arm("PUT", &path, body(0)).is(200).json()["id"], json!(path), "the same again is no change");
    site.arm("PUT", &path, body(3)).refused(409, "ClusterAlreadyExists");
    let resize = json!({"properties": {"scaleSettings": {"manual": {"targetNodeCount": 1, "nodeDeallocationOption": "requeue"}}}});
    let resized = site.arm("PATCH", &path, resize).is(200);
    assert_eq!(resized.json()["properties"]["scaleSettings"]["manual"]["targetNodeCount"], 1);
    assert_eq!(resized.header("azure-asyncoperation"), None);
    wait_for("the node", || {
        site.arm("GET", &path, NO_BODY).is(200).json()["properties"]["nodeStateCounts"]["idleNodeCount"] == 1
    });
    let auto = json!({"properties": {"scaleSettings": {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1}}}});
    let scaled = site.arm("PATCH", &path, auto).is(200).json();
    let auto = json!({"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 1, "initialNodeCount": 0}});
    assert_eq!(scaled["properties"]["scaleSettings"], auto);
    assert_eq!(site.arm("GET", &format!("{workspace}/clusters"), NO_BODY).is(200).json()["value"][0]["name"], "c");
    let wrong = json!({"properties": {"vmSize": "Standard_Nothing", "scaleSettings": {"manual": {"targetNodeCount": 0}}, "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "x"}}});
    let refused = site.arm("PUT", &format!("{workspace}/clusters/d"), wrong).is(400).json();
    assert_eq!(refused["error"]["target"], "properties.vmSize");
    follow(&site, &site.arm("DELETE", &path, NO_BODY), &format!("{subscription}$g$w$c"));
    site.arm("GET", &path, NO_BODY).refused(404, "ClusterNotFound");
}

#[test]
fn file_servers() {
    let site = Site::start();
    site.arm("PUT", &group(&site, "g"), json!({"location": "eastus"})).is(201);
    let workspace = format!("{}/providers/Microsoft.BatchAI/workspaces/w", group(&site, "g"));
    site.arm("PUT", &workspace, json!({"location": "eastus"})).is(200);
    let path = format!("{workspace}/fileServers/Nfs");
    let body = |size: i32| {
        json!({"properties": {
            "vmSize": "Standard_DS2_v2",
            "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "hush-hush"}},
            "dataDisks": {"diskSizeInGB": size, "diskCount": 2, "storageAccountType": "Premium_LRS"}
        }})
    };
    site.arm("GET", &path, NO_BODY).refused(404, "FileServerNotFound");
    let refused = site.arm("PUT", &path, body(0)).is(400).json();
    assert_eq!(refused["error"]["target"], "properties.dataDisks.diskSizeInGB");
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    follow(&site, &site.arm("PUT", &path, body(10)), &format!("{subscription}$g$w$Nfs"));
    let made = site.arm("GET", &path.replace("fileServers/Nfs", "fileservers/nfs"), NO_BODY).is(200).json();
    assert_eq!(made["id"], json!(path.replace("fileServers", "fileservers")));
    assert_eq!(made["type"], "Microsoft.BatchAI/workspaces/fileservers");
    let properties = &made["properties"];
    assert_eq!(
        (&properties["provisioningState"], &properties["vmSize"]),
        (&json!("succeeded"), &json!("STANDARD_DS2_V2"))
    );
    let ssh = json!({"publicIPsToAllow": ["*"], "userAccountSettings": {"adminUserName": "me"}});
    assert_eq!(properties["sshConfiguration"], ssh);
    assert_eq!(properties["dataDisks"]["cachingType"], "none");
    assert_eq!(properties["mountSettings"]["mountPoint"], "/data");
    assert!(properties["subnet"]["id"].as_str().is_some_and(|id| id.ends_with("vnet/subnets/Subnet-1")), "{made}");
    assert_eq!(site.arm("PUT", &path, body(10)).is(200).json(), made, "the same again is no change");
    site.arm("PUT", &path, body(20)).refused(409, "FileServerAlreadyExists");
    assert_eq!(site.arm("GET", &format!("{workspace}/fileServers"), NO_BODY).is(200).json(), json!({"value": [made]}));
    follow(&site, &site.arm("DELETE", &path, NO_BODY), &format!("{subscription}$g$w$Nfs"));
    site.arm("DELETE", &path, NO_BODY).is(204);
    // A remaining one is deleted with its workspace.
    follow(&site, &site.arm("PUT", &path, body(10)), &format!("{subscription}$g$w$Nfs"));
    follow(&site, &site.arm("DELETE", &workspace, NO_BODY), &format!("{subscription}$g$w"));
    site.arm("PUT", &workspace, json!({"location": "eastus"})).is(200);
    site.arm("GET", &path, NO_BODY).refused(404, "FileServerNotFound");
}

#[test]
fn storage_accounts() {
    let site = Site::start();
    site.arm("PUT", &group(&site, "g"), json!({"location": "eastus"})).is(201);
    let accounts = format!("{}/providers/Microsoft.Storage/storageAccounts", group(&site, "g"));
    let (path, version) = (format!("{accounts}/myaccount"), "?api-version=2018-02-01");
    let body = json!({"sku": {"name": "Standard_LRS"}, "kind": "Storage", "location": "eastus", "properties": {"supportsHttpsTrafficOnly": false}});
    site.arm("GET", &format!("{path}{version}"), NO_BODY).refused(404, "ResourceNotFound");
    let made = site.arm("PUT", &format!("{path}{version}"), body.clone()).is(200).json();
    assert_eq!((&made["id"], &made["type"]), (&json!(path), &json!("Microsoft.Storage/storageAccounts")));
    assert_eq!(
        (&made["sku"], &made["kind"]),
        (&json!({"name": "Standard_LRS", "tier": "Standard"}), &json!("Storage"))
    );
    let properties = &made["properties"];
    assert_eq!(
        (&properties["provisioningState"], &properties["statusOfPrimary"]),
        (&json!("Succeeded"), &json!("available"))
    );
    assert_eq!(properties["primaryEndpoints"]["file"], format!("{}/myaccount/", site.url));
    assert_timestamp(&properties["creationTime"]);
    let keys = site.arm("POST", &format!("{path}/listKeys{version}"), NO_BODY).is(200).json();
    let names: Vec<_> = keys["keys"].as_array().expect("a list").iter().map(|key| key["keyName"].clone()).collect();
    assert_eq!(names, ["key1", "key2"]);
    for key in keys["keys"].as_array().expect("a list") {
        assert_eq!(STANDARD.decode(key["value"].as_str().expect("text")).expect("base64").len(), 64);
        assert!(key["permissions"].as_str().is_some_and(|text| text.eq_ignore_ascii_case("full")));
    }
    assert_ne!(keys["keys"][0]["value"], keys["keys"][1]["value"]);
    site.arm("PUT", &format!("{path}{version}"), body.clone()).is(200);
    assert_eq!(site.arm("POST", &format!("{path}/listKeys{version}"), NO_BODY).is(200).json(), keys, "keys stay");
    for list in [accounts.clone(), format!("{}/providers/Microsoft.Storage/storageAccounts", site.subscription())] {
        assert_eq!(site.arm("GET", &format!("{list}{version}"), NO_BODY).is(200).json()["value"][0]["id"], json!(path));
    }
    let check = format!("{}/providers/Microsoft.Storage/checkNameAvailability{version}", site.subscription());
    let ask = |name: &str| {
        site.arm("POST", &check, json!({"name": name, "type": "Microsoft.Storage/storageAccounts"})).is(200).json()
    };
    assert_eq!(ask("free1")["nameAvailable"], true);
    let taken = ask("myaccount");
    assert_eq!((&taken["nameAvailable"], &taken["reason"]), (&json!(false), &json!("AlreadyExists")));
    site.arm("PUT", &format!("{accounts}/Not_Valid{version}"), body).is(400);
    site.arm("DELETE", &format!("{path}{version}"), NO_BODY).is(200);
    site.arm("DELETE", &format!("{accounts}/other{version}"), NO_BODY).is(204);
}

#[test]
fn jobs() {
    let site = Site::start();
    site.prepare(0);
    let experiment = format!("{}/experiments/cifar", site.workspace());
    let path = format!("{experiment}/jobs/j");
    let body = |nodes: i32| {
        json!({"properties": {
            "cluster": {"id": format!("{}/clusters/nc6cluster", site.workspace())},
            "nodeCount": nodes,
            "horovodSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/train.py"},
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar",
            "mountVolumes": {"azureFileShares": [{
                "accountName": "mystorageaccount", "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
                "credentials": {"accountKey": site.account_keys()[0]}, "relativeMountPath": "myshare"
            }]},
            "secrets": [{"name": "TOKEN", "value": "hush"}],
            "containerSettings": {"imageSourceRegistry": {"image": "some/image", "credentials": {"username": "u", "password": "p"}}}
        }})
    };
    let missing = site.arm("GET", &path, NO_BODY).refused(404, "JobNotFound");
    assert_eq!(missing.json()["error"]["message"], "The specified job j is not found");
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    let names = format!("{subscription}${GROUP}$batchaidev$cifar$j");
    let body = body(2);
    follow(&site, &site.arm("PUT", &path, body.clone()), &names);
    let job = site.arm("GET", &path, NO_BODY).is(200).json();
    assert_eq!((&job["id"], &job["name"]), (&json!(path), &json!("j")));
    assert_eq!(job["type"], "Microsoft.BatchAI/workspaces/experiments/jobs");
    let properties = &job["properties"];
    for (name, expected) in [
        ("executionState", json!("queued")),
        ("provisioningState", json!("succeeded")),
        ("schedulingPriority", json!("normal")),
        ("toolType", json!("horovod")),
        ("experimentName", json!("cifar")),
        ("constraints", json!({"maxWallClockTime": "P7D"})),
        ("secrets", json!([{"name": "TOKEN"}])),
        ("nodeCount", json!(2)),
    ] {
        assert_eq!(properties[name], expected, "{name}");
    }
    assert_eq!(properties["horovodSettings"]["processCount"], 2);
    assert_eq!(properties["containerSettings"]["imageSourceRegistry"]["credentials"], json!({"username": "u"}));
    let share = &properties["mountVolumes"]["azureFileShares"][0];
    assert_eq!(
        (&share["credentials"], &share["fileMode"], &share["directoryMode"]),
        (&json!({}), &json!("0777"), &json!("0777"))
    );
    let segment = properties["jobOutputDirectoryPathSegment"].as_str().expect("text");
    assert!(
        segment.starts_with(&format!("{subscription}/{GROUP}/workspaces/batchaidev/experiments/cifar/jobs/j/")),
        "{segment}"
    );
    assert_eq!(properties["executionStateTransitionTime"], properties["creationTime"]);
    assert_eq!(properties.get("executionInfo"), None);
    assert_timestamp(&properties["creationTime"]);
    // Repeated, and with differences.
    assert_eq!(site.arm("PUT", &path, body.clone()).is(200).json(), job);
    let mut other = body.clone();
    other["properties"]["nodeCount"] = json!(1);
    site.arm("PUT", &path, other).refused(409, "JobAlreadyExists");
    let mut homeless = body.clone();
    homeless["properties"]["cluster"]["id"] = json!(format!("{}/clusters/none", site.workspace()));
    site.arm("PUT", &format!("{experiment}/jobs/k"), homeless).refused(404, "ClusterNotFound");
    assert_eq!(site.arm("GET", &format!("{experiment}/jobs"), NO_BODY).is(200).json()["value"], json!([job]));
    // Files of a job that has not started.
    let list = format!("{path}/listOutputFiles?api-version={VERSION}");
    let files = site.arm(
        "POST",
        &format!("{list}&outputdirectoryid=stdouterr&directory=.&linkexpiryinminutes=60&maxresults=1000"),
        NO_BODY,
    );
    assert_eq!(files.is(200).json(), json!({"value": []}));
    site.arm("POST", &list, NO_BODY).is(400);
    let unknown = site.arm("POST", &format!("{list}&outputdirectoryid=models"), NO_BODY).is(400).json();
    assert_eq!(unknown["error"]["message"], "The specified outputDirectoryId models is not present on a mount root");
    for query in ["linkexpiryinminutes=4", "linkexpiryinminutes=601", "maxresults=0", "maxresults=x"] {
        site.arm("POST", &format!("{list}&outputdirectoryid=stdouterr&{query}"), NO_BODY).is(400);
    }
    // Terminated while queued, then once more, then deleted.
    let terminate = format!("{path}/terminate");
    follow(&site, &site.arm("POST", &terminate, NO_BODY), &names);
    let ended = site.arm("GET", &path, NO_BODY).is(200).json();
    let info = &ended["properties"]["executionInfo"];
    assert_eq!(
        (&ended["properties"]["executionState"], &info["errors"][0]["code"]),
        (&json!("failed"), &json!("JobTerminated"))
    );
    assert_eq!(info["errors"][0]["message"], "The specified job has been terminated by the user");
    assert_eq!(info.get("exitCode"), None);
    assert_timestamp(&info["startTime"]);
    assert_timestamp(&info["endTime"]);
    let again = site.arm("POST", &terminate, NO_BODY).is(200);
    assert!(again.body.is_empty() && again.header("azure-asyncoperation").is_none(), "{again}");
    assert_eq!(site.arm("GET", &path, NO_BODY).is(200).json(), ended, "nothing changes");
    follow(&site, &site.arm("DELETE", &path, NO_BODY), &names);
    site.arm("GET", &path, NO_BODY).refused(404, "JobNotFound");
    site.arm("POST", &terminate, NO_BODY).refused(404, "JobNotFound");
}

#[test]
fn output_files_and_their_links() {
    let site = Site::start();
    site.prepare(1);
    site.submit_custom("j", 1, "echo first; mkdir $AZ_BATCHAI_STDOUTERR_DIR/sub");
    assert_eq!(site.wait_for_end("j")["executionState"], "succeeded");
    let list = format!(
        "{}/experiments/cifar/jobs/j/listOutputFiles?api-version={VERSION}&outputdirectoryid=stdouterr",
        site.workspace()
    );
    let files = site.arm("POST", &list, NO_BODY).is(200).json();
    let names: Vec<_> =
        files["value"].as_array().expect("a list").iter().map(|file| file["name"].as_str().expect("text")).collect();
    assert!(names.is_sorted() && names.contains(&"stdout.txt") && names.contains(&"sub"), "{names:?}");
    let find = |name: &str| {
        files["value"].as_array().expect("a list").iter().find(|file| file["name"] == name).expect("listed")
    };
    assert_eq!(find("sub"), &json!({"name": "sub", "fileType": "directory"}));
    let stdout = find("stdout.txt");
    assert_eq!((&stdout["fileType"], &stdout["properties"]["contentLength"]), (&json!("file"), &json!(6)));
    assert!(stdout["properties"]["lastModified"].as_str().is_some_and(|time| !time.contains('.')), "whole seconds");
    let url = stdout["downloadUrl"].as_str().expect("text");
    let target = url.strip_prefix(&site.url).expect("an absolute URL of this server");
    let order: Vec<_> = url.split(['?', '&']).skip(1).map(|part| part.split('=').next().expect("a name")).collect();
    assert_eq!(order, ["sv", "sr", "sig", "se", "sp", "by"]);
    let get = |range: &str| site.request("GET", target, &[("Range", range)], b"");
    assert_eq!(site.request("GET", target, &[], b"").is(200).text(), "first\n");
    let part = get("bytes=2-").is(206);
    assert_eq!((part.text().as_str(), part.required_header("content-range").as_str()), ("rst\n", "bytes 2-5/6"));
    let end = get("bytes=6-").is(416);
    assert_eq!(end.required_header("content-range"), "bytes */6");
}
