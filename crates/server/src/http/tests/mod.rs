//! In-process tests of the HTTP API: requests go straight into [`Api::handle`], as the administrator or as a principal that the
//! test creates. Nothing reconciles, so operations stay in progress. This file is the fixture; its submodules are the tests.

mod audit;
mod audit_changes;
mod cluster_logins;
mod dependencies;
mod events;
mod file_audit;
mod followers;
mod health;
mod hosts;
mod login;
mod metrics;
mod nodes;
mod outputs;
mod pages;
mod references;
mod responses;
mod roles;
mod session_revocation;
mod tunnels;
mod validation;
mod warnings;
mod webhooks;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use corro_file_service::FileService;
use corro_shares::Shares;
use corro_store::Store;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::Api;
use super::rate_limit::{RateLimits, Rates};
use crate::app::App;
use crate::app::AppConfig;
use crate::app::Fleet;
use crate::app::RequestContext;
use crate::app::Storage;
use crate::app::Telemetry;
use crate::app::access::installation;
use crate::app::history::audit::AuditLog;
use crate::app::storage::exports::Exports;
use crate::gateway::Gateway;
use crate::scheduler_view::SchedulingConfig;
use crate::storage_service::account_keys::AccountKeyCache;
use crate::storage_service::audit_log::FileAuditLog;
use crate::unix_now;

pub struct TestServer {
    pub app: App,
    pub api: Api,
    pub files: FileService,
    /// The administrator's access token.
    pub token: String,
    _stop: watch::Sender<bool>,
    dir: TempDir,
}

#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl TestResponse {
    /// Asserts the status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    /// Asserts status and error code; returns the message.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> String {
        let error = &self.body["error"];
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{self:?}");
        error["message"].as_str().expect("a message").to_owned()
    }
}

impl TestServer {
    /// The server's data directory.
    pub fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| dir.path().join(name);
        let store = Store::open(&path("corro.db")).expect("a store");
        let installation = installation::ensure_installation(&store, dir.path()).await.expect("an identity");
        let now = std::time::SystemTime::now().into();
        let admin = installation::ensure_administrator(&store, None, now).await.expect("an administrator");
        let app = App {
            store,
            installation: Arc::new(installation),
            storage: Storage {
                shares: Arc::new(Shares::open(path("shares")).expect("a directory of shares")),
                exports: Arc::new(Exports::open(&path("file-servers"), [7; 32]).expect("a directory")),
                job_shared: Arc::new(Shares::open(path("job-shared")).expect("a directory")),
            },
            config: Arc::new(AppConfig {
                quotas: Default::default(),
                scheduling: SchedulingConfig::DEFAULT,
                mount_token_lifetime: crate::MOUNT_TOKEN_LIFETIME,
                webhooks: Some(Default::default()),
            }),
            started: now,
            fleet: Fleet::default(),
            telemetry: Telemetry::default(),
            request: RequestContext::server(),
        };
        let (stop, stopping) = watch::channel(false);
        let gateway = Gateway::new(app.clone(), None, stopping);
        let limits = Arc::new(RateLimits::new(Rates::DEFAULT));
        let files = FileService::new(
            app.storage.shares.clone(),
            Arc::new(AccountKeyCache::new(app.clone())),
            limits.clone(),
            unix_now,
        );
        let audit = AuditLog::default();
        let files = files.with_audit(Arc::new(FileAuditLog { app: app.clone(), audit: audit.clone() }));
        let api = Api::new(app.clone(), gateway, files.clone(), limits, audit);
        let token = app.issue_token(&admin.client_id, &admin.client_secret, "x").expect("a token").access_token;
        Self { app, api, files, token: token.expose().to_owned(), _stop: stop, dir }
    }

    pub fn subscription(&self) -> String {
        format!("/subscriptions/{}", self.app.installation.subscription)
    }

    pub fn group(&self, name: &str) -> String {
        format!("{}/resourceGroups/{name}", self.subscription())
    }

    pub fn workspace(&self, group: &str, name: &str) -> String {
        format!("{}/providers/Microsoft.BatchAI/workspaces/{name}", self.group(group))
    }

    /// Sends a request as the administrator; `Null` is no body.
    pub async fn request(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.request_as(&self.token, method, path, body).await
    }

    pub async fn request_as(&self, token: &str, method: &str, path: &str, body: Value) -> TestResponse {
        let separator = if path.contains('?') { '&' } else { '?' };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder()
            .method(method)
            .uri(format!("{path}{separator}api-version=2018-05-01"))
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(body)
            .expect("a request");
        self.send(request).await
    }

    pub async fn send(&self, request: Request) -> TestResponse {
        let (parts, body) = self.api.handle(request).await.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Creates a group with a workspace, an experiment `e` and a cluster `c`.
    pub async fn create_workspace_with_cluster(&self, group: &str, workspace: &str) -> String {
        let at = self.workspace(group, workspace);
        self.request("PUT", &self.group(group), json!({"location": "eastus"})).await;
        self.request("PUT", &at, json!({"location": "eastus"})).await.is(200);
        self.request("PUT", &format!("{at}/experiments/e"), Value::Null).await;
        self.request("PUT", &format!("{at}/clusters/c"), cluster()).await.is(202);
        at
    }

    /// Creates a storage account.
    pub async fn account(&self, group: &str, name: &str) -> String {
        let path = format!("{}/providers/Microsoft.Storage/storageAccounts/{name}", self.group(group));
        self.request("PUT", &path, json!({"location": "eastus", "sku": {"name": "Standard_LRS"}})).await.is(200);
        path
    }

    /// Creates a principal with a role at some scopes; returns its access token.
    pub async fn principal(&self, name: &str, role: &str, scopes: &[&str]) -> String {
        let path = format!("{}/providers/Corro/principals", self.subscription());
        let made = self
            .request("POST", &path, json!({"displayName": name, "role": role, "scopes": scopes}))
            .await
            .is(200)
            .body;
        let text = |name: &str| made[name].as_str().expect("text").to_owned();
        let secret = corro_model::Secret::new(text("password"));
        let token = self.app.issue_token(&text("appId"), &secret, "x").expect("a token");
        token.access_token.expose().to_owned()
    }
}

/// A valid cluster.
pub fn cluster() -> Value {
    json!({"properties": {
        "vmSize": "Standard_D1", "scaleSettings": {"manual": {"targetNodeCount": 1}},
        "userAccountSettings": {"adminUserName": "me", "adminUserPassword": "secret"}
    }})
}

pub fn job(cluster: &str) -> Value {
    json!({"properties": {
        "cluster": {"id": cluster}, "nodeCount": 1, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_TEMP/x",
        "customToolkitSettings": {"commandLine": "true"}
    }})
}
