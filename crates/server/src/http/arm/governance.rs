//! Principals, history and usage.

use corro_model::arm::*;
use corro_model::batchai::Page;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::ops::*;
use corro_model::usage::{UsageBy, UsageReport};
use corro_model::{ApiError, Timestamp};

use super::Result;
use crate::app::App;
use crate::app::history::node_hours::Window;
use crate::http::arm_request::ArmRequest;
use crate::http::response::ArmResponse;

pub async fn create_principal(app: App, request: ArmRequest<PrincipalCreateParameters>) -> Result<PrincipalCredential> {
    Ok(ArmResponse::Ok(app.create_principal(request.body).await?))
}

pub async fn list_principals(app: App, request: ArmRequest<NoBody>) -> Result<Page<Principal>> {
    Ok(ArmResponse::Ok(request.page(app.principals(), |principal| &principal.app_id)?))
}

pub async fn get_principal(app: App, request: ArmRequest<NoBody>) -> Result<Principal> {
    Ok(ArmResponse::Ok(app.principal(&request.param("principal"))?))
}

pub async fn delete_principal(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    Ok(if app.delete_principal(request.param("principal")).await? {
        ArmResponse::OkEmpty
    } else {
        ArmResponse::NoContent
    })
}

pub async fn reset_principal(app: App, request: ArmRequest<NoBody>) -> Result<PrincipalCredential> {
    let years = request.query("years").map(|_| request.int_param("years", 1, 1..=MAX_YEARS)).transpose()?;
    Ok(ArmResponse::Ok(app.reset_principal(request.param("principal"), years).await?))
}

pub async fn revoke_tokens(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    app.revoke_tokens(request.param("principal")).await?;
    Ok(ArmResponse::OkEmpty)
}

pub async fn caller(app: App, _request: ArmRequest<NoBody>) -> Result<CallerIdentity> {
    Ok(ArmResponse::Ok(app.caller_identity()))
}

pub async fn server(app: App, _request: ArmRequest<NoBody>) -> Result<ServerStatus> {
    Ok(ArmResponse::Ok(app.server_status()))
}

// History

/// Query: `since`, `until`, `by`.
pub async fn usage(app: App, request: ArmRequest<NoBody>) -> Result<UsageReport> {
    let wrong = |name: &str, text: &str, use_: &str| {
        ApiError::new(400, "InvalidQueryParameterValue", format!("{name} is '{text}': {use_}")).about(name)
    };
    let time = |name: &str, otherwise: Timestamp| match request.query(name) {
        None => Ok(otherwise),
        Some(text) => Timestamp::parse(text).ok_or_else(|| wrong(name, text, "write a time as 2018-06-07T21:16:21Z")),
    };
    let now = app.now();
    let until = time("until", now)?;
    let since = time("since", Timestamp::from_millis(until.millis() - WEEK_MS))?;
    if since > until {
        return Err(wrong("since", &since.to_string(), "it must not be after until"));
    }
    let by = match request.query("by") {
        None => UsageBy::User,
        Some(text) => UsageBy::parse(text).ok_or_else(|| wrong("by", text, "use user, experiment, cluster or job"))?,
    };
    Ok(ArmResponse::Ok(app.node_hours(Window { since, until }, now, by).await?))
}

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

pub async fn history(app: App, request: ArmRequest<NoBody>) -> Result<Page<HistoryEntry>> {
    let limit = request.int_param("maxresults", 1000, 1..=1000)? as usize;
    let since = request.query("since").map(|text| {
        let message = format!("since is '{text}': write a time as 2018-06-07T21:16:21Z");
        Timestamp::parse(text).ok_or_else(|| ApiError::new(400, "InvalidQueryParameterValue", message).about("since"))
    });
    let before = request.int_param("marker", i64::MAX, 1..=i64::MAX)?;
    let text = |name: &str| request.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (resource, kind, actor) = (text("resource"), text("kind"), text("actor"));
    let after =
        request.query("after").map(|_| request.int_param("after", 0, 0..=i64::MAX)).transpose()?.map(|n| n as u64);
    let since = since.transpose()?;
    let before = Some(before as u64);
    let value = app.history(HistoryFilter { resource, kind, actor, since, before, after, limit }).await?;
    if after.is_some() {
        // Forward readers continue after the last number.
        return Ok(ArmResponse::Ok(Page { value, next_link: None }));
    }
    let more = value.len() == limit;
    let next_link = value.last().filter(|_| more).map(|last| request.next_link(&last.number.to_string()));
    Ok(ArmResponse::Ok(Page { value, next_link }))
}
