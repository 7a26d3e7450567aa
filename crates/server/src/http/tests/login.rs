//! Token endpoints of both versions, discovery documents, errors in the directory's form, and the end of logins.

use axum::body::Body;
use axum::extract::Request;
use corro_model::ops::ALL;
use corro_store::PrincipalRecord;
use http::header;
use serde_json::{Value, json};

use super::{TestResponse, TestServer};

struct Client {
    id: String,
    secret: String,
}

impl Client {
    fn form(&self) -> String {
        format!("grant_type=client_credentials&client_id={}&client_secret={}", self.id, self.secret)
    }

    fn basic(&self) -> String {
        use base64::Engine;
        let text = format!("{}:{}", self.id, self.secret);
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    }
}

impl TestServer {
    async fn client(&self, body: Value) -> Client {
        let path = format!("{}/providers/Corro/principals", self.subscription());
        let made = self.request("POST", &path, body).await.is(200).body;
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        Client { id: text("appId"), secret: text("password") }
    }

    async fn post_login(&self, method: &str, target: &str, headers: &[(&str, &str)], form: String) -> TestResponse {
        let request = Request::builder().method(method).uri(target).header(header::HOST, "box:8470");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(Body::from(form)).expect("a request")).await
    }
}

#[track_caller]
fn access_token(answer: TestResponse) -> String {
    answer.is(200).body["access_token"].as_str().expect("a token").to_owned()
}

/// Asserts an error in the directory's form.
#[track_caller]
fn refused(answer: TestResponse, status: u16, error: &str, code: u32) {
    let body = &answer.body;
    assert_eq!((answer.status, body["error"].as_str()), (status, Some(error)), "{answer:?}");
    let description = body["error_description"].as_str().expect("a description");
    assert!(description.starts_with(&format!("AADSTS{code}: ")), "{description}");
    for (name, field) in
        [("Trace ID: ", "trace_id"), ("Correlation ID: ", "correlation_id"), ("Timestamp: ", "timestamp")]
    {
        let response = body[field].as_str().expect("text");
        assert!(!response.is_empty() && description.contains(&format!("{name}{response}")), "{description}");
    }
    assert_eq!(body["error_codes"], json!([code]));
}

#[tokio::test]
async fn every_token_endpoint_requires_a_secret() {
    let test_server = &TestServer::new().await;
    let alice = test_server.client(json!({"displayName": "alice", "role": "Reader"})).await;
    let (form, basic, tenant) = (alice.form(), alice.basic(), test_server.app.installation.tenant.to_string());
    let groups = format!("{}/resourceGroups", test_server.subscription());
    for authority in ["adfs", "common", "organizations", &tenant, &tenant.to_uppercase()] {
        let first = format!("/{authority}/oauth2/token?api-version=1.0");
        let token = access_token(test_server.post_login("POST", &first, &[], format!("{form}&resource=x")).await);
        test_server.request_as(&token, "GET", &groups, Value::Null).await.is(200);
        let second = format!("/{authority}/oauth2/v2.0/token");
        let scoped = format!("{form}&scope=https%3A%2F%2Fbox%2F.default");
        let answer = test_server.post_login("POST", &second, &[], scoped).await;
        assert_eq!((&answer.body["expires_in"], &answer.body["resource"]), (&json!(3600), &Value::Null));
        access_token(answer);
    }
    let grant = "grant_type=client_credentials&resource=x".to_owned();
    access_token(test_server.post_login("POST", "/adfs/oauth2/token", &[("authorization", &basic)], grant).await);
    let by_name = Client { id: "http%3A%2F%2Falice".to_owned(), secret: alice.secret.clone() };
    access_token(test_server.post_login("POST", "/adfs/oauth2/token", &[], by_name.form()).await);

    // Managed identity.
    let resource = || "resource=x".to_owned();
    let metadata = ("metadata", "true");
    let identity =
        test_server.post_login("POST", "/oauth2/token", &[metadata, ("authorization", &basic)], resource()).await;
    assert_eq!(identity.body["resource"], "x");
    access_token(identity);
    let header = format!("{}:{}", alice.id, alice.secret);
    let app_service = "/oauth2/token/?resource=x&api-version=2017-09-01";
    access_token(test_server.post_login("GET", app_service, &[("secret", &header)], String::new()).await);
    let none = test_server.post_login("POST", "/oauth2/token", &[metadata], resource()).await;
    refused(none, 401, "invalid_client", 7000218);
    let wrong = format!("{}:wrong", alice.id);
    refused(
        test_server.post_login("GET", app_service, &[("secret", &wrong)], String::new()).await,
        401,
        "invalid_client",
        7000215,
    );
}

