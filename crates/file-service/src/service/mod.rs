//! [`FileService::handle`]: one request from its signature to the response. The caller has determined the account.

mod admission;
mod dispatch;

use std::sync::Arc;
use std::time::Instant;

use axum::{body::Body, extract::Request, response::Response};
use corro_shares::Shares;
use tokio::task::spawn_blocking;

use crate::audit::{AuditEvent, AuditSink, EventKind, EventSums, SumKey, event_kind};
use crate::auth::{AccountKeys, CredentialSink, Grant};
use crate::context::OperationContext;
use crate::context::recent_appends::RecentAppends;
use crate::context::running_copies::RunningCopies;
use crate::context::state::ServiceState;
use crate::files::download;
use crate::limits::upload_permits::UploadPermits;
use crate::limits::{RateLimiter, request_body};
use crate::protocol::error::StorageError;
use crate::protocol::operation::Operation;
use crate::protocol::request::{AddressStyle, StorageRequest, Target};
use crate::protocol::{cors, response};
use crate::service::dispatch::perform;
use crate::shares::service_properties;

/// The file and blob service. Clones share their state.
#[derive(Clone)]
pub struct FileService(pub(crate) Arc<ServiceState>);

impl FileService {
    /// `now` returns Unix seconds.
    pub fn new(
        shares: Arc<Shares>,
        keys: Arc<dyn AccountKeys>,
        rate_limiter: Arc<dyn RateLimiter>,
        now: fn() -> i64,
    ) -> Self {
        let upload_permits = UploadPermits::default();
        let (copies, event_sums, recent_appends) =
            (RunningCopies::default(), EventSums::default(), RecentAppends::default());
        let extra_trees = Vec::new();
        FileService(Arc::new(ServiceState {
            shares,
            extra_trees,
            keys,
            rate_limiter,
            now,
            upload_permits,
            copies,
            recent_appends,
            audit_sink: None,
            event_sums,
        }))
    }

    /// Reports events to `audit_sink`. To be called before the service is cloned.
    pub fn with_audit(mut self, audit_sink: Arc<dyn AuditSink>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").audit_sink = Some(audit_sink);
        self
    }

    /// Also serves this tree, under a pseudo account name, to callers with a SAS for it. To be called before the
    /// service is cloned.
    pub fn with_tree(mut self, word: &'static str, shares: Arc<Shares>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").extra_trees.push((word, shares));
        self
    }

    /// Reports the sums that are due, or all of them at shutdown.
    pub fn flush_audit(&self, all: bool) {
        if let Some(audit_sink) = &self.0.audit_sink {
            let now = (!all).then(Instant::now);
            self.0.event_sums.take_due(now).into_iter().for_each(|line| audit_sink.record(line));
        }
    }

    /// Handles one request. The caller has determined `account` and `style` from the `Host` header or the first path
    /// segment. The URI must be as received: its raw path is part of what is signed. `credential_sink` learns the
    /// credential of the request.
    pub async fn handle(
        &self,
        account: &str,
        style: AddressStyle,
        request: Request,
        credential_sink: Option<&dyn CredentialSink>,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let request = StorageRequest::new(account, style, parts);
        let mut authenticated = None;
        let answer = match cors::is_preflight(&request) {
            true => Box::pin(self.preflight(&request)).await,
            false => self.answer(&request, body, credential_sink, &mut authenticated).await,
        };
        let response = match answer {
            Ok(response) => response,
            Err(error) => {
                let error = if request.is_blob_service { error.into_blob_error() } else { error };
                let code = error.code;
                let response = error.into_response(&request, (self.0.now)());
                let actor = authenticated.map(|grant: Grant| grant.actor(&request.account));
                self.audit_refusal(&request, actor.as_deref(), response.status().as_u16(), code);
                response
            }
        };
        let mut response = response::add_common_headers(&request, response);
        if request.headers.contains_key("origin") && request.method != http::Method::OPTIONS {
            let cors = Box::pin(self.cors(&request)).await.ok().flatten();
            cors::set_headers(response.headers_mut(), &request, cors.as_ref());
        }
        response
    }

    /// Answers a CORS preflight request, which is never signed.
    async fn preflight(&self, request: &StorageRequest) -> Result<Response, StorageError> {
        self.count_unauthenticated(request)?;
        cors::preflight(request, self.cors(request).await?.as_ref())
    }

