//! Role assignments: only at existing scopes, and removed with them.

use corro_model::GroupKey;
use corro_model::rbac::Scope;
use serde_json::{Value, json};

use super::TestServer;
use crate::reconcile::garbage_collection;
use crate::reconcile::steps::apply;

impl TestServer {
    /// Runs garbage collection until nothing is left to remove.
    async fn collect_garbage(&self) {
        loop {
            let now = self.app.now();
            let steps = garbage_collection::decide(&self.app.snapshot(), &Default::default(), &self.app.timeline());
            if steps.is_empty() {
                return;
            }
            let swept = self.app.store.commit(move |txn| {
                apply(txn, steps, now);
                Ok::<_, corro_model::ApiError>(())
            });
            swept.await.expect("it is swept");
        }
    }
}

#[tokio::test]
async fn roles_are_removed_with_their_scope() {
    let test_server = TestServer::new().await;
    for (group, workspace) in [("g", "w"), ("kept", "w")] {
        test_server.request("PUT", &test_server.group(group), json!({"location": "eastus"})).await.is(201);
        test_server
            .request("PUT", &test_server.workspace(group, workspace), json!({"location": "eastus"}))
            .await
            .is(200);
    }
    let (group, workspace, kept) =
        (test_server.group("g"), test_server.workspace("g", "w"), test_server.workspace("kept", "w"));
    let of_group = test_server.principal("of-group", "Contributor", &[&group]).await;
    let of_workspace = test_server.principal("of-workspace", "Contributor", &[&workspace, &kept]).await;
    test_server.request_as(&of_workspace, "GET", &workspace, Value::Null).await.is(200);
    // A caller who deletes the last scope it has rights to can still poll the deletion.
    let begun = test_server.request_as(&of_group, "DELETE", &group, Value::Null).await.is(202);
    test_server.collect_garbage().await;
    let location = begun.headers["location"].to_str().expect("text").replace("http://localhost", "");
    let poll = location.split('?').next().expect("a path").to_owned();
    test_server.request_as(&of_group, "GET", &poll, Value::Null).await.is(200);
    test_server.request_as(&of_workspace, "GET", &poll, Value::Null).await.is(403);
    test_server.request("PUT", &group, json!({"location": "eastus"})).await.is(201);
    test_server.request("PUT", &workspace, json!({"location": "eastus"})).await.is(200);
    test_server.request_as(&of_group, "GET", &group, Value::Null).await.is(403);
    test_server.request_as(&of_workspace, "GET", &workspace, Value::Null).await.is(403);
    test_server.request_as(&of_workspace, "GET", &kept, Value::Null).await.is(200);
    // The same for a workspace.
    test_server.request("DELETE", &kept, Value::Null).await.is(202);
    test_server.collect_garbage().await;
    test_server.request("PUT", &kept, json!({"location": "eastus"})).await.is(200);
    test_server.request_as(&of_workspace, "GET", &kept, Value::Null).await.is(403);
    assert!(test_server.app.snapshot().groups.contains_key(&GroupKey::new("kept")));
    let lines = test_server.app.history(corro_model::history::HistoryFilter::newest(100)).await.expect("a history");
    let scope = serde_json::to_value(Scope::Group("g".into())).expect("plain");
    assert!(lines.iter().any(|line| line.what == "principal.unassigned" && line.detail["scope"] == scope));
}

#[tokio::test]
async fn roles_need_existing_scopes() {
    let test_server = TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let principals = format!("{}/providers/Corro/principals", test_server.subscription());
    for scope in [
        test_server.group("nothere"),
        test_server.workspace("g", "nothere"),
        test_server.workspace("nothere", "w"),
        test_server.group(".."),
        test_server.group("a%2Fb"),
    ] {
        let body = json!({"displayName": "p", "role": "Reader", "scopes": [test_server.group("g"), scope]});
        let answer = test_server.request("POST", &principals, body).await.is(400);
        assert_eq!(answer.body["error"]["target"], "scopes", "{answer:?}");
    }
    let body = json!({"displayName": "p", "role": "Reader", "scopes": [test_server.workspace("G", "W")]});
    test_server.request("POST", &principals, body).await.is(200);
}

#[tokio::test]
async fn a_group_owner_has_rights_in_the_group_only() {
    let test_server = TestServer::new().await;
    let (own, other) = (
        test_server.create_workspace_with_cluster("g", "w").await,
        test_server.create_workspace_with_cluster("h", "w").await,
    );
    let owner = test_server.principal("owner", "Owner", &[&test_server.group("g")]).await;
    test_server.principal("elsewhere", "Reader", &[&other]).await;
    test_server.principal("both", "Reader", &[&own, &other]).await;
    let principals = format!("{}/providers/Corro/principals", test_server.subscription());
    let wanted = |name: &str, scopes: Value| json!({"displayName": name, "role": "Reader", "scopes": scopes});
    test_server.request_as(&owner, "POST", &principals, wanted("mine", json!([own]))).await.is(200);
    for scopes in [json!([]), json!([other]), json!([own, other]), json!([test_server.subscription()])] {
        test_server
            .request_as(&owner, "POST", &principals, wanted("more", scopes))
            .await
            .refused(403, "AuthorizationFailed");
    }
    let listed = test_server.request_as(&owner, "GET", &principals, Value::Null).await.is(200).body;
    let listed = listed["value"].as_array().expect("a list").clone();
    let mut names: Vec<&str> = listed.iter().filter_map(|principal| principal["displayName"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["mine", "owner"]);
    for name in ["administrator", "elsewhere", "both", "nobody"] {
        let path = format!("{principals}/{name}");
        test_server.request_as(&owner, "GET", &path, Value::Null).await.refused(404, "PrincipalNotFound");
        test_server.request_as(&owner, "POST", &format!("{path}/resetCredentials"), Value::Null).await.is(404);
        test_server.request_as(&owner, "DELETE", &path, Value::Null).await.is(204);
    }
    test_server.request("GET", &format!("{principals}/elsewhere"), Value::Null).await.is(200);
    test_server.request_as(&owner, "POST", &format!("{principals}/mine/resetCredentials"), Value::Null).await.is(200);
    test_server.request_as(&owner, "DELETE", &format!("{principals}/mine"), Value::Null).await.is(200);

    let history = format!("{}/providers/Corro/history", test_server.subscription());
    let lines = test_server.request_as(&owner, "GET", &history, Value::Null).await.is(200).body;
    let lines = lines["value"].as_array().expect("a list").clone();
    let inside = |line: &Value| line["resource"].as_str().is_some_and(|name| name == "g" || name.starts_with("g/"));
    assert!(!lines.is_empty() && lines.iter().all(inside), "{lines:?}");
    test_server.request_as(&owner, "GET", &format!("{history}?resource=G/w"), Value::Null).await.is(200);
    test_server
        .request_as(&owner, "GET", &format!("{history}?resource=h"), Value::Null)
        .await
        .refused(403, "AuthorizationFailed");
    let reader = test_server.principal("reader", "Contributor", &[&test_server.group("g")]).await;
    test_server.request_as(&reader, "GET", &history, Value::Null).await.is(403);
    test_server.request_as(&reader, "GET", &principals, Value::Null).await.is(403);
}
