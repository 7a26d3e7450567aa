//! Storage accounts and their keys.

use std::time::Duration;

use corro_model::arm::*;
use corro_model::batchai::{Page, Usage};
use corro_model::ops::*;

use super::Result;
use crate::app::App;
use crate::http::arm_request::ArmRequest;
use crate::http::response::ArmResponse;

const ACCOUNT_DELETION_WAIT: Duration = Duration::from_secs(30);

pub async fn create_account(app: App, request: ArmRequest<AccountCreateParameters>) -> Result<StorageAccount> {
    let (group, account) = (request.param("group"), request.param("account"));
    Ok(ArmResponse::Ok(app.create_account(group, account, request.body, request.base_url).await?))
}

pub async fn update_account(app: App, request: ArmRequest<AccountUpdateParameters>) -> Result<StorageAccount> {
    let (group, account) = (request.param("group"), request.param("account"));
    Ok(ArmResponse::Ok(app.update_account(group, account, request.body, request.base_url).await?))
}

pub async fn get_account(app: App, request: ArmRequest<NoBody>) -> Result<StorageAccount> {
    Ok(ArmResponse::Ok(app.account(&request.param("group"), &request.param("account"), &request.base_url)?))
}

pub async fn list_accounts(app: App, request: ArmRequest<NoBody>) -> Result<Page<StorageAccount>> {
    let group = request.param("group");
    let group = (!group.is_empty()).then_some(group.as_str());
    let accounts = app.filter_readable(app.accounts(group, &request.base_url)?, |account| &account.id);
    Ok(ArmResponse::Ok(request.page(accounts, |account| &account.name)?))
}

pub async fn list_keys(app: App, request: ArmRequest<NoBody>) -> Result<AccountKeys> {
    Ok(ArmResponse::Ok(app.account_keys(&request.param("group"), &request.param("account"))?))
}

pub async fn regenerate_key(app: App, request: ArmRequest<RegenerateKeyRequest>) -> Result<AccountKeys> {
    let (group, account) = (request.param("group"), request.param("account"));
    Ok(ArmResponse::Ok(app.regenerate_key(group, account, request.body.key_name).await?))
}

pub async fn delete_account(app: App, request: ArmRequest<NoBody>) -> Result<NoBody> {
    Ok(match app.delete_account(request.param("group"), request.param("account")).await? {
        Some(operation) => {
            // The API has no polling for this operation: the response waits until the files are removed, for a bounded time.
            app.wait_for_operation(&operation, ACCOUNT_DELETION_WAIT).await;
            ArmResponse::OkEmpty
        }
        None => ArmResponse::NoContent,
    })
}

pub async fn check_account_name(app: App, request: ArmRequest<NameAvailabilityRequest>) -> Result<NameAvailability> {
    Ok(ArmResponse::Ok(app.account_name_availability(&request.body.name)))
}

pub async fn usages(app: App, request: ArmRequest<NoBody>) -> Result<Page<Usage>> {
    let location = request.param("location");
    Ok(ArmResponse::Ok(Page::whole(app.storage_usages((!location.is_empty()).then_some(location.as_str())))))
}