#[tokio::test]
async fn errors_have_the_directorys_form_and_do_not_reveal_principals() {
    let test_server = &TestServer::new().await;
    let alice = test_server.client(json!({"displayName": "alice", "role": "Reader"})).await;
    let request_token = |target: &'static str, form: String| test_server.post_login("POST", target, &[], form);
    let wrong = Client { id: alice.id.clone(), secret: "wrong".to_owned() };
    refused(request_token("/adfs/oauth2/token", wrong.form()).await, 401, "invalid_client", 7000215);
    let nobody = Client { id: "nobody".to_owned(), secret: "wrong".to_owned() };
    refused(request_token("/adfs/oauth2/token", nobody.form()).await, 401, "invalid_client", 7000215);
    let nameless = Client { id: "http%3A%2F%2F".to_owned(), secret: "wrong".to_owned() };
    refused(request_token("/adfs/oauth2/token", nameless.form()).await, 401, "invalid_client", 7000215);
    let password = "grant_type=password&username=a&password=b&client_id=c".to_owned();
    refused(request_token("/adfs/oauth2/token", password).await, 400, "unsupported_grant_type", 70003);
    refused(request_token("/adfs/oauth2/token", String::new()).await, 400, "invalid_request", 900144);
    refused(request_token("/adfs/oauth2/devicecode", String::new()).await, 400, "unauthorized_client", 700016);
    refused(request_token("/some-tenant/oauth2/token", alice.form()).await, 400, "invalid_request", 90002);
    refused(request_token("/adfs/oauth2/v2.0/token", alice.form()).await, 400, "invalid_request", 900144);
    let authorize =
        test_server.post_login("GET", "/adfs/oauth2/authorize?response_type=code", &[], String::new()).await;
    refused(authorize, 400, "unauthorized_client", 700016);
    test_server.post_login("GET", "/adfs/oauth2/token", &[], String::new()).await.is(405);
    let id = "10546a8d-e7c5-4824-b726-3b6a600a7305";
    let response =
        test_server.post_login("POST", "/adfs/oauth2/token", &[("client-request-id", id)], wrong.form()).await;
    assert_eq!(response.body["correlation_id"], id);
}

#[tokio::test]
async fn discovery_documents_are_public_and_point_to_this_server() {
    let test_server = &TestServer::new().await;
    let get = |target: String| async move { test_server.post_login("GET", &target, &[], String::new()).await };
    let tenant = test_server.app.installation.tenant.to_string();
    let document = get(format!("/{tenant}/v2.0/.well-known/openid-configuration")).await.is(200).body;
    assert_eq!(document["token_endpoint"], format!("http://box:8470/{tenant}/oauth2/v2.0/token"));
    get("/adfs/.well-known/openid-configuration".to_owned()).await.is(200);
    assert_eq!(get(format!("/{tenant}/discovery/keys")).await.is(200).body, json!({"keys": []}));
    let instance =
        |endpoint: &str| format!("/common/discovery/instance?api-version=1.1&authorization_endpoint={endpoint}");
    let known = get(instance("https%3A%2F%2Fbox%3A8470%2Fadfs%2Foauth2%2Fauthorize")).await.is(200).body;
    assert_eq!(known["tenant_discovery_endpoint"], "http://box:8470/adfs/.well-known/openid-configuration");
    for other in ["https%3A%2F%2Fevil%2Fadfs%2Fx", "https%3A%2F%2Fbox%3A8470%2Fother-tenant%2Fx", ""] {
        refused(get(instance(other)).await, 400, "invalid_instance", 50049);
    }
    let endpoints = get("/metadata/endpoints?api-version=2015-01-01".to_owned()).await.is(200).body;
    assert_eq!(endpoints["authentication"]["loginEndpoint"], "http://box:8470/adfs");
}

