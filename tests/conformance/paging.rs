//! Paging of every list: following `nextLink` yields each item exactly once.

use serde_json::{Value, json};

use super::fixture::{NO_BODY, cluster_body, job_body, wait_for_operation, workspace};
use crate::harness::Site;

/// The names of all pages of `count` each; every page but the last is full.
#[track_caller]
fn pages(site: &Site, path: &str, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut target = format!("{path}?api-version=2018-05-01&maxresults={count}");
    loop {
        let page = site.arm("GET", &target, NO_BODY).is(200).json();
        let items = page["value"].as_array().expect("a list");
        names.extend(items.iter().map(|item| item["name"].as_str().expect("text").to_owned()));
        let Some(link) = page.get("nextLink").and_then(Value::as_str) else {
            assert!(items.len() <= count);
            return names;
        };
        assert_eq!(items.len(), count, "a page that is followed by another is full");
        // Followed as it is, without adding to it.
        target = link.strip_prefix(&site.url).expect("an absolute URL of this server").to_owned();
    }
}

#[test]
fn every_list_comes_in_pages() {
    let site = Site::start();
    let workspace = workspace(&site);
    let cluster = format!("{workspace}/clusters/c0");
    for i in 0..5 {
        let body = cluster_body(0);
        wait_for_operation(&site, &site.arm("PUT", &format!("{workspace}/clusters/c{i}"), body));
        site.arm("PUT", &format!("{workspace}/experiments/E{i}"), NO_BODY).is(200);
        site.arm("PUT", &format!("{workspace}{i}"), json!({"location": "eastus"})).is(200);
        wait_for_operation(
            &site,
            &site.arm("PUT", &format!("{workspace}/experiments/e/jobs/j{i}"), job_body(&cluster, "true")),
        );
        let server = json!({"properties": {
            "vmSize": "Standard_D2_v2", "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
            "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": "hush-hush"}}
        }});
        wait_for_operation(&site, &site.arm("PUT", &format!("{workspace}/fileServers/f{i}"), server));
    }
    let named = |letter: &str| (0..5).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
    for count in [1, 2, 5, 1000] {
        assert_eq!(pages(&site, &format!("{workspace}/clusters"), count), named("c"));
        assert_eq!(pages(&site, &format!("{workspace}/fileServers"), count), named("f"));
        assert_eq!(pages(&site, &format!("{workspace}/experiments/e/jobs"), count), named("j"));
        let mut experiments = vec!["e".to_owned()];
        experiments.extend(named("E"));
        assert_eq!(pages(&site, &format!("{workspace}/experiments"), count), experiments);
        let mut workspaces = vec!["w".to_owned()];
        workspaces.extend(named("w"));
        let of_group = workspace.trim_end_matches("/w").to_owned();
        assert_eq!(pages(&site, &of_group, count), workspaces);
        let of_all = format!("{}/providers/Microsoft.BatchAI/workspaces", site.subscription());
        assert_eq!(pages(&site, &of_all, count), workspaces);
    }
    let list = format!("{workspace}/clusters?api-version=2018-05-01&maxresults=");
    for wrong in ["0", "1001", "-1", "many"] {
        let response = site.arm("GET", &format!("{list}{wrong}"), NO_BODY).refused(400, "InvalidQueryParameterValue");
        assert_eq!(response.json()["error"]["target"], "maxresults");
    }
    let files = format!("{workspace}/experiments/e/jobs/j0/listOutputFiles?api-version=2018-05-01");
    site.arm("POST", &files, NO_BODY).refused(400, "MissingRequiredQueryParameter");
    for wrong in ["linkexpiryinminutes=4", "linkexpiryinminutes=601", "maxresults=0"] {
        let target = format!("{files}&outputdirectoryid=stdouterr&{wrong}");
        site.arm("POST", &target, NO_BODY).refused(400, "InvalidQueryParameterValue");
    }
    // A node's own disk cannot be listed.
    let response = site.arm("POST", &format!("{files}&outputdirectoryid=stdouterr"), NO_BODY).is(400).json();
    let message = "The specified outputDirectoryId stdouterr is not present on a mount root";
    assert_eq!(response["error"]["message"], message);
}
