//! [`FileService::handle`]: one request from its signature to the response. The caller has found out which account is meant.

mod admission;
mod dispatch;

use std::sync::Arc;
use std::time::Instant;

use axum::{body::Body, extract::Request, response::Response};
use corro_shares::Shares;
use tokio::task::spawn_blocking;

use crate::audit::{AuditEvent, AuditSink, Sums, Telling, Who, telling};
use crate::auth::{Access, AccountKeys, CredentialSink};
use crate::context::Context;
use crate::context::recent_appends::Appended;
use crate::context::running_copies::Copies;
use crate::context::state::Inner;
use crate::files::download;
use crate::limits::upload_permits::Rooms;
use crate::limits::{RateLimiter, request_body};
use crate::protocol::error::Refusal;
use crate::protocol::operation::Operation;
use crate::protocol::request::{AddressStyle, Call, Target};
use crate::protocol::{cors, response, xml_parse};
use crate::service::dispatch::perform;
use crate::shares::service_properties;

/// The service; clones share everything.
#[derive(Clone)]
pub struct FileService(pub(crate) Arc<Inner>);

impl FileService {
    /// `now` gives unix seconds.
    pub fn new(
        shares: Arc<Shares>,
        keys: Arc<dyn AccountKeys>,
        limits: Arc<dyn RateLimiter>,
        now: fn() -> i64,
    ) -> Self {
        let uploads = Rooms::default();
        let (copies, sums, appended) = (Copies::default(), Sums::default(), Appended::default());
        let extra_trees = Vec::new();
        FileService(Arc::new(Inner {
            shares,
            extra_trees,
            keys,
            limits,
            now,
            uploads,
            copies,
            appended,
            ledger: None,
            sums,
        }))
    }

    /// Tells `ledger` what is done from now on. Before the service is shared.
    pub fn with_audit(mut self, ledger: Arc<dyn AuditSink>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").ledger = Some(ledger);
        self
    }

    /// Serves these trees too, to whoever has a link to one. Before the service is shared.
    pub fn with_tree(mut self, word: &'static str, shares: Arc<Shares>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").extra_trees.push((word, shares));
        self
    }

    /// Tells what has been summed for long enough, or all of it when nothing more will come.
    pub fn flush_audit(&self, all: bool) {
        if let Some(ledger) = &self.0.ledger {
            let now = (!all).then(Instant::now);
            self.0.sums.due(now).into_iter().for_each(|line| ledger.record(line));
        }
    }

    /// Answers one request. `account` was found by the caller from the `Host` label or the first
    /// path segment, and `style` says which. The request's URI must be the one that came over the
    /// wire, for its raw path is what was signed.
    pub async fn handle(
        &self,
        account: &str,
        style: AddressStyle,
        request: Request,
        credential_sink: Option<&dyn CredentialSink>,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let call = Call::new(account, style, parts);
        let mut known = None;
        let answer = match cors::is_preflight(&call) {
            true => Box::pin(self.preflight(&call)).await,
            false => self.answer(&call, body, credential_sink, &mut known).await,
        };
        let response = match answer {
            Ok(response) => response,
            Err(refusal) => {
                let refusal = if call.of_blobs { refusal.of_blobs() } else { refusal };
                let code = refusal.code;
                let response = refusal.into_response(&call, (self.0.now)());
                let actor = known.map(|access: Access| access.actor(&call.account));
                self.tell_refusal(&call, actor.as_deref(), response.status().as_u16(), code);
                response
            }
        };
        let mut response = response::stamp(&call, response);
        if call.headers.contains_key("origin") && call.method != http::Method::OPTIONS {
            let cors = Box::pin(self.cors(&call)).await.ok().flatten();
            cors::describe(response.headers_mut(), &call, cors.as_ref());
        }
        response
    }

    /// A browser's question, which nobody has signed.
    async fn preflight(&self, call: &Call) -> Result<Response, Refusal> {
        self.count_unauthenticated(call)?;
        cors::preflight(call, self.cors(call).await?.as_ref())
    }

