//! Hosts and their join tokens (Corro's extension of the API).

use corro_model::batchai::Page;
use corro_model::host::*;
use corro_model::ops::NoBody;

use super::{ArmRequest, ArmResponse, Result};
use crate::app::App;

pub async fn create_token(app: App, request: ArmRequest<HostTokenParameters>) -> Result<HostTokenCreated> {
    Ok(ArmResponse::Ok(app.create_host_token(request.body).await?))
}

pub async fn list_tokens(app: App, request: ArmRequest<NoBody>) -> Result<Page<HostToken>> {
    Ok(ArmResponse::Ok(request.page(app.host_tokens(), |token| &token.id)?))
}

pub async fn revoke_token(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    Ok(if app.revoke_host_token(request.param("token")).await? { ArmResponse::OkEmpty } else { ArmResponse::NoContent })
}

pub async fn list(app: App, request: ArmRequest<NoBody>) -> Result<Page<Host>> {
    Ok(ArmResponse::Ok(request.page(app.list_hosts(), |host| &host.name)?))
}

pub async fn get(app: App, request: ArmRequest<NoBody>) -> Result<Host> {
    Ok(ArmResponse::Ok(app.host(&request.param("host"))?))
}

pub async fn cordon(app: App, request: ArmRequest<NoBody>) -> Result<Host> {
    Ok(ArmResponse::Ok(app.cordon_host(request.param("host"), true).await?))
}

pub async fn uncordon(app: App, request: ArmRequest<NoBody>) -> Result<Host> {
    Ok(ArmResponse::Ok(app.cordon_host(request.param("host"), false).await?))
}

pub async fn drain(app: App, request: ArmRequest<DrainParameters>) -> Result<Host> {
    Ok(ArmResponse::Ok(app.drain_host(request.param("host"), request.body.now).await?))
}

/// Query: `now`.
pub async fn remove(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    let now = request.query("now").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Ok(if app.remove_host(request.param("host"), now).await? { ArmResponse::OkEmpty } else { ArmResponse::NoContent })
}
