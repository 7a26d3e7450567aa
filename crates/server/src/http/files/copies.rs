//! Copying a file on this server: `x-ms-copy-source` on a PUT. The source is a URL of this server (its own address, or
//! `{account}.file.…`); nothing is ever fetched from elsewhere. A caller with the account's key may copy within the
//! account; any other source must carry a shared access signature that lets it be read.
//!
//! A copy that takes long goes on after the answer: its state is `pending` until it has ended. What is under way is in
//! memory only, so a copy that a crash cut off is told apart from one that is still running, and is `failed`.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::response::Response;
use corro_model::storage::sas::{Bearer, Permission, Resource, Sas};
use corro_shares::{Properties, ShareError, Shares, SnapshotId, Stat};
use tokio::time::timeout;

use super::{
    AddressStyle, Context, Inner, Place, about,
    access::{Access, link_refusal},
    call::{Call, Target, snapshot_in},
    refusal::Refusal,
    reply,
};

/// How long an answer waits for the end of its copy.
const WAIT: Duration = Duration::from_secs(10);

const ID: &str = "x-ms-copy-id";
const STATUS: &str = "x-ms-copy-status";
const DESCRIPTION: &str = "x-ms-copy-status-description";

/// Copies under way, by id; the flag says that they shall go on.
#[derive(Default)]
pub(super) struct Copies(Mutex<HashMap<String, Arc<AtomicBool>>>);

