//! Audit log: caller, address and result of changes and refusals, visible to owners only.

use serde_json::{Value, json};

use super::harness::{GROUP, Site, wait_for};

fn entries(site: &Site, line: &str) -> Vec<Value> {
    site.corro(&format!("admin history {line}")).json().as_array().expect("a list").clone()
}

#[test]
fn changes_and_refusals_are_recorded_with_actor_and_address() {
    let site = Site::start();
    let administrator = site.profile()["clientId"].clone();
    site.prepare(0);
    let created = entries(&site, &format!("--kind group --resource {GROUP}"));
    assert_eq!(created.last().expect("a line")["what"], "group.created");
    assert_eq!(created.last().expect("a line")["actor"], administrator);
    assert_eq!(created.last().expect("a line")["detail"]["from"], "127.0.0.1");

    let made = site.corro("ad sp create-for-rbac -n reader --role Reader").json();
    let (id, password) = (made["appId"].as_str().expect("text"), made["password"].as_str().expect("text"));
    let form = format!("grant_type=client_credentials&client_id={id}&resource=x&client_secret={password}");
    let token = site.request("POST", "/adfs/oauth2/token", &[], form.as_bytes()).is(200).json();
    let bearer = format!("Bearer {}", token["access_token"].as_str().expect("text"));
    let group = format!("{}/resourceGroups/{GROUP}?api-version=2018-05-01", site.subscription());
    site.request("DELETE", &group, &[("Authorization", &bearer)], b"").refused(403, "AuthorizationFailed");
    site.request("DELETE", &group, &[], b"").refused(401, "AuthenticationFailed");
    site.arm("PUT", &group, json!({"location": "westus"})).refused(409, "InvalidResourceGroupLocation");
    site.account_keys();
    let expected = [
        ("request.refused", id, 403, "AuthorizationFailed"),
        ("request.refused", "anonymous", 401, "AuthenticationFailed"),
        ("request.refused", administrator.as_str().expect("text"), 409, "InvalidResourceGroupLocation"),
        ("request.granted", administrator.as_str().expect("text"), 200, ""),
    ];
    wait_for("the refusals to be written", || {
        let lines = entries(&site, &format!("--kind request --resource {GROUP}"));
        expected.iter().all(|(what, actor, status, code)| {
            lines.iter().any(|line| {
                let detail = &line["detail"];
                line["what"] == *what
                    && line["actor"] == *actor
                    && detail["status"] == *status
                    && detail["code"] == *code
                    && detail["from"] == "127.0.0.1"
            })
        })
    });
    // Only an owner can read it, and it holds no password.
    let history = format!("{}/providers/Corro/history?api-version=2018-05-01", site.subscription());
    site.request("GET", &history, &[("Authorization", &bearer)], b"").refused(403, "AuthorizationFailed");
    let everything = site.arm("GET", &history, Value::Null).is(200).text();
    assert!(everything.contains("principal.created") && !everything.contains(password), "{everything}");
}

#[test]
fn failed_requests_do_not_displace_history() {
    let site = Site::start();
    site.corro("group create -n precious -l eastus").ok();
    let group = format!("{}/resourceGroups/precious?api-version=2018-05-01", site.subscription());
    for _ in 0..700 {
        site.request("DELETE", &group, &[], b"").is(401);
    }
    wait_for("some refusals to be written", || !entries(&site, "--kind request").is_empty());
    let noted = entries(&site, "--kind request --resource precious").len();
    assert!(noted < 650, "{noted} lines for 700 requests");
    assert!(entries(&site, "--kind group").iter().any(|line| line["what"] == "group.created"));
}

#[test]
fn file_operations_are_recorded_also_by_a_server_that_stops() {
    let mut site = Site::start();
    site.prepare(0);
    for name in ["one", "two"] {
        site.write(name, [7; 1000]);
        let place = "-s myshare --account-name mystorageaccount";
        site.corro(&format!("storage file upload {place} --source {name}")).ok();
    }
    site.interrupt_server();
    site.up();
    let lines = entries(&site, &format!("--kind share --resource {GROUP}/mystorageaccount/myshare"));
    let entry =
        |what: &str| lines.iter().find(|line| line["what"] == what).unwrap_or_else(|| panic!("{what}: {lines:?}"));
    assert_eq!(entry("share.created")["actor"], "key:mystorageaccount/key1");
    let written = &entry("share.written")["detail"];
    assert_eq!((&written["filesCreated"], &written["from"]), (&json!(2), &json!("127.0.0.1")), "{written}");
}
