//! Path traversal: no spelling of a path, and no link a job makes, leads out of its share. SAS links open only their own
//! resource.

use std::time::{SystemTime, UNIX_EPOCH};

use corro_model::storage::sas::read_link_query;
use serde_json::{Value, json};

use super::harness::wire::VERSION;
use super::harness::{IN_WORKSPACE, Site};

/// Content outside of the share that must never be served.
const OUTSIDE: &str = "the outside was read";

/// A site with a share; secrets lie in the directories above it.
fn site() -> Site {
    let site = Site::start();
    site.prepare(1);
    for above in site.share().ancestors().skip(1).take(3) {
        std::fs::write(above.join("secret"), OUTSIDE).expect("written");
    }
    std::fs::write(site.share().join("inside"), "inside").expect("written");
    site
}

#[test]
fn spellings_do_not_climb() {
    let site = site();
    let key = site.raw_key();
    assert_eq!(site.signed_request(&key, "GET", "/myshare/inside", &[], b"").is(200).text(), "inside");
    let before = around(&site);
    const CREATE: &[(&str, &str)] = &[("x-ms-type", "file"), ("x-ms-content-length", "1")];
    for path in [
        "../secret",
        "../../secret",
        "..%2fsecret",
        "%2e%2e/secret",
        "%2E%2E%2Fsecret",
        ".%2e/secret",
        "cifar/../../secret",
        "cifar%2f..%2f..%2fsecret",
        "%252e%252e/secret",
        "%252e%252e%252fsecret",
        "..%252fsecret",
        "..%5csecret",
        "..\\secret",
        "%5c..%5csecret",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "//etc/passwd",
        "%00",
        "inside%00",
        "inside%00/../secret",
        "..%00/secret",
        "..%c0%afsecret",
        "%c0%ae%c0%ae/secret",
        "%uff0e%uff0e/secret",
        "..;/secret",
        "....//secret",
        ".",
        "..",
        "%2e%2e",
    ] {
        for (method, query, headers) in [
            ("GET", "", &[][..]),
            ("HEAD", "", &[]),
            ("PUT", "", CREATE),
            ("DELETE", "", &[]),
            ("GET", "?restype=directory&comp=list", &[]),
            ("DELETE", "?restype=directory", &[]),
        ] {
            let response = site.signed_request(&key, method, &format!("/myshare/{path}{query}"), headers, b"");
            let spoken = format!("{method} /myshare/{path}{query}: {response}");
            // Some are odd but valid names inside the share, which are created and removed again.
            assert!(matches!(response.status, 200..300 | 400 | 404 | 405 | 409), "{spoken}");
            assert!(!response.text().contains(OUTSIDE) && !response.text().contains("root:"), "{spoken}");
        }
    }
    for share in ["..", "%2e%2e", "myshare%2f..", "..%2f..", "%2e%2e%5c", "myshare%00"] {
        let response = site.signed_request(&key, "GET", &format!("/{share}?restype=directory&comp=list"), &[], b"");
        assert!((400..500).contains(&response.status), "{share}: {response}");
    }
    assert_eq!(around(&site), before, "something outside the share was made, changed or removed");
    assert_eq!(std::fs::read_to_string(site.share().join("inside")).expect("still there"), "inside");
}

/// Names and sizes in the directories above the share, except of files the server itself writes.
fn around(site: &Site) -> Vec<(String, u64)> {
    let above =
        site.share().ancestors().skip(1).take(3).map(|dir| std::fs::read_dir(dir).expect("there")).collect::<Vec<_>>();
    let entries = above
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with("corro.db"));
    let mut found: Vec<_> = entries
        .map(|entry| {
            (
                entry.path().display().to_string(),
                entry.metadata().map_or(0, |data| if data.is_file() { data.len() } else { 0 }),
            )
        })
        .collect();
    found.sort();
    found
}

