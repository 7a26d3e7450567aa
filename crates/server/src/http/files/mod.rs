//! The Azure Files REST service over the share trees: what `az storage`, the SDKs, our CLI, remote
//! mounts and `job file stream` talk to. Entered through [`FileService::handle`] once the caller
//! has found out which account is meant. Knows nothing of jobs, stores or tokens. The blob service
//! over containers, which jobs mount too, is the same service with a few rooms of its own (`blobs`).
//!
//! Deny by default: nothing is looked up before the caller has shown a valid Shared Key signature
//! or shared access signature, and an account that does not exist answers like a wrong key. Paths
//! are decoded once, here, and from then on are [`corro_shares::SharePath`]s.
//!
//! Reading order: this file, `call` (what is asked), `operation` (the table of requests), `access`
//! (who may, with `policies` of shares and `proven` links), then the rooms that answer: `service`, `shares`, `containers`, `blobs`, `directories`,
//! `content`, `copies` and `renames` (with `sources`), `upload` (with `rooms`), `from_url` and `writing`, `download` (with `known`), `leases`, `permissions`,
//! `handles`, `symlinks`; `mounted` has what mounts on other machines need beyond the service, `scattered` what they write in many places at once; `cors` answers browsers. `guard` says what must hold before a file is changed (`lease`, `conditions`); `about` and `smb` read and
//! write what is kept beside content; `refusal` and `reply` write every answer.

mod about;
mod access;
mod blobs;
mod call;
mod conditions;
mod containers;
mod content;
mod copies;
mod cors;
mod crc64;
mod directories;
mod download;
mod from_url;
mod guard;
mod handles;
mod known;
mod lease;
mod leases;
mod ledger;
mod mounted;
mod operation;
mod permissions;
mod pieces;
mod policies;
mod proven;
mod range;
mod refusal;
mod renames;
mod reply;
mod rooms;
mod scattered;
mod service;
mod shares;
mod smb;
mod sources;
mod symlinks;
#[cfg(test)]
mod tests;
mod upload;
mod writing;
mod xml;
mod xml_read;

use std::sync::Arc;
use std::time::Instant;

use axum::{body::Body, extract::Request, response::Response};
use corro_model::storage::sas;
use corro_shares::{Kind, ShareError, SharePath, Shares, SnapshotId};
use tokio::task::spawn_blocking;

use self::ledger::{Sums, Telling, Who, telling};
use self::{
    access::Access, access::Admission, call::Call, call::Target, copies::Copies, leases::Of, operation::Operation,
    refusal::Refusal, rooms::Rooms,
};
use super::limits::{Asker, Limits, Verdict};
use super::standing::key_mark;

pub use self::ledger::{Ledger, Line};

/// Where the keys of storage accounts come from.
pub trait AccountKeys: Send + Sync + 'static {
    /// The decoded keys of an account; None when there is no such account.
    fn keys(&self, account: &str) -> Option<Arc<[Vec<u8>]>>;

    /// Whether the one a link was made for may still use it. Where nobody makes such links, nobody may.
    fn stands(&self, _by: &str) -> bool {
        false
    }

    /// Who loses something with a share that is deleted, in words.
    fn in_use(&self, _account: &str, _share: &str) -> Option<String> {
        None
    }
}

/// How the account was named in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressStyle {
    /// `http://{account}.file.{suffix}/{share}/…`
    Host,
    /// `http://{account}.blob.{suffix}/{container}/…`: the blob service.
    BlobHost,
    /// `http://{address}/{account}/{share}/…`
    Path,
    /// `http://{address}/{account}.blob/{container}/…`: the blob service.
    BlobPath,
}

/// Put into the extensions of requests that came over TLS. Without it a shared access signature
/// limited to https is refused. One limited to addresses needs
/// `axum::extract::ConnectInfo<std::net::SocketAddr>` there.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// The service; clones share everything.
#[derive(Clone)]
pub struct FileService(Arc<Inner>);