    /// CORS rules of the account; none if the account does not exist.
    async fn cors(&self, request: &StorageRequest) -> Result<Option<corro_model::xml::Element>, StorageError> {
        if self.0.keys.keys(&request.account).is_none() {
            return Ok(None);
        }
        let (shares, account) = (self.0.shares_of(&request.account).clone(), request.account.clone());
        let read = spawn_blocking(move || shares.account_properties(&account));
        let properties = read.await.map_err(|_| StorageError::internal())??;
        Ok(service_properties::load_cors(&properties))
    }

    /// Reports a rejected caller. Other errors are not reported.
    fn audit_refusal(&self, request: &StorageRequest, actor: Option<&str>, status: u16, code: &str) {
        let Some(audit_sink) = self.0.audit_sink.as_ref().filter(|_| matches!(status, 401 | 403)) else { return };
        let (account, path) = (&request.account, &request.raw_path);
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_path_style = first.strip_suffix(".blob").unwrap_or(first) == account;
        let path = if is_path_style { path.clone() } else { format!("/{account}{path}") };
        audit_sink.record_refusal(actor, &request.client_address(), request.method.as_str(), &path, status, code);
    }

    /// Reports a tail read before the file is opened, so that the response is not older than the report.
    fn audit_tail_read(&self, request: &StorageRequest, grant: &Grant, path: &str) {
        if let Some(audit_sink) = self.0.audit_sink.as_ref().filter(|_| download::is_tail_read(request, grant)) {
            audit_sink.on_tail_read(&grant.actor(&request.account), &request.client_address(), path);
        }
    }

    /// Reports a successful operation.
    fn audit(&self, request: &StorageRequest, grant: &Grant, operation: Operation, target: &Target, of_snapshot: bool) {
        let Some(audit_sink) = &self.0.audit_sink else { return };
        let Some(event_kind) = event_kind(operation, of_snapshot) else { return };
        let (account, share, address) = (request.account.clone(), target.share.clone(), request.client_address());
        let actor = grant.actor(&request.account);
        match event_kind {
            EventKind::Single(action) => {
                let detail = serde_json::Value::Null;
                audit_sink.record(AuditEvent { actor, address, account, share, action, detail });
            }
            EventKind::Counted(counter) => {
                let key = SumKey { account, share, actor, address };
                let due = self.0.event_sums.add(key, counter, target.path.as_str(), Instant::now());
                due.into_iter().for_each(|line| audit_sink.record(line));
            }
        }
    }

    /// Authenticates, authorizes and performs a request. `authenticated` is set as soon as the caller is known.
    async fn answer(
        &self,
        request: &StorageRequest,
        body: Body,
        credential_sink: Option<&dyn CredentialSink>,
        authenticated: &mut Option<Grant>,
    ) -> Result<Response, StorageError> {
        let grant: &Grant = authenticated.insert(self.admit(request, credential_sink).await?);
        if let Err(wait) = self.0.rate_limiter.admit_account(&request.account) {
            Box::pin(request_body::drain(body)).await;
            return Err(StorageError::rate_limited("for this account", wait));
        }
        let target = request.target.as_ref().map_err(Clone::clone)?;
        let operation = Operation::resolve(request, target)?;
        grant.authorize(operation, request.is_blob_service)?;
        let snapshot = request.snapshot()?;
        if snapshot.is_some() && !operation.works_on_snapshots() {
            return Err(StorageError::new("ShareSnapshotOperationNotSupported"));
        }
        let in_container = request.is_blob_service || grant.is_container_sas() || operation.is_blob_operation();
        let reads = matches!(operation, Operation::ReadFile | Operation::FileProperties) && snapshot.is_none();
        if grant.uses_file_address(request) && !reads && !grant.is_node() {
            return Err(StorageError::new("AuthorizationPermissionMismatch"));
        }
        let (of_snapshot, may_replace) = (snapshot.is_some(), grant.may_replace());
        let (share, path) = (target.share.clone(), target.path.clone());
        let context = OperationContext { state: &self.0, request, share, path, snapshot, in_container, may_replace };
        let answer = match operation {
            // Most requests are small reads. They do not allocate the large future that all other operations share.
            Operation::ReadFile => {
                self.audit_tail_read(request, grant, context.path.as_str());
                download::read(context, grant).await
            }
            _ => Box::pin(perform(operation, context, grant, body)).await,
        }?;
        if answer.status().is_success() {
            self.audit(request, grant, operation, target, of_snapshot);
        }
        Ok(answer)
    }
}