#[test]
fn links_that_a_job_makes_lead_nowhere() {
    let site = site();
    let above = site.data().join("shares/secret");
    let line = format!(
        "for d in $AZ_BATCHAI_JOB_MOUNT_ROOT/myshare $AZ_BATCHAI_STDOUTERR_DIR; do \
         ln -s {} $d/file; ln -s {} $d/up; ln -s ../secret $d/relative; ln -s /proc/self/root $d/magic; done",
        above.display(),
        above.parent().expect("a parent").display()
    );
    site.submit_custom("job1", 1, &line);
    assert_eq!(site.wait_for_end("job1")["executionState"], "succeeded");
    assert!(site.share().join("file").symlink_metadata().is_ok_and(|made| made.is_symlink()), "the job made its links");
    let key = site.raw_key();
    let segment = site.job("job1")["jobOutputDirectoryPathSegment"].as_str().expect("text").to_owned();
    for dir in ["myshare".to_owned(), format!("myshare/cifar/{segment}/stdouterr")] {
        for name in ["up/secret", "magic/etc/passwd"] {
            let response = site.signed_request(&key, "GET", &format!("/{dir}/{name}"), &[], b"");
            assert_eq!(response.status, 404, "{dir}/{name}: {response}");
        }
        // A link that leads out reads as its own text.
        for (name, text) in [("file", above.display().to_string()), ("relative", "../secret".to_owned())] {
            let response = site.signed_request(&key, "GET", &format!("/{dir}/{name}"), &[], b"");
            assert_eq!((response.status, response.text()), (200, text), "{dir}/{name}: {response}");
        }
    }
    // Nor are they offered for download.
    for directory in ["", "&directory=up", "&directory=magic", "&directory=magic%2Fetc"] {
        let files = list(&site, "stdouterr", directory).is(200).json();
        let names: Vec<_> = files["value"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|file| file["name"].as_str().expect("text"))
            .collect();
        let logs = ["execution.log", "stderr.txt", "stdout.txt"];
        assert!(
            names.iter().all(|name| logs.iter().any(|log| name.starts_with(&log[..6])) && directory.is_empty()),
            "{directory}: {names:?}"
        );
    }
    // Deleting the share deletes links, not their targets.
    site.corro("storage share delete -n myshare --account-name mystorageaccount").ok();
    assert_eq!(std::fs::read_to_string(above).expect("still there"), OUTSIDE);
}

fn list(site: &Site, id: &str, more: &str) -> super::harness::http::Response {
    let job = format!("{}/experiments/cifar/jobs/job1", site.workspace());
    site.arm("POST", &format!("{job}/listOutputFiles?api-version={VERSION}&outputdirectoryid={id}{more}"), Value::Null)
}

