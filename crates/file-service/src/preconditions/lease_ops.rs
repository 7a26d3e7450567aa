//! Lease requests: acquire, renew, change, release, break. Leases of files are infinite; those of shares are infinite
//! or last 15 to 60 seconds.

use axum::response::Response;
use corro_shares::SharePath;

use crate::context::OperationContext;
use crate::preconditions::lease::{Action, Lease};
use crate::preconditions::lease_headers::{LeaseTarget, lease_id};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::response;

pub(crate) async fn handle(context: OperationContext<'_>, target: LeaseTarget) -> Result<Response, StorageError> {
    let (request, now) = (context.request, (context.state.now)());
    let action = parse_action(request, target)?;
    let status = match &action {
        Action::Acquire { .. } => 201,
        Action::Break { .. } => 202,
        Action::Renew { .. } | Action::Change { .. } | Action::Release { .. } => 200,
    };
    let reply_action = action.clone();
    let (stat, lease) = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            let path = match target {
                LeaseTarget::File => {
                    share.stat_file(&location.path)?;
                    &location.path
                }
                LeaseTarget::Share => &SharePath::ROOT,
            };
            share.change_properties_keep_mtime(path, |stored, _| {
                let lease = Lease::load(stored, now).apply(action, now).map_err(StorageError::new)?;
                lease.store(stored);
                Ok::<_, StorageError>(lease)
            })
        })
        .await
        .map_err(StorageError::type_mismatch_as_not_found)?;
    let mut response = response::empty(status);
    let headers = response.headers_mut();
    response::set_etag_and_modified(headers, &stat);
    match reply_action {
        Action::Break { .. } => response::set_header(headers, "x-ms-lease-time", &lease.seconds_left(now).to_string()),
        Action::Release { .. } => {}
        _ => response::set_header(headers, "x-ms-lease-id", lease.id().unwrap_or_default()),
    }
    Ok(response)
}

fn parse_action(request: &StorageRequest, target: LeaseTarget) -> Result<Action, StorageError> {
    let own = || lease_id(request, "x-ms-lease-id")?.ok_or(StorageError::missing_header("x-ms-lease-id"));
    let proposed = || lease_id(request, "x-ms-proposed-lease-id");
    let word = request.header("x-ms-lease-action").ok_or(StorageError::missing_header("x-ms-lease-action"))?;
    Ok(match (word.to_ascii_lowercase().as_str(), target) {
        ("acquire", _) => Action::Acquire {
            proposed: proposed()?.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            seconds: parse_duration(request, target)?,
        },
        ("renew", LeaseTarget::Share) => Action::Renew { id: own()? },
        ("change", _) => Action::Change {
            id: own()?,
            proposed: proposed()?.ok_or(StorageError::missing_header("x-ms-proposed-lease-id"))?,
        },
        ("release", _) => Action::Release { id: own()? },
        ("break", target) => Action::Break { after: parse_break_period(request, target)? },
        _ => return Err(StorageError::invalid_header("x-ms-lease-action")),
    })
}

/// `None` is infinite, the only duration for files.
fn parse_duration(request: &StorageRequest, target: LeaseTarget) -> Result<Option<i64>, StorageError> {
    const HEADER: &str = "x-ms-lease-duration";
    match (request.header(HEADER).map(|text| text.trim().parse::<i64>()), target) {
        (None, LeaseTarget::Share) => Err(StorageError::missing_header(HEADER)),
        (None, LeaseTarget::File) | (Some(Ok(-1)), _) => Ok(None),
        (Some(Ok(seconds @ 15..=60)), LeaseTarget::Share) => Ok(Some(seconds)),
        _ => Err(StorageError::invalid_header(HEADER)),
    }
}

fn parse_break_period(request: &StorageRequest, target: LeaseTarget) -> Result<Option<i64>, StorageError> {
    const HEADER: &str = "x-ms-lease-break-period";
    match (request.number(HEADER)?, target) {
        (None, _) => Ok(None),
        (Some(seconds @ 0..=60), LeaseTarget::Share) => Ok(Some(seconds as i64)),
        _ => Err(StorageError::invalid_header(HEADER)),
    }
}
