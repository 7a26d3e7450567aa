//! Hosts and the tokens they join with: ours, beside the service's operations.

use corro_model::batchai::Page;
use corro_model::host::*;
use corro_model::ops::NoBody;

use super::{Answer, Call, Result};
use crate::app::App;

pub async fn create_token(app: App, call: Call<HostTokenParameters>) -> Result<HostTokenCreated> {
    Ok(Answer::Ok(app.create_host_token(call.body).await?))
}

pub async fn list_tokens(app: App, call: Call<NoBody>) -> Result<Page<HostToken>> {
    Ok(Answer::Ok(call.page(app.host_tokens(), |token| &token.id)?))
}

pub async fn revoke_token(app: App, call: Call<NoBody>) -> Result<NoBody> {
    Ok(if app.revoke_host_token(call.param("token")).await? { Answer::Done } else { Answer::Nothing })
}

pub async fn list(app: App, call: Call<NoBody>) -> Result<Page<Host>> {
    Ok(Answer::Ok(call.page(app.list_hosts(), |host| &host.name)?))
}

pub async fn get(app: App, call: Call<NoBody>) -> Result<Host> {
    Ok(Answer::Ok(app.host(&call.param("host"))?))
}

pub async fn cordon(app: App, call: Call<NoBody>) -> Result<Host> {
    Ok(Answer::Ok(app.cordon_host(call.param("host"), true).await?))
}

pub async fn uncordon(app: App, call: Call<NoBody>) -> Result<Host> {
    Ok(Answer::Ok(app.cordon_host(call.param("host"), false).await?))
}

pub async fn drain(app: App, call: Call<DrainParameters>) -> Result<Host> {
    Ok(Answer::Ok(app.drain_host(call.param("host"), call.body.now).await?))
}

/// Query: `now`.
pub async fn remove(app: App, call: Call<NoBody>) -> Result<NoBody> {
    let now = call.query("now").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Ok(if app.remove_host(call.param("host"), now).await? { Answer::Done } else { Answer::Nothing })
}
