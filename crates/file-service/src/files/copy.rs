//! Copies a file within this server (`x-ms-copy-source` on a PUT).
//!
//! A long copy continues after the response: its status is `pending` until it ends. The registry of running copies is
//! in memory only, so a copy interrupted by a crash is reported as `failed`.

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

use crate::auth::Grant;
use crate::context::running_copies::{COPY_ID, COPY_STATUS, set_property};
use crate::context::{Location, OperationContext};
use crate::files::copy_source::{self, Source};
use crate::preconditions::Preconditions;
use crate::preconditions::lease::Lease;
use crate::protocol::error::StorageError;
use crate::protocol::smb_properties::{self, SmbSettings};
use crate::protocol::time_format::http_date_of;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;
use crate::shares::quota::check_quota;

/// Time that the response waits for the copy to finish.
const RESPONSE_WAIT: Duration = Duration::from_secs(10);

pub(crate) async fn start(context: OperationContext<'_>, grant: &Grant) -> Result<Response, StorageError> {
    let request = context.request;
    let source = copy_source::resolve(&context, grant, "x-ms-copy-source", Permission::Read).await?;
    let metadata = metadata_headers::parse_metadata(request)?;
    let mut smb = SmbSettings::parse(request, Kind::File)?;
    let sets_archive = request.flag("x-ms-file-copy-set-archive")?;
    let ignores_read_only = request.flag("x-ms-file-copy-ignore-readonly")?;
    let preconditions = Preconditions::parse(request, (context.state.now)())?.ignoring_read_only(ignores_read_only);
    let may_replace = context.may_replace;
    // Checked before the copy starts, so that the response can report it.
    smb = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            preconditions.check_write(&share, &location.path)?;
            if !may_replace && share.lstat(&location.path).is_ok() {
                return Err(StorageError::new("AuthorizationPermissionMismatch"));
            }
            permissions::resolve(&mut smb, shares, location)?;
            Ok(smb)
        })
        .await?;
    let id = uuid::Uuid::new_v4().to_string();
    let keep_going = context.state.copies.begin(&id);
    let (service, location) = (context.state_handle(), context.location());
    let task = CopyTask { id: id.clone(), source, metadata, smb, sets_archive, keep_going, now: (context.state.now)() };
    let mut copying = tokio::task::spawn_blocking(move || {
        let ended = task.run(service.shares_of(&location.account), &location);
        service.copies.running().remove(&task.id);
        ended
    });
    let (status, stat) = match timeout(RESPONSE_WAIT, &mut copying).await {
        Ok(Ok(Ok(stat))) => ("success", Some(stat)),
        Ok(Ok(Err(error))) => return Err(as_source_not_found(error)),
        Ok(Err(_)) => return Err(StorageError::internal()), // a panic, which the panic hook has reported
        Err(_) => ("pending", None),
    };
    let mut response = response::empty(202);
    let headers = response.headers_mut();
    if let Some(stat) = stat {
        response::set_etag_and_modified(headers, &stat);
    }
    response::set_header(headers, COPY_ID, &id);
    response::set_header(headers, COPY_STATUS, status);
    Ok(response)
}

pub(crate) async fn abort(context: OperationContext<'_>) -> Result<Response, StorageError> {
    if !context.request.header("x-ms-copy-action").is_some_and(|action| action.eq_ignore_ascii_case("abort")) {
        return Err(StorageError::invalid_header("x-ms-copy-action"));
    }
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    let (_, properties) = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            preconditions.check_write(&share, &location.path)?;
            Ok(share.describe(&location.path)?)
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    let id = context.request.parameter("copyid");
    let running = context.state.copies.running().get(id).filter(|_| properties.get(COPY_ID) == Some(id)).cloned();
    running.ok_or(StorageError::new("NoPendingCopyOperation"))?.store(false, Ordering::Relaxed);
    Ok(response::empty(204))
}

struct CopyTask {
    id: String,
    source: Source,
    metadata: Properties,
    smb: SmbSettings,
    sets_archive: bool,
    keep_going: Arc<AtomicBool>,
    now: i64,
}

impl CopyTask {
    fn run(&self, shares: &Shares, location: &Location) -> Result<Stat, StorageError> {
        let Source { account, target, snapshot, url } = &self.source;
        let source = match snapshot {
            None => shares.share(account, &target.share)?,
            Some(id) => shares.snapshot(account, &target.share, id)?,
        };
        let destination = location.open(shares)?;
        let (stat, mut properties) = source.describe_content(&target.path)?;
        check_quota(&destination, &location.path, stat.len)?;
        properties.retain(|name| !name.starts_with("x-ms-copy-"));
        let before = destination.describe(&location.path).map(|(_, stored)| stored).unwrap_or_default();
        Lease::copy(&before, &mut properties);
        if let Some(key) = smb_properties::permission_key(&properties) {
            permissions::copy_descriptor(shares, (account, &target.share), location, key)?;
        }
        if self.sets_archive {
            smb_properties::add_archive(&mut properties);
        }
        if !self.metadata.is_empty() {
            metadata_headers::replace_metadata(&mut properties, &self.metadata);
        }
        for (name, value) in [(COPY_ID, self.id.as_str()), (COPY_STATUS, "pending"), ("x-ms-copy-source", url)] {
            set_property(&mut properties, name, value);
        }
        let keep_going = || self.keep_going.load(Ordering::Relaxed);
        let copied = destination.copy_file(&location.path, (&source, &target.path), &properties, &keep_going);
        let status = match &copied {
            Ok(_) => "success",
            Err(ShareError::CopyStopped(_)) => "aborted",
            Err(_) => return Ok(copied?), // the destination does not exist
        };
        let moved = copied.as_ref().map_or(0, |stat| stat.len);
        let written = smb_properties::SmbProperties::load(&stat, &source.describe_content(&target.path)?.1).written;
        let ended = destination.change_properties_keep_mtime(&location.path, |stored, stat| {
            smb_properties::keep_last_write_time(stored, &written, stat);
            self.smb.apply_to_new(stored, stat);
            set_property(stored, COPY_STATUS, status);
            set_property(stored, "x-ms-copy-progress", &format!("{moved}/{}", stat.len));
            set_property(stored, "x-ms-copy-completion-time", &http_date_of(self.now));
            Ok::<_, StorageError>(())
        });
        copied?;
        Ok(ended?.0)
    }
}

/// A missing destination has error codes of its own, so `ResourceNotFound` means the source.
fn as_source_not_found(error: StorageError) -> StorageError {
    match error.code {
        "ResourceNotFound" | "ResourceTypeMismatch" => {
            StorageError::new("ResourceNotFound").with_message("The file to be copied does not exist.")
        }
        _ => error,
    }
}