struct Inner {
    shares: Arc<Shares>,
    /// Trees that belong to no account, by the word that stands for one.
    beside: Vec<(&'static str, Arc<Shares>)>,
    keys: Arc<dyn AccountKeys>,
    limits: Arc<Limits>,
    now: fn() -> i64,
    uploads: Rooms,
    copies: Copies,
    appended: mounted::Appended,
    /// Nothing is told without one.
    ledger: Option<Arc<dyn Ledger>>,
    sums: Sums,
}

impl FileService {
    /// `now` gives unix seconds.
    pub fn new(shares: Arc<Shares>, keys: Arc<dyn AccountKeys>, limits: Arc<Limits>, now: fn() -> i64) -> Self {
        let uploads = Rooms::default();
        let (copies, sums, appended) = (Copies::default(), Sums::default(), mounted::Appended::default());
        let beside = Vec::new();
        FileService(Arc::new(Inner {
            shares,
            beside,
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
    pub fn telling(mut self, ledger: Arc<dyn Ledger>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").ledger = Some(ledger);
        self
    }

    /// Serves these trees too, to whoever has a link to one. Before the service is shared.
    pub fn beside(mut self, word: &'static str, shares: Arc<Shares>) -> Self {
        Arc::get_mut(&mut self.0).expect("nobody else has it yet").beside.push((word, shares));
        self
    }

    /// Tells what has been summed for long enough, or all of it when nothing more will come.
    pub fn tell_due(&self, all: bool) {
        if let Some(ledger) = &self.0.ledger {
            let now = (!all).then(Instant::now);
            self.0.sums.due(now).into_iter().for_each(|line| ledger.tell(line));
        }
    }

    /// Answers one request. `account` was found by the caller from the `Host` label or the first
    /// path segment, and `style` says which. The request's URI must be the one that came over the
    /// wire, for its raw path is what was signed.
    pub async fn handle(&self, account: &str, style: AddressStyle, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let call = Call::new(account, style, parts);
        let mut known = None;
        let answer = match cors::is_preflight(&call) {
            true => Box::pin(self.preflight(&call)).await,
            false => self.answer(&call, body, &mut known).await,
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
        let mut response = reply::stamp(&call, response);
        if call.headers.contains_key("origin") && call.method != http::Method::OPTIONS {
            let cors = Box::pin(self.cors(&call)).await.ok().flatten();
            cors::describe(response.headers_mut(), &call, cors.as_ref());
        }
        response
    }

    /// A browser's question, which nobody has signed.
    async fn preflight(&self, call: &Call) -> Result<Response, Refusal> {
        self.count(Asker::Stranger(call.from()), "without a valid signature from this address")?;
        cors::preflight(call, self.cors(call).await?.as_ref())
    }

    /// The account's rules for browsers; of one that does not exist there are none.
    async fn cors(&self, call: &Call) -> Result<Option<xml_read::Element>, Refusal> {
        if self.0.keys.keys(&call.account).is_none() {
            return Ok(None);
        }
        let (shares, account) = (self.0.shares_of(&call.account).clone(), call.account.clone());
        let read = spawn_blocking(move || shares.account_properties(&account));
        let properties = read.await.map_err(|_| Refusal::internal())??;
        Ok(service::cors_in(&properties))
    }

    /// Who was turned away. That something is missing or in the way is not news.
    fn tell_refusal(&self, call: &Call, actor: Option<&str>, status: u16, code: &str) {
        let Some(ledger) = self.0.ledger.as_ref().filter(|_| matches!(status, 401 | 403)) else { return };
        let (account, path) = (&call.account, &call.raw_path);
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_path_style = first.strip_suffix(".blob").unwrap_or(first) == account;
        let path = if is_path_style { path.clone() } else { format!("/{account}{path}") };
        ledger.refused(actor, &call.from(), call.method.as_str(), &path, status, code);
    }

    /// Before the file is looked at, so that what the caller gets is no older.
    fn tell_follower(&self, call: &Call, access: &Access, path: &str) {
        if let Some(ledger) = self.0.ledger.as_ref().filter(|_| download::follows(call, access)) {
            ledger.followed(&access.actor(&call.account), &call.from(), path);
        }
    }

    /// What was done. Things of which there are many are summed.
    fn tell(&self, call: &Call, access: &Access, operation: Operation, target: &Target, of_snapshot: bool) {
        let Some(ledger) = &self.0.ledger else { return };
        let Some(telling) = telling(operation, of_snapshot) else { return };
        let (account, share, address) = (call.account.clone(), target.share.clone(), call.from());
        let actor = access.actor(&call.account);
        match telling {
            Telling::Line(what) => {
                let detail = serde_json::Value::Null;
                ledger.tell(Line { actor, address, account, share, what, detail });
            }
            Telling::Counted(what) => {
                let who = Who { account, share, actor, address };
                let due = self.0.sums.add(who, what, target.path.as_str(), Instant::now());
                due.into_iter().for_each(|line| ledger.tell(line));
            }
        }
    }

    /// Who may come in at all. Whoever shows no valid signature is counted at its address, so that strangers cannot use
    /// up what an account may be asked.
    async fn admit(&self, call: &Call) -> Result<Access, Refusal> {
        let now = (self.0.now)();
        let keys = self.0.keys.keys(&call.account);
        let admitted = match access::authenticate(call, keys.as_ref(), now) {
            Ok(Admission::Access(access, signer)) => Ok((access, signer)),
            Ok(Admission::ByPolicy(sas, signer)) => {
                let policy = Box::pin(self.policy(call, &sas)).await?;
                access::under_policy(*sas, policy.as_ref(), call.bearer(), now).map(|access| (access, signer))
            }
            Err(refusal) => Err(refusal),
        };
        let admitted = admitted.and_then(|(access, signer)| match access.by() {
            Some(by) if !self.0.keys.stands(by) => Err(Refusal::revoked()),
            _ => Ok((access, signer)),
        });
        match admitted {
            Ok((access, signer)) => {
                if let (Some(behalf), Some(key)) = (&call.behalf, keys.as_ref().and_then(|keys| keys.get(signer))) {
                    // What is open ends with the key it was opened with.
                    behalf.of_key(&call.account, key_mark(key), access.by().unwrap_or_default());
                }
                Ok(access)
            }
            Err(refusal) => {
                self.count(Asker::Stranger(call.from()), "without a valid signature from this address")?;
                Err(refusal)
            }
        }
    }

    /// What the share or container of a link keeps under a name. One that is not there keeps nothing.
    async fn policy(&self, call: &Call, sas: &sas::Sas) -> Result<Option<sas::Policy>, Refusal> {
        let (shares, account) = (self.0.shares_of(&call.account).clone(), call.account.clone());
        let (share, is_of_blobs) = (call.target.clone()?.share, sas.resource.is_of_blobs());
        let read = spawn_blocking(move || {
            let tree = if is_of_blobs { shares.container(&account, &share) } else { shares.share(&account, &share) };
            tree?.describe(&SharePath::ROOT)
        });
        match read.await.map_err(|_| Refusal::internal())? {
            Ok((_, properties)) => Ok(policies::find(&properties, &sas.identifier)),
            Err(ShareError::ShareNotFound(_) | ShareError::ContainerNotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn count(&self, asker: Asker, who: &str) -> Result<(), Refusal> {
        match self.0.limits.take(asker, Instant::now()) {
            Verdict::Granted { .. } => Ok(()),
            Verdict::Wait(wait) => Err(Refusal::too_often(who, wait)),
        }
    }

    /// `known` becomes what a caller has shown who may come in.
    async fn answer(&self, call: &Call, body: Body, known: &mut Option<Access>) -> Result<Response, Refusal> {
        let access: &Access = known.insert(self.admit(call).await?);
        if let Err(refusal) = self.count(Asker::Account(call.account.clone()), "for this account") {
            Box::pin(upload::drain(body)).await;
            return Err(refusal);
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

/// Each operation in its room. Reads are so many that they go to theirs by themselves, see [`FileService::answer`].
async fn perform(operation: Operation, context: Context<'_>, access: &Access, body: Body) -> Result<Response, Refusal> {
    match operation {
        Operation::ServiceProperties => service::get(context).await,
        Operation::SetServiceProperties => service::set(context, body).await,
        Operation::ListShares => shares::list(context).await,
        Operation::CreateShare => shares::create(context).await,
        Operation::ShareProperties => shares::properties(context).await,
        Operation::SetShare => shares::set(context).await,
        Operation::ShareStats => shares::stats(context).await,
        Operation::CreateSnapshot => shares::snapshot(context).await,
        Operation::DeleteShare => shares::delete(context).await,
        Operation::UndeleteShare => shares::undelete(context).await,
        Operation::ShareAcl => policies::get(context).await,
        Operation::SetShareAcl => policies::set(context, body).await,
        Operation::LeaseShare => leases::change(context, Of::Share).await,
        Operation::Permission => permissions::get(context).await,
        Operation::CreatePermission => permissions::create(context, body).await,
        Operation::AccountInformation => Ok(containers::account()),
        Operation::ListBlobs => blobs::list(context).await,
        Operation::PutBlob => blobs::put(context, body).await,
        Operation::PutBlock => blobs::blocks::put(context, body).await,
        Operation::PutBlockList => blobs::blocks::commit(context, body).await,
        Operation::BlockList => blobs::blocks::list(context).await,
        Operation::ListContainers => containers::list(context).await,
        Operation::CreateContainer => containers::create(context).await,
        Operation::SetContainer => containers::set(context).await,
        Operation::ContainerProperties => containers::properties(context).await,
        Operation::DeleteContainer => containers::delete(context).await,
        Operation::CreateDirectory => directories::create(context).await,
        Operation::DirectoryProperties => directories::properties(context).await,
        Operation::SetDirectory => directories::set(context).await,
        Operation::ListDirectory => directories::list(context).await,
        Operation::RenameDirectory => renames::rename(context, access, Kind::Directory).await,
        Operation::DeleteDirectory => directories::delete(context).await,
        Operation::CreateFile => content::create(context).await,
        Operation::CopyFile => copies::start(context, access).await,
        Operation::AbortCopy => copies::abort(context).await,
        Operation::FileProperties => content::properties(context).await,
        Operation::SetFile => content::set(context).await,
        Operation::ListRanges => content::ranges(context).await,
        Operation::LeaseFile => leases::change(context, Of::File).await,
        Operation::RenameFile => renames::rename(context, access, Kind::File).await,
        Operation::DeleteFile if context.in_container && !access.sees_files(context.call) => {
            blobs::delete(context).await
        }
        Operation::DeleteFile => content::delete(context).await,
        Operation::CreateLink => symlinks::create(context).await,
        Operation::ReadLink => symlinks::read(context).await,
        Operation::WriteRange => upload::write(context, body).await,
        Operation::WriteRangeFromUrl => from_url::write(context, access).await,
        Operation::About => mounted::about(context).await,
        Operation::ListBriefly => mounted::list(context).await,
        Operation::Append => mounted::append(context, body).await,
        Operation::WriteRanges => scattered::write(context, body).await,
        Operation::SetModified => mounted::set_modified(context).await,
        Operation::Sync => mounted::sync(context).await,
        Operation::Room => mounted::room(context).await,
        Operation::ListHandles => handles::list(context).await,
        Operation::CloseHandles => handles::close(context).await,
        Operation::ReadFile => download::read(context, access).await,
    }
}

impl Inner {
    fn shares_of(&self, account: &str) -> &Arc<Shares> {
        self.beside.iter().find(|(word, _)| *word == account).map_or(&self.shares, |(_, shares)| shares)
    }
}

/// What an authorised operation works with.
struct Context<'a> {
    service: &'a Arc<Inner>,
    call: &'a Call,
    share: String,
    path: corro_shares::SharePath,
    snapshot: Option<SnapshotId>,
    in_container: bool,
    /// Whether the caller may replace what is there.
    may_replace: bool,
}

impl Context<'_> {
    fn place(&self) -> Place {
        Place {
            account: self.call.account.clone(),
            share: self.share.clone(),
            path: self.path.clone(),
            snapshot: self.snapshot.clone(),
            in_container: self.in_container,
        }
    }

    /// For work that outlives the answer.
    fn service_handle(&self) -> Arc<Inner> {
        self.service.clone()
    }

    /// Runs disk work on a blocking thread, with the account's name, the share's and the path.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Place) -> Result<T, ShareError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.decide_on_disk(|shares, place| work(shares, place).map_err(Refusal::from)).await
    }

    /// The same for work that may refuse what was asked after it has looked.
    async fn decide_on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shares, &Place) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let shares = self.service.shares_of(&self.call.account).clone();
        let place = self.place();
        match spawn_blocking(move || work(&shares, &place)).await {
            Ok(result) => result,
            Err(_) => Err(Refusal::internal()), // the work panicked, and the panic was reported
        }
    }
}

/// The thing on disk that a request is about.
struct Place {
    account: String,
    share: String,
    path: corro_shares::SharePath,
    snapshot: Option<SnapshotId>,
    in_container: bool,
}

impl Place {
    fn open(&self, shares: &Shares) -> Result<corro_shares::Share, ShareError> {
        match &self.snapshot {
            None if self.in_container => shares.container(&self.account, &self.share),
            None => shares.share(&self.account, &self.share),
            Some(id) => shares.snapshot(&self.account, &self.share, id),
        }
    }
}