#[test]
fn listings_of_output_files_do_not_climb() {
    let site = site();
    let output = json!({"outputDirectories": [{"id": "UP", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare", "pathSuffix": "../../../../../../../.."}]});
    let job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": "true"}}), output);
    site.submit("job1", &job);
    let stays_inside = |response: &super::harness::http::Response, what: &str| match response.status {
        200 => assert_eq!(response.json(), json!({"value": []}), "{what}"),
        status => assert!((400..500).contains(&status), "{what}: {response}"),
    };
    for directory in [
        "..",
        "../..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e",
        "..%2f..%2f..",
        "%252e%252e",
        "..%252f..",
        "..%5c..",
        "..\\..",
        "%5c",
        "%2fetc",
        "/etc",
        "%00",
        "a%00b",
        "./../..",
        "stdouterr/../..",
        "%c0%ae%c0%ae",
        "..%00",
        "~",
        "$HOME",
        "../../../../../../../../../..",
    ] {
        stays_inside(&list(&site, "stdouterr", &format!("&directory={directory}")), directory);
    }
    for id in ["..", "%2e%2e", "stdouterr%2f..", "/", "%00", "UP"] {
        stays_inside(&list(&site, id, ""), id);
    }
}

#[test]
fn mounts_do_not_climb() {
    let site = site();
    let key = site.account_keys().remove(0);
    for relative in
        ["..", "../x", "a/../../x", "a/..", "/x", "//x", "", ".", "./x", "a/./b", "a\u{0}b", "../../../../tmp/x"]
    {
        let body = json!({"properties": {
            "cluster": {"id": format!("{}/clusters/nc6cluster", site.workspace())}, "nodeCount": 1,
            "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP", "customToolkitSettings": {"commandLine": "true"},
            "mountVolumes": {"azureFileShares": [{
                "accountName": "mystorageaccount", "azureFileUrl": "https://mystorageaccount.file.core.windows.net/myshare",
                "credentials": {"accountKey": key}, "relativeMountPath": relative
            }]}
        }});
        let refused = site.arm("PUT", &format!("{}/experiments/cifar/jobs/climbs", site.workspace()), body).is(400);
        assert_eq!(
            refused.json()["error"]["target"],
            "properties.mountVolumes.azureFileShares[0].relativeMountPath",
            "{relative:?}"
        );
    }
    // Another account's share needs that account's key.
    site.corro("storage account create -g batchai.horovod -n otheraccount -l eastus --sku Standard_LRS").ok();
    site.corro("storage share create -n othershare --account-name otheraccount").ok();
    let mut job = site.job_json(1, json!({"customToolkitSettings": {"commandLine": "true"}}), json!({}));
    let share = &mut job["properties"]["mountVolumes"]["azureFileShares"][0];
    share["azureFileUrl"] = json!("https://otheraccount.file.core.windows.net/othershare");
    share["accountName"] = json!("otheraccount");
    share["credentials"] = json!({"accountKey": key});
    site.submit("stranger", &job).ok();
    let ended = site.wait_for_end("stranger");
    assert_eq!(ended["executionInfo"]["errors"][0]["code"], "AZFMountError", "{ended:#}");
    site.corro(&format!("batchai job show {IN_WORKSPACE} -e cifar -n climbs")).fails(3, &[]);
}

#[test]
fn a_link_opens_what_it_was_made_for_and_only_until_it_expires() {
    let site = site();
    for name in ["one", "two"] {
        std::fs::write(site.share().join("cifar").join(name), name).expect("written");
    }
    let key = site.raw_key();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64;
    let link =
        |path: &str, expires: i64| read_link_query(&key, "mystorageaccount", "myshare", path, expires).expect("a time");
    let good = link("cifar/one", now + 600);
    let ask = |method: &str, path: &str, query: &str| {
        site.request(method, &format!("/mystorageaccount/myshare/{path}?{query}"), &[], b"")
    };
    assert_eq!(ask("GET", "cifar/one", &good).is(200).text(), "one");
    for (method, path, query) in [
        ("GET", "cifar/two", good.clone()),
        ("GET", "cifar/%6fne/../two", good.clone()),
        ("GET", "inside", good.clone()),
        ("PUT", "cifar/one", good.clone()),
        ("DELETE", "cifar/one", good.clone()),
        ("PUT", "cifar/one", format!("comp=range&{good}")),
        ("GET", "cifar", format!("restype=directory&comp=list&{good}")),
        ("GET", "cifar/one", link("cifar/one", now - 1)),
        ("GET", "cifar/one", good.replace("sp=rl", "sp=rwdl")),
        ("GET", "cifar/one", good.replace("sr=f", "sr=s")),
        ("GET", "cifar/one", good.replacen("se=2", "se=3", 1)),
        ("GET", "cifar/one", format!("{good}&se=2999-01-01")),
        (
            "GET",
            "cifar/one",
            read_link_query(&[7; 64], "mystorageaccount", "myshare", "cifar/one", now + 600).expect("a time"),
        ),
        ("GET", "cifar/one", String::new()),
    ] {
        let response = ask(method, path, &query);
        assert!(matches!(response.status, 400 | 401 | 403), "{method} {path}?{query}: {response}");
        assert!(!response.text().contains("two"), "{response}");
    }
    let other = site.request("GET", &format!("/otheraccount/myshare/cifar/one?{good}"), &[], b"");
    assert_eq!(other.status, 403, "{other}");
    assert_eq!(std::fs::read_to_string(site.share().join("cifar/one")).expect("still there"), "one");
}