    /// The account's rules for browsers; of one that does not exist there are none.
    async fn cors(&self, call: &Call) -> Result<Option<xml_parse::Element>, Refusal> {
        if self.0.keys.keys(&call.account).is_none() {
            return Ok(None);
        }
        let (shares, account) = (self.0.shares_of(&call.account).clone(), call.account.clone());
        let read = spawn_blocking(move || shares.account_properties(&account));
        let properties = read.await.map_err(|_| Refusal::internal())??;
        Ok(service_properties::cors_in(&properties))
    }

    /// Who was turned away. That something is missing or in the way is not news.
    fn tell_refusal(&self, call: &Call, actor: Option<&str>, status: u16, code: &str) {
        let Some(ledger) = self.0.ledger.as_ref().filter(|_| matches!(status, 401 | 403)) else { return };
        let (account, path) = (&call.account, &call.raw_path);
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_path_style = first.strip_suffix(".blob").unwrap_or(first) == account;
        let path = if is_path_style { path.clone() } else { format!("/{account}{path}") };
        ledger.record_refusal(actor, &call.from(), call.method.as_str(), &path, status, code);
    }

    /// Before the file is looked at, so that what the caller gets is no older.
    fn tell_follower(&self, call: &Call, access: &Access, path: &str) {
        if let Some(ledger) = self.0.ledger.as_ref().filter(|_| download::follows(call, access)) {
            ledger.on_tail_read(&access.actor(&call.account), &call.from(), path);
        }
    }

    /// What was done. Things of which there are many are summed.
    fn tell(&self, call: &Call, access: &Access, operation: Operation, target: &Target, of_snapshot: bool) {
        let Some(ledger) = &self.0.ledger else { return };
        let Some(telling) = telling(operation, of_snapshot) else { return };
        let (account, share, address) = (call.account.clone(), target.share.clone(), call.from());
        let actor = access.actor(&call.account);
        match telling {
            Telling::Line(action) => {
                let detail = serde_json::Value::Null;
                ledger.record(AuditEvent { actor, address, account, share, action, detail });
            }
            Telling::Counted(what) => {
                let who = Who { account, share, actor, address };
                let due = self.0.sums.add(who, what, target.path.as_str(), Instant::now());
                due.into_iter().for_each(|line| ledger.record(line));
            }
        }
    }

    /// `known` becomes what a caller has shown who may come in.
    async fn answer(
        &self,
        call: &Call,
        body: Body,
        credential_sink: Option<&dyn CredentialSink>,
        known: &mut Option<Access>,
    ) -> Result<Response, Refusal> {
        let access: &Access = known.insert(self.admit(call, credential_sink).await?);
        if let Err(wait) = self.0.limits.admit_account(&call.account) {
            Box::pin(request_body::drain(body)).await;
            return Err(Refusal::too_often("for this account", wait));
        }
        let target = call.target.as_ref().map_err(Clone::clone)?;
        let operation = Operation::of(call, target)?;
        access.allow(operation, call.of_blobs)?;
        let snapshot = call.snapshot()?;
        if snapshot.is_some() && !operation.is_for_snapshots() {
            return Err(Refusal::new("ShareSnapshotOperationNotSupported"));
        }
        let in_container = call.of_blobs || access.is_for_blob() || operation.is_of_blobs();
        let reads = matches!(operation, Operation::ReadFile | Operation::FileProperties) && snapshot.is_none();
        if access.sees_files(call) && !reads && !access.is_of_node() {
            return Err(Refusal::new("AuthorizationPermissionMismatch"));
        }
        let (of_snapshot, may_replace) = (snapshot.is_some(), access.may_replace());
        let (share, path) = (target.share.clone(), target.path.clone());
        let context = Context { service: &self.0, call, share, path, snapshot, in_container, may_replace };
        let answer = match operation {
            // Most of what is asked is small reads: they do not carry what the others would need.
            Operation::ReadFile => {
                self.tell_follower(call, access, context.path.as_str());
                download::read(context, access).await
            }
            _ => Box::pin(perform(operation, context, access, body)).await,
        }?;
        if answer.status().is_success() {
            self.tell(call, access, operation, target, of_snapshot);
        }
        Ok(answer)
    }
}
