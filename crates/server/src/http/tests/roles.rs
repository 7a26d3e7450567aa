//! Roles and the places they are given at: only at what exists, and gone with it.

use corro_model::GroupKey;
use corro_model::rights::Scope;
use serde_json::{Value, json};

use super::TestServer;
use crate::reconcile::garbage_collection;
use crate::reconcile::steps::apply;

impl TestServer {
    /// What the deletion loop would do until nothing is left to delete.
    async fn sweep(&self) {
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
async fn roles_go_with_the_place_they_were_given_at() {
    let test_server = TestServer::new().await;
    for (group, workspace) in [("g", "w"), ("kept", "w")] {
        test_server.ask("PUT", &test_server.group(group), json!({"location": "eastus"})).await.is(201);
        test_server.ask("PUT", &test_server.workspace(group, workspace), json!({"location": "eastus"})).await.is(200);
    }
    let (group, workspace, kept) =
        (test_server.group("g"), test_server.workspace("g", "w"), test_server.workspace("kept", "w"));
    let of_group = test_server.principal("of-group", "Contributor", &[&group]).await;
    let of_workspace = test_server.principal("of-workspace", "Contributor", &[&workspace, &kept]).await;
    test_server.ask_as(&of_workspace, "GET", &workspace, Value::Null).await.is(200);
    // Whoever deletes the last thing they have a right to still learns how that ended.
    let begun = test_server.ask_as(&of_group, "DELETE", &group, Value::Null).await.is(202);
    test_server.sweep().await;
    let location = begun.headers["location"].to_str().expect("text").replace("http://localhost", "");
    let poll = location.split('?').next().expect("a path").to_owned();
    test_server.ask_as(&of_group, "GET", &poll, Value::Null).await.is(200);
    test_server.ask_as(&of_workspace, "GET", &poll, Value::Null).await.is(403);
    test_server.ask("PUT", &group, json!({"location": "eastus"})).await.is(201);
    test_server.ask("PUT", &workspace, json!({"location": "eastus"})).await.is(200);
    test_server.ask_as(&of_group, "GET", &group, Value::Null).await.is(403);
    test_server.ask_as(&of_workspace, "GET", &workspace, Value::Null).await.is(403);
    test_server.ask_as(&of_workspace, "GET", &kept, Value::Null).await.is(200);
    // The same for a workspace alone.
    test_server.ask("DELETE", &kept, Value::Null).await.is(202);
    test_server.sweep().await;
    test_server.ask("PUT", &kept, json!({"location": "eastus"})).await.is(200);
    test_server.ask_as(&of_workspace, "GET", &kept, Value::Null).await.is(403);
    assert!(test_server.app.snapshot().groups.contains_key(&GroupKey::new("kept")));
    let lines = test_server.app.history(corro_model::history::HistoryFilter::newest(100)).await.expect("a history");
    let scope = serde_json::to_value(Scope::Group("g".into())).expect("plain");
    assert!(lines.iter().any(|line| line.what == "principal.unassigned" && line.detail["scope"] == scope));
}

#[tokio::test]
async fn roles_are_given_only_at_what_exists() {
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
        let answer = test_server.ask("POST", &principals, body).await.is(400);
        assert_eq!(answer.body["error"]["target"], "scopes", "{answer:?}");
    }
    let body = json!({"displayName": "p", "role": "Reader", "scopes": [test_server.workspace("G", "W")]});
    test_server.ask("POST", &principals, body).await.is(200);
}

#[tokio::test]
async fn an_owner_of_a_group_rules_there_and_nowhere_else() {
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
    test_server.ask_as(&owner, "POST", &principals, wanted("mine", json!([own]))).await.is(200);
    for scopes in [json!([]), json!([other]), json!([own, other]), json!([test_server.subscription()])] {
        test_server
            .ask_as(&owner, "POST", &principals, wanted("more", scopes))
            .await
            .refused(403, "AuthorizationFailed");
    }
    let listed = test_server.ask_as(&owner, "GET", &principals, Value::Null).await.is(200).body;
    let listed = listed["value"].as_array().expect("a list").clone();
    let mut names: Vec<&str> = listed.iter().filter_map(|principal| principal["displayName"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["mine", "owner"]);
    for name in ["administrator", "elsewhere", "both", "nobody"] {
        let path = format!("{principals}/{name}");
        test_server.ask_as(&owner, "GET", &path, Value::Null).await.refused(404, "PrincipalNotFound");
        test_server.ask_as(&owner, "POST", &format!("{path}/resetCredentials"), Value::Null).await.is(404);
        test_server.ask_as(&owner, "DELETE", &path, Value::Null).await.is(204);
    }
    test_server.ask("GET", &format!("{principals}/elsewhere"), Value::Null).await.is(200);
    test_server.ask_as(&owner, "POST", &format!("{principals}/mine/resetCredentials"), Value::Null).await.is(200);
    test_server.ask_as(&owner, "DELETE", &format!("{principals}/mine"), Value::Null).await.is(200);

    let history = format!("{}/providers/Corro/history", test_server.subscription());
    let lines = test_server.ask_as(&owner, "GET", &history, Value::Null).await.is(200).body;
    let lines = lines["value"].as_array().expect("a list").clone();
    let inside = |line: &Value| line["resource"].as_str().is_some_and(|name| name == "g" || name.starts_with("g/"));
    assert!(!lines.is_empty() && lines.iter().all(inside), "{lines:?}");
    test_server.ask_as(&owner, "GET", &format!("{history}?resource=G/w"), Value::Null).await.is(200);
    test_server
        .ask_as(&owner, "GET", &format!("{history}?resource=h"), Value::Null)
        .await
        .refused(403, "AuthorizationFailed");
    let reader = test_server.principal("reader", "Contributor", &[&test_server.group("g")]).await;
    test_server.ask_as(&reader, "GET", &history, Value::Null).await.is(403);
    test_server.ask_as(&reader, "GET", &principals, Value::Null).await.is(403);
}