impl Copies {
    fn begin(&self, id: &str) -> Arc<AtomicBool> {
        let go_on = Arc::new(AtomicBool::new(true));
        self.running().insert(id.to_owned(), go_on.clone());
        go_on
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A copy that no one is making any more did not succeed.
    pub fn settle(&self, properties: &mut Properties) {
        let pending = properties.get(STATUS) == Some("pending");
        if pending && !properties.get(ID).is_some_and(|id| self.running().contains_key(id)) {
            keep(properties, STATUS, "failed");
            keep(properties, DESCRIPTION, "500 InternalError \"The server stopped in the middle of the copy.\"");
        }
    }
}

/// Where a copy comes from.
#[derive(Debug)]
struct Source {
    account: String,
    target: Target,
    snapshot: Option<SnapshotId>,
    /// The URL without its query: a signature is not to be kept.
    shown: String,
}

pub(super) async fn start(context: Context<'_>, access: &Access) -> Result<Response, Refusal> {
    let call = context.call;
    let source = source_of(context.service, call, access)?;
    let metadata = about::metadata(call)?;
    let id = uuid::Uuid::new_v4().to_string();
    let go_on = context.service.copies.begin(&id);
    let (service, place) = (context.service_handle(), context.place());
    let job = Job { id: id.clone(), source, metadata, go_on, now: (context.service.now)() };
    let mut copying = tokio::task::spawn_blocking(move || {
        let ended = job.run(&service.shares, &place);
        service.copies.running().remove(&job.id);
        ended
    });
    let (status, stat) = match timeout(WAIT, &mut copying).await {
        Ok(Ok(Ok(stat))) => ("success", Some(stat)),
        Ok(Ok(Err(error))) => return Err(missing_source(Refusal::from(error))),
        Ok(Err(_)) => return Err(Refusal::internal()), // it panicked, and the panic was reported
        Err(_) => ("pending", None),
    };
    let mut response = reply::empty(202);
    let headers = response.headers_mut();
    if let Some(stat) = stat {
        reply::set_stat(headers, &stat);
    }
    reply::set(headers, ID, &id);
    reply::set(headers, STATUS, status);
    Ok(response)
}

pub(super) async fn abort(context: Context<'_>) -> Result<Response, Refusal> {
    if !context.call.header("x-ms-copy-action").is_some_and(|action| action.eq_ignore_ascii_case("abort")) {
        return Err(Refusal::header("x-ms-copy-action"));
    }
    let (_, properties) = context
        .on_disk(|shares, place| place.open(shares)?.describe(&place.path))
        .await
        .map_err(Refusal::kind_as_missing)?;
    let id = context.call.parameter("copyid");
    let running = context.service.copies.running().get(id).filter(|_| properties.get(ID) == Some(id)).cloned();
    running.ok_or(Refusal::new("NoPendingCopyOperation"))?.store(false, Ordering::Relaxed);
    Ok(reply::empty(204))
}

struct Job {
    id: String,
    source: Source,
    metadata: Properties,
    go_on: Arc<AtomicBool>,
    now: i64,
}

impl Job {
    fn run(&self, shares: &Shares, place: &Place) -> Result<Stat, ShareError> {
        let Source { account, target, snapshot, shown } = &self.source;
        let source = match snapshot {
            None => shares.share(account, &target.share)?,
            Some(id) => shares.snapshot(account, &target.share, id)?,
        };
        let destination = place.open(shares)?;
        let (stat, mut properties) = source.describe(&target.path)?;
        super::shares::reserve(&destination, &place.path, stat.len)?;
        properties.retain(|name| !name.starts_with("x-ms-copy-"));
        if !self.metadata.is_empty() {
            about::replace_metadata(&mut properties, &self.metadata);
        }
        for (name, value) in [(ID, self.id.as_str()), (STATUS, "pending"), ("x-ms-copy-source", shown)] {
            keep(&mut properties, name, value);
        }
        let go_on = || self.go_on.load(Ordering::Relaxed);
        let copied = destination.copy_file(&place.path, (&source, &target.path), &properties, &go_on);
        let status = match &copied {
            Ok(_) => "success",
            Err(ShareError::CopyStopped(_)) => "aborted",
            Err(_) => return copied, // nothing is there to describe
        };
        let moved = copied.as_ref().map_or(0, |stat| stat.len);
        let ended = destination.change_properties(&place.path, |kept| {
            keep(kept, STATUS, status);
            keep(kept, "x-ms-copy-progress", &format!("{moved}/{}", stat.len));
            keep(kept, "x-ms-copy-completion-time", &reply::http_date_of(self.now));
        });
        copied.and(ended)
    }
}

/// Finds the source in the header, and whether the caller may read it.
fn source_of(service: &Inner, call: &Call, access: &Access) -> Result<Source, Refusal> {
    let url = call.header("x-ms-copy-source").ok_or(Refusal::header("x-ms-copy-source"))?;
    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let (account, style, raw_path) = locate(call, address).ok_or_else(|| {
        Refusal::new("CannotVerifyCopySource")
            .saying("The copy source is not a file of this server. Files can only be copied within it.")
    })?;
    let target = Target::parse(raw_path, style, &account).map_err(|_| Refusal::header("x-ms-copy-source"))?;
    if target.path.is_root() {
        return Err(Refusal::header("x-ms-copy-source"));
    }
    let within_account = matches!(access, Access::Owner(_)) && account == call.account;
    if !within_account {
        check_link(service, call, &account, &target, query)?;
    }
    let snapshot = snapshot_in(query)?;
    Ok(Source { account, target, snapshot, shown: address.to_owned() })
}

/// Account, style and raw path of a URL of this server.
fn locate<'u>(call: &Call, address: &'u str) -> Option<(String, AddressStyle, &'u str)> {
    let rest = address.strip_prefix("http://").or(address.strip_prefix("https://"))?;
    let at = rest.find('/')?;
    let (host, path) = rest.split_at(at);
    if let Some((account, domain)) = host.split_once('.')
        && domain.starts_with("file.")
        && corro_shares::is_account_name(account)
    {
        return Some((account.to_owned(), AddressStyle::Host, path));
    }
    let account = path.split('/').nth(1).filter(|name| corro_shares::is_account_name(name))?;
    (call.header("host") == Some(host)).then(|| (account.to_owned(), AddressStyle::Path, path))
}

fn check_link(service: &Inner, call: &Call, account: &str, target: &Target, query: &str) -> Result<(), Refusal> {
    let refused = || Refusal::new("CannotVerifyCopySource");
    let sas = Sas::from_query(query).ok_or_else(refused)?.map_err(link_refusal)?;
    let keys = service.keys.keys(account).ok_or_else(refused)?;
    let bearer = Bearer { address: call.address, over_tls: call.over_tls };
    sas.check(&keys, account, &target.share, target.path.as_str(), bearer, (service.now)()).map_err(|_| refused())?;
    // A link to something in a container opens no share of the same name.
    match sas.permits(Permission::Read) && sas.resource != Resource::Blob {
        true => Ok(()),
        false => Err(refused()),
    }
}

/// A destination that is missing says so itself; what is not found is the source.
fn missing_source(refusal: Refusal) -> Refusal {
    match refusal.code {
        "ResourceNotFound" | "ResourceTypeMismatch" => {
            Refusal::new("ResourceNotFound").saying("The file to be copied does not exist.")
        }
        _ => refusal,
    }
}

fn keep(properties: &mut Properties, name: &str, value: &str) {
    // Made here or printable ASCII from a header; one that is not is left out.
    let _ = properties.set(name, value);
}
