//! Who may do what, and who did what: principals and the history. Only the table in `arm` leads here.

use corro_model::arm::*;
use corro_model::batchai::Page;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::ops::*;
use corro_model::{ApiError, Timestamp};

use super::Result;
use crate::app::App;
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

pub async fn history(app: App, call: Call<NoBody>) -> Result<Page<HistoryEntry>> {
    let limit = call.number("maxresults", 1000, 1..=1000)? as usize;
    let since = call.query("since").map(|text| {
        let message = format!("since is '{text}': write a time as 2018-06-07T21:16:21Z");
        Timestamp::parse(text).ok_or_else(|| ApiError::new(400, "InvalidQueryParameterValue", message).about("since"))
    });
    let before = call.number("marker", i64::MAX, 1..=i64::MAX)?;
    let text = |name: &str| call.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (resource, kind, actor) = (text("resource"), text("kind"), text("actor"));
    let filter = HistoryFilter { resource, kind, actor, since: since.transpose()?, before: Some(before as u64), limit };
    let value = app.history(filter).await?;
    let more = value.len() == limit;
    let next_link = value.last().filter(|_| more).map(|last| call.next_link(&last.number.to_string()));
    Ok(Answer::Ok(Page { value, next_link }))
}
