//! Publishes a staged file as a blob, in one step.

use axum::response::Response;
use corro_shares::{Draft, Properties, Shares, Stat};

use crate::context::{Context, Place};
use crate::files::file_ops::replaced;
use crate::preconditions::Guard;
use crate::preconditions::lease::Lease;
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::{metadata_headers, response};

/// How a draft becomes a blob: what is kept with it, and what must hold.
pub(crate) struct Publication {
    pub properties: Properties,
    guard: Guard,
    may_replace: bool,
    /// Only if there is none of the name.
    is_new: bool,
}

impl Publication {
    pub fn of(context: &Context<'_>) -> Result<Self, Refusal> {
        let call = context.call;
        let is_new = call.header("if-none-match").is_some_and(|tags| tags.trim() == "*");
        let guard = Guard::of(call, (context.service.now)())?;
        // Said by the step that makes it, so that of two who ask at once one is refused.
        let guard = if is_new { guard.unconditional() } else { guard };
        Ok(Publication { properties: metadata_headers::of(call)?, guard, may_replace: context.may_replace, is_new })
    }

    pub fn perform(self, shares: &Shares, place: &Place, draft: Draft) -> Result<Stat, Refusal> {
        let Publication { mut properties, guard, may_replace, is_new } = self;
        let container = place.open(shares)?;
        // A directory is no blob: whether it can make room for one is seen when it must.
        match guard.check_write(&container, &place.path) {
            Err(refusal) if refusal.code == "ResourceNotFound" => {}
            checked => checked?,
        }
        if let Ok((_, before)) = container.describe(&place.path) {
            Lease::carry(&before, &mut properties);
        }
        let replace = may_replace && !is_new;
        let published = draft.publish(&container, &place.path, replace, &properties);
        published.map_err(|error| if is_new { error.into() } else { replaced(error, may_replace) })
    }
}

/// The answer to one that was written.
pub(crate) fn written(stat: &Stat) -> Response {
    let mut response = response::empty(201);
    response::set_stat(response.headers_mut(), stat);
    response::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}

pub(crate) fn body_length(call: &Call) -> Result<u64, Refusal> {
    match call.number("content-length")? {
        None => Err(Refusal::new("MissingContentLengthHeader")),
        Some(len) if len > MAX_BODY => Err(Refusal::new("RequestBodyTooLarge")
            .saying("The body is larger than 5000 MiB, the most for one request: upload the blob in blocks.")),
        Some(len) => Ok(len),
    }
}

/// The service's largest body of one request: 5000 MiB.
const MAX_BODY: u64 = 5000 << 20;
