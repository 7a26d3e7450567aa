//! Usages and quotas: computed from the state, and enforced.

use serde_json::{Value, json};

use super::fixture::{NO_BODY, cluster_body, wait_for_operation, workspace};
use crate::harness::Site;

fn usage(site: &Site, location: &str, name: &str) -> (i64, i64) {
    let path = format!("{}/providers/Microsoft.BatchAI/locations/{location}/usages", site.subscription());
    let list = site.arm("GET", &path, NO_BODY).is(200).json();
    let list = list["value"].as_array().expect("a list").clone();
    let found = list.iter().find(|usage| usage["name"]["value"] == name).unwrap_or_else(|| panic!("no {name}"));
    let number = |field: &str| found[field].as_i64().expect("a number");
    (number("currentValue"), number("limit"))
}

#[test]
fn usages_are_counted_and_limits_hold() {
    let site = Site::start_with(&["--no-containers", "--max-clusters", "2", "--max-cores", "14"]);
    let workspace = workspace(&site);
    assert_eq!(usage(&site, "eastus", "Clusters"), (0, 2));
    let put = |name: &str, size: &str, priority: &str, nodes: i32| {
        let mut body = cluster_body(nodes);
        body["properties"]["vmSize"] = json!(size);
        body["properties"]["vmPriority"] = json!(priority);
        site.arm("PUT", &format!("{workspace}/clusters/{name}"), body)
    };
    // Three nodes of six cores are more than 14.
    let refused = put("a", "Standard_NC6", "dedicated", 3).refused(409, "CoreQuotaReached").json();
    assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("Maximum allowed: 14")), "{refused}");
    wait_for_operation(&site, &put("a", "Standard_NC6", "dedicated", 2));
    wait_for_operation(&site, &put("b", "Standard_D2_v2", "lowpriority", 1));
    let nodes = || {
        let list = site.arm("GET", &format!("{workspace}/clusters"), NO_BODY).is(200).json();
        let clusters = list["value"].as_array().expect("a list").iter();
        clusters.map(|c| c["properties"]["currentNodeCount"].as_i64().expect("a number")).sum::<i64>()
    };
    crate::harness::wait_for("three nodes", || nodes() == 3);
    for (name, used) in [
        ("Clusters", 2),
        ("Total Cluster Dedicated Regional vCPUs", 12),
        ("Standard NC Family Cluster Dedicated vCPUs", 12),
        ("Standard Dv2 Family Cluster Dedicated vCPUs", 0),
        ("Total Cluster LowPriority Regional vCPUs", 2),
        ("Standard Dv2 Family Cluster LowPriority vCPUs", 2),
    ] {
        assert_eq!(usage(&site, "East%20US", name).0, used, "{name}");
        assert_eq!(usage(&site, "westus", name).0, 0, "{name} elsewhere");
    }
    let message = "Operation results in exceeding quota limits of Microsoft.BatchAI/clusters. Maximum allowed: 2, \
                   Current in use: 2. Please contact support to increase the quota for resource type Microsoft.BatchAI/clusters";
    let refused = put("c", "Standard_D1", "dedicated", 0).refused(409, "ClusterQuotaReached").json();
    assert_eq!(refused["error"]["message"], message);
    // Existing sizes may be repeated and may shrink, but not grow beyond the quota.
    put("a", "Standard_NC6", "dedicated", 2).is(200);
    let scale =
        |nodes: i32| -> Value { json!({"properties": {"scaleSettings": {"manual": {"targetNodeCount": nodes}}}}) };
    let path = format!("{workspace}/clusters/a");
    site.arm("PATCH", &path, scale(3)).refused(409, "CoreQuotaReached");
    site.arm("PATCH", &path, scale(0)).is(200);
    // Another region has its own quota.
    let west = format!("{workspace}2");
    site.arm("PUT", &west, json!({"location": "westus"})).is(200);
    wait_for_operation(&site, &site.arm("PUT", &format!("{west}/clusters/c"), cluster_body(0)));
}
