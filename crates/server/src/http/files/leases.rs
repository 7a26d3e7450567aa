//! Requests that take, keep and give back leases: of files, for ever, and of shares, for ever or for 15 to
//! 60 seconds. What a lease keeps others from is `guard`'s.

use axum::response::Response;
use corro_shares::SharePath;
use http::HeaderMap;

use super::{
    Context,
    call::Call,
    lease::{Action, Lease},
    refusal::Refusal,
    reply,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    File,
    Share,
}

pub(super) async fn change(context: Context<'_>, of: Of) -> Result<Response, Refusal> {
    let (call, now) = (context.call, (context.service.now)());
    let action = action_of(call, of)?;
    let status = match &action {
        Action::Acquire { .. } => 201,
        Action::Break { .. } => 202,
        Action::Renew { .. } | Action::Change { .. } | Action::Release { .. } => 200,
    };
    let told = action.clone();
    let (stat, lease) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let path = match of {
                Of::File => {
                    share.stat_file(&place.path)?;
                    &place.path
                }
                Of::Share => &SharePath::ROOT,
            };
            share.note_properties(path, |kept, _| {
                let lease = Lease::of(kept, now).next(action, now).map_err(Refusal::new)?;
                lease.keep(kept);
                Ok::<_, Refusal>(lease)
            })
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let mut response = reply::empty(status);
    let headers = response.headers_mut();
    reply::set_stat(headers, &stat);
    match told {
        Action::Break { .. } => reply::set(headers, "x-ms-lease-time", &lease.seconds_left(now).to_string()),
        Action::Release { .. } => {}
        _ => reply::set(headers, "x-ms-lease-id", lease.id().unwrap_or_default()),
    }
    Ok(response)
}

/// Since this version answers about shares tell of leases; older clients take them for a mistake.
const SHARE_LEASE_VERSION: &str = "2020-02-10";
/// The same for files.
const FILE_LEASE_VERSION: &str = "2019-02-02";

pub(super) fn are_told_of_shares(call: &Call) -> bool {
    call.version.as_str() >= SHARE_LEASE_VERSION
}

pub(super) fn are_told_of_files(call: &Call) -> bool {
    call.version.as_str() >= FILE_LEASE_VERSION
}

/// State, status and duration of a lease, for whoever asks about its thing.
pub(super) fn describe(headers: &mut HeaderMap, lease: &Lease) {
    reply::set(headers, "x-ms-lease-status", lease.status());
    reply::set(headers, "x-ms-lease-state", lease.state());
    if let Some(duration) = lease.duration() {
        reply::set(headers, "x-ms-lease-duration", duration);
    }
}

fn action_of(call: &Call, of: Of) -> Result<Action, Refusal> {
    let own = || lease_id(call, "x-ms-lease-id")?.ok_or(Refusal::missing_header("x-ms-lease-id"));
    let proposed = || lease_id(call, "x-ms-proposed-lease-id");
    let word = call.header("x-ms-lease-action").ok_or(Refusal::missing_header("x-ms-lease-action"))?;
    Ok(match (word.to_ascii_lowercase().as_str(), of) {
        ("acquire", _) => Action::Acquire {
            proposed: proposed()?.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
            seconds: duration_of(call, of)?,
        },
        ("renew", Of::Share) => Action::Renew { id: own()? },
        ("change", _) => Action::Change {
            id: own()?,
            proposed: proposed()?.ok_or(Refusal::missing_header("x-ms-proposed-lease-id"))?,
        },
        ("release", _) => Action::Release { id: own()? },
        ("break", of) => Action::Break { after: break_period_of(call, of)? },
        _ => return Err(Refusal::header("x-ms-lease-action")),
    })
}

/// None is for ever, which is all that a file can be leased for.
fn duration_of(call: &Call, of: Of) -> Result<Option<i64>, Refusal> {
    const HEADER: &str = "x-ms-lease-duration";
    match (call.header(HEADER).map(|text| text.trim().parse::<i64>()), of) {
        (None, Of::Share) => Err(Refusal::missing_header(HEADER)),
        (None, Of::File) | (Some(Ok(-1)), _) => Ok(None),
        (Some(Ok(seconds @ 15..=60)), Of::Share) => Ok(Some(seconds)),
        _ => Err(Refusal::header(HEADER)),
    }
}

fn break_period_of(call: &Call, of: Of) -> Result<Option<i64>, Refusal> {
    const HEADER: &str = "x-ms-lease-break-period";
    match (call.number(HEADER)?, of) {
        (None, _) => Ok(None),
        (Some(seconds @ 0..=60), Of::Share) => Ok(Some(seconds as i64)),
        _ => Err(Refusal::header(HEADER)),
    }
}

/// Ids are GUIDs, in one spelling.
pub(super) fn lease_id(call: &Call, header: &'static str) -> Result<Option<String>, Refusal> {
    if !call.headers.contains_key(header) {
        return Ok(None);
    }
    let id = call.header(header).and_then(|text| uuid::Uuid::parse_str(text.trim()).ok());
    id.map(|id| Some(id.to_string())).ok_or(Refusal::header(header))
}
