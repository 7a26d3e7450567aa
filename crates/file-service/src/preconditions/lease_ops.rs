//! Requests that take, keep and give back leases: of files, for ever, and of shares, for ever or for 15 to
//! 60 seconds. What a lease keeps others from is `guard`'s.

use axum::response::Response;
use corro_shares::SharePath;

use crate::context::Context;
use crate::preconditions::lease::{Action, Lease};
use crate::preconditions::lease_headers::{Of, lease_id};
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::response;

pub(crate) async fn change(context: Context<'_>, of: Of) -> Result<Response, Refusal> {
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
    let mut response = response::empty(status);
    let headers = response.headers_mut();
    response::set_stat(headers, &stat);
    match told {
        Action::Break { .. } => response::set(headers, "x-ms-lease-time", &lease.seconds_left(now).to_string()),
        Action::Release { .. } => {}
        _ => response::set(headers, "x-ms-lease-id", lease.id().unwrap_or_default()),
    }
    Ok(response)
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
