//! Who may do what, and who did what: principals and the history. Only the table in `arm` leads here.

use corro_model::arm::*;
use corro_model::batchai::Page;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::ops::*;
use corro_model::usage::{UsageBy, UsageReport};
use corro_model::{ApiError, Timestamp};

use super::Result;
use crate::app::App;
use crate::app::usage::Window;
use crate::http::answer::Answer;
use crate::http::call::Call;

pub async fn create_principal(app: App, call: Call<PrincipalCreateParameters>) -> Result<PrincipalCredential> {
    Ok(Answer::Ok(app.create_principal(call.body).await?))
}

pub async fn list_principals(app: App, call: Call<NoBody>) -> Result<Page<Principal>> {
    Ok(Answer::Ok(call.page(app.principals(), |principal| &principal.app_id)?))
}

pub async fn get_principal(app: App, call: Call<NoBody>) -> Result<Principal> {
    Ok(Answer::Ok(app.principal(&call.param("principal"))?))
}

pub async fn delete_principal(app: App, call: Call<NoBody>) -> Result<NoBody> {
    Ok(if app.delete_principal(call.param("principal")).await? { Answer::Done } else { Answer::Nothing })
}

pub async fn reset_principal(app: App, call: Call<NoBody>) -> Result<PrincipalCredential> {
    let years = call.query("years").map(|_| call.number("years", 1, 1..=MAX_YEARS)).transpose()?;
    Ok(Answer::Ok(app.reset_principal(call.param("principal"), years).await?))
}

pub async fn revoke_tokens(app: App, call: Call<NoBody>) -> Result<NoBody> {
    app.revoke_tokens(call.param("principal")).await?;
    Ok(Answer::Done)
}

// History

/// Query: `since`, `until`, `by`.
pub async fn usage(app: App, call: Call<NoBody>) -> Result<UsageReport> {
    let wrong = |name: &str, text: &str, use_: &str| {
        ApiError::new(400, "InvalidQueryParameterValue", format!("{name} is '{text}': {use_}")).about(name)
    };
    let time = |name: &str, otherwise: Timestamp| match call.query(name) {
        None => Ok(otherwise),
        Some(text) => Timestamp::parse(text).ok_or_else(|| wrong(name, text, "write a time as 2018-06-07T21:16:21Z")),
    };
    let now = app.now();
    let until = time("until", now)?;
    let since = time("since", Timestamp::from_millis(until.millis() - WEEK_MS))?;
    if since > until {
        return Err(wrong("since", &since.to_string(), "it must not be after until"));
    }
    let by = match call.query("by") {
        None => UsageBy::User,
        Some(text) => UsageBy::parse(text).ok_or_else(|| wrong("by", text, "use user, experiment, cluster or job"))?,
    };
    Ok(Answer::Ok(app.node_hours(Window { since, until }, now, by).await?))
}

const WEEK_MS: i64 = 7 * 24 * 3_600_000;

pub async fn history(app: App, call: Call<NoBody>) -> Result<Page<HistoryEntry>> {
    let limit = call.number("maxresults", 1000, 1..=1000)? as usize;
    let since = call.query("since").map(|text| {
        let message = format!("since is '{text}': write a time as 2018-06-07T21:16:21Z");
        Timestamp::parse(text).ok_or_else(|| ApiError::new(400, "InvalidQueryParameterValue", message).about("since"))
    });
    let before = call.number("marker", i64::MAX, 1..=i64::MAX)?;
    let text = |name: &str| call.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (resource, kind, actor) = (text("resource"), text("kind"), text("actor"));
    let after = call.query("after").map(|_| call.number("after", 0, 0..=i64::MAX)).transpose()?.map(|n| n as u64);
    let since = since.transpose()?;
    let before = Some(before as u64);
    let value = app.history(HistoryFilter { resource, kind, actor, since, before, after, limit }).await?;
    if after.is_some() {
        // Whoever reads forward goes on after the last number.
        return Ok(Answer::Ok(Page { value, next_link: None }));
    }
    let more = value.len() == limit;
    let next_link = value.last().filter(|_| more).map(|last| call.next_link(&last.number.to_string()));
    Ok(Answer::Ok(Page { value, next_link }))
}
