//! Requests that read and set the stored access policies of a share or container (`comp=acl`).

use axum::{body::Body, response::Response};
use corro_shares::SharePath;

use crate::auth::stored_policies::{document, keep, kept_in, parse};
use crate::context::Context;
use crate::limits::request_body;
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::response;

pub(crate) async fn get(context: Context<'_>) -> Result<Response, Refusal> {
    let guard = Guard::of(context.call, (context.service.now)())?;
    let (stat, policies) = context
        .decide_on_disk(move |shares, place| {
            let (stat, properties) = place.open(shares)?.describe(&SharePath::ROOT)?;
            guard.check_share(&properties, false)?;
            Ok((stat, kept_in(&properties)))
        })
        .await?;
    let mut response = response::document(document(&policies));
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn set(context: Context<'_>, body: Body) -> Result<Response, Refusal> {
    let body = request_body::read_whole(context.call, body, MAX_BODY).await?;
    let policies = parse(&body)?;
    let guard = Guard::of(context.call, (context.service.now)())?;
    let stat = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_share(&share.describe(&SharePath::ROOT)?.1, false)?;
            Ok(share.change_properties(&SharePath::ROOT, |kept| keep(kept, &policies))?)
        })
        .await?;
    let mut response = response::empty(200);
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

const MAX_BODY: u64 = 64 << 10;