#[tokio::test]
async fn logins_end_by_revocation_and_password_expiry() {
    let test_server = &TestServer::new().await;
    let alice = test_server.client(json!({"displayName": "alice", "role": "Reader", "years": 1})).await;
    let log_in = || test_server.post_login("POST", "/adfs/oauth2/token", &[], alice.form());
    let groups = format!("{}/resourceGroups", test_server.subscription());
    let principal = format!("{}/providers/Corro/principals/alice", test_server.subscription());
    let old = access_token(log_in().await);
    test_server.request_as(&old, "GET", &groups, Value::Null).await.is(200);
    test_server.request("POST", &format!("{principal}/revokeTokens"), Value::Null).await.is(200);
    test_server.request_as(&old, "GET", &groups, Value::Null).await.is(401);
    let new = access_token(log_in().await);
    test_server.request_as(&new, "GET", &groups, Value::Null).await.is(200);
    // A principal that may not see another cannot revoke its tokens.
    test_server.request_as(&new, "POST", &format!("{principal}/revokeTokens"), Value::Null).await.is(403);
    test_server.request("POST", &principal.replace("alice", "nobody/revokeTokens"), Value::Null).await.is(404);
    // A principal may revoke its own tokens: this request is answered, the next is refused.
    test_server.request("POST", &principal.replace("alice", "administrator/revokeTokens"), Value::Null).await.is(200);
    test_server.request("GET", &groups, Value::Null).await.is(401);

    let id = alice.id.clone();
    let past = test_server.app.now();
    let ended = test_server.app.store.commit(move |txn| {
        txn.update::<PrincipalRecord>(&id, |record| {
            assert!(record.expires.is_some_and(|end| end > past));
            record.expires = Some(past);
        });
        Ok::<_, corro_model::ApiError>(())
    });
    ended.await.expect("committed");
    test_server.request_as(&new, "GET", &groups, Value::Null).await.is(401);
    refused(log_in().await, 401, "invalid_client", 7000222);
}

#[tokio::test]
async fn principals_without_a_role_see_that_there_is_a_subscription() {
    let test_server = &TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    let client = test_server.client(json!({"displayName": "guest", "role": "Reader", "skipAssignment": true})).await;
    let token = access_token(test_server.post_login("POST", "/adfs/oauth2/token", &[], client.form()).await);
    let subscription = test_server.subscription();
    for path in
        ["/tenants".to_owned(), "/subscriptions".to_owned(), subscription.clone(), format!("{subscription}/locations")]
    {
        test_server.request_as(&token, "GET", &path, Value::Null).await.is(200);
    }
    for path in [test_server.group("g"), format!("{subscription}/resourceGroups"), format!("{subscription}/resources")]
    {
        test_server.request_as(&token, "GET", &path, Value::Null).await.refused(403, "AuthorizationFailed");
    }
    let principals = format!("{subscription}/providers/Corro/principals");
    let both =
        json!({"displayName": "x", "role": "Reader", "skipAssignment": true, "scopes": [test_server.group("g")]});
    test_server.request("POST", &principals, both).await.is(400);
    let years = json!({"displayName": "x", "role": "Reader", "years": 1000});
    test_server.request("POST", &principals, years).await.is(400);
}

#[tokio::test]
async fn tenants_locations_and_providers_are_listed() {
    let test_server = &TestServer::new().await;
    test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    test_server.request("PUT", &test_server.group("h"), json!({"location": "mylab"})).await.is(201);
    let subscription = test_server.subscription();
    let get = |below: String| {
        let path = format!("{subscription}{below}");
        async move { test_server.request("GET", &path, Value::Null).await.is(200).body }
    };
    let names = |list: &Value, field: &str| -> Vec<String> {
        let items = list["value"].as_array().expect("a list");
        items.iter().map(|item| item[field].as_str().expect("text").to_owned()).collect()
    };
    let regions = names(&get("/locations".to_owned()).await, "name");
    assert!(regions.contains(&"eastus".to_owned()) && regions.contains(&"mylab".to_owned()), "{regions:?}");
    let providers = names(&get("/providers".to_owned()).await, "namespace");
    assert!(providers.contains(&"Microsoft.BatchAI".to_owned()), "{providers:?}");
    let shown = get("/providers/microsoft.batchai".to_owned()).await;
    assert_eq!(shown["resourceTypes"][0]["apiVersions"], json!(["2018-05-01"]));
    test_server
        .request("POST", &format!("{subscription}/providers/microsoft.batchai/unregister"), Value::Null)
        .await
        .is(409);
    assert_eq!(names(&get("/resources".to_owned()).await, "name"), ["w", "someaccount"]);
    assert_eq!(names(&get("/resourceGroups/g/resources".to_owned()).await, "name"), ["w", "someaccount"]);
    let filter = "/resources?$filter=resourceType%20eq%20'Microsoft.Storage%2FstorageAccounts'";
    assert_eq!(names(&get(filter.to_owned()).await, "name"), ["someaccount"]);
    assert_eq!(get("/resources?$filter=resourceGroup%20eq%20'h'".to_owned()).await["value"], json!([]));
}

/// Operations and routes are the same set, and each has a right, so no path is reachable without one.
#[tokio::test]
async fn operations_and_routes_are_the_same() {
    let test_server = TestServer::new().await;
    let mut routes = test_server.api.router.ids();
    let mut operations: Vec<&str> = ALL.iter().map(|(id, ..)| *id).collect();
    routes.sort_unstable();
    operations.sort_unstable();
    assert_eq!(routes, operations);
}
