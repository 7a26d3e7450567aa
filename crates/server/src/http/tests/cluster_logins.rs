//! Validation of cluster logins: a key or a password is required.

use serde_json::json;

use super::{TestServer, cluster};

#[tokio::test]
async fn a_cluster_without_key_or_password_is_refused() {
    let test_server = TestServer::new().await;
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    let account = "properties.userAccountSettings";
    for (settings, target) in [
        (json!({"adminUserName": "me", "adminUserPassword": ""}), account.to_owned()),
        (json!({"adminUserName": "me", "adminUserPassword": "", "adminUserSshPublicKey": " "}), account.to_owned()),
        (
            json!({"adminUserName": "me", "adminUserSshPublicKey": "garbage"}),
            format!("{account}.adminUserSshPublicKey"),
        ),
    ] {
        let mut wanted = cluster();
        wanted["properties"]["userAccountSettings"] = settings;
        let answer = test_server.request("PUT", &format!("{own}/clusters/open"), wanted).await.is(400);
        assert_eq!(answer.body["error"]["target"], target, "{answer:?}");
    }
    test_server.request("GET", &format!("{own}/clusters/open"), json!(null)).await.is(404);
}
