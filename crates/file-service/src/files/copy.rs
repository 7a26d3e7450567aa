//! Copying a file on this server: `x-ms-copy-source` on a PUT. What may be a source is said in `sources`.
//!
//! A copy that takes long goes on after the answer: its state is `pending` until it has ended. What is under way is in
//! memory only, so a copy that a crash cut off is told apart from one that is still running, and is `failed`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::response::Response;
use corro_model::storage::sas::Permission;
use corro_shares::{Kind, Properties, ShareError, Shares, Stat};
use tokio::time::timeout;

use crate::auth::Access;
use crate::context::running_copies::{ID, STATUS, keep};
use crate::context::{Context, Place};
use crate::files::copy_source::{self, Source};
use crate::preconditions::Guard;
use crate::preconditions::lease::Lease;
use crate::protocol::error::Refusal;
use crate::protocol::smb_properties::{self, Smb};
use crate::protocol::time_format::http_date_of;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;
use crate::shares::quota::reserve;

/// How long an answer waits for the end of its copy.
const WAIT: Duration = Duration::from_secs(10);

pub(crate) async fn start(context: Context<'_>, access: &Access) -> Result<Response, Refusal> {
    let call = context.call;
    let source = copy_source::find(&context, access, "x-ms-copy-source", Permission::Read).await?;
    let metadata = metadata_headers::metadata(call)?;
    let mut smb = Smb::of(call, Kind::File)?;
    let sets_archive = call.flag("x-ms-file-copy-set-archive")?;
    let ignores_read_only = call.flag("x-ms-file-copy-ignore-readonly")?;
    let guard = Guard::of(call, (context.service.now)())?.ignoring_read_only(ignores_read_only);
    let may_replace = context.may_replace;
    // Before anything is begun: what stands against the copy is said at once.
    smb = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_write(&share, &place.path)?;
            if !may_replace && share.lstat(&place.path).is_ok() {
                return Err(Refusal::new("AuthorizationPermissionMismatch"));
            }
            permissions::resolve(&mut smb, shares, place)?;
            Ok(smb)
        })
        .await?;
    let id = uuid::Uuid::new_v4().to_string();
    let go_on = context.service.copies.begin(&id);
    let (service, place) = (context.service_handle(), context.place());
    let job = Job { id: id.clone(), source, metadata, smb, sets_archive, go_on, now: (context.service.now)() };
    let mut copying = tokio::task::spawn_blocking(move || {
        let ended = job.run(service.shares_of(&place.account), &place);
        service.copies.running().remove(&job.id);
        ended
    });
    let (status, stat) = match timeout(WAIT, &mut copying).await {
        Ok(Ok(Ok(stat))) => ("success", Some(stat)),
        Ok(Ok(Err(refusal))) => return Err(missing_source(refusal)),
        Ok(Err(_)) => return Err(Refusal::internal()), // it panicked, and the panic was reported
        Err(_) => ("pending", None),
    };
    let mut response = response::empty(202);
    let headers = response.headers_mut();
    if let Some(stat) = stat {
        response::set_stat(headers, &stat);
    }
    response::set(headers, ID, &id);
    response::set(headers, STATUS, status);
    Ok(response)
}

pub(crate) async fn abort(context: Context<'_>) -> Result<Response, Refusal> {
    if !context.call.header("x-ms-copy-action").is_some_and(|action| action.eq_ignore_ascii_case("abort")) {
        return Err(Refusal::header("x-ms-copy-action"));
    }
    let guard = Guard::of(context.call, (context.service.now)())?;
    let (_, properties) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_write(&share, &place.path)?;
            Ok(share.describe(&place.path)?)
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let id = context.call.parameter("copyid");
    let running = context.service.copies.running().get(id).filter(|_| properties.get(ID) == Some(id)).cloned();
    running.ok_or(Refusal::new("NoPendingCopyOperation"))?.store(false, Ordering::Relaxed);
    Ok(response::empty(204))
}

struct Job {
    id: String,
    source: Source,
    metadata: Properties,
    smb: Smb,
    sets_archive: bool,
    go_on: Arc<AtomicBool>,
    now: i64,
}

impl Job {
    fn run(&self, shares: &Shares, place: &Place) -> Result<Stat, Refusal> {
        let Source { account, target, snapshot, shown } = &self.source;
        let source = match snapshot {
            None => shares.share(account, &target.share)?,
            Some(id) => shares.snapshot(account, &target.share, id)?,
        };
        let destination = place.open(shares)?;
        let (stat, mut properties) = source.describe_content(&target.path)?;
        reserve(&destination, &place.path, stat.len)?;
        properties.retain(|name| !name.starts_with("x-ms-copy-"));
        let before = destination.describe(&place.path).map(|(_, kept)| kept).unwrap_or_default();
        Lease::carry(&before, &mut properties);
        if let Some(key) = smb_properties::permission_key(&properties) {
            permissions::bring(shares, (account, &target.share), place, key)?;
        }
        if self.sets_archive {
            smb_properties::add_archive(&mut properties);
        }
        if !self.metadata.is_empty() {
            metadata_headers::replace_metadata(&mut properties, &self.metadata);
        }
        for (name, value) in [(ID, self.id.as_str()), (STATUS, "pending"), ("x-ms-copy-source", shown)] {
            keep(&mut properties, name, value);
        }
        let go_on = || self.go_on.load(Ordering::Relaxed);
        let copied = destination.copy_file(&place.path, (&source, &target.path), &properties, &go_on);
        let status = match &copied {
            Ok(_) => "success",
            Err(ShareError::CopyStopped(_)) => "aborted",
            Err(_) => return Ok(copied?), // nothing is there to describe
        };
        let moved = copied.as_ref().map_or(0, |stat| stat.len);
        let written = smb_properties::Shown::of(&stat, &source.describe_content(&target.path)?.1).written;
        let ended = destination.note_properties(&place.path, |kept, stat| {
            smb_properties::preserve_written(kept, &written, stat);
            self.smb.describe_new(kept, stat);
            keep(kept, STATUS, status);
            keep(kept, "x-ms-copy-progress", &format!("{moved}/{}", stat.len));
            keep(kept, "x-ms-copy-completion-time", &http_date_of(self.now));
            Ok::<_, Refusal>(())
        });
        copied?;
        Ok(ended?.0)
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
