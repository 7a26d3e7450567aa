//! Storage accounts and their keys. Only the table in `arm` leads here.

use std::time::Duration;

use corro_model::arm::*;
use corro_model::batchai::{Page, Usage};
use corro_model::ops::*;

use super::Result;
use crate::app::App;
use crate::http::answer::Answer;
use crate::http::call::Call;

const ACCOUNT_PATIENCE: Duration = Duration::from_secs(30);

pub async fn create_account(app: App, call: Call<AccountCreateParameters>) -> Result<StorageAccount> {
    let (group, account) = (call.param("group"), call.param("account"));
    Ok(Answer::Ok(app.create_account(group, account, call.body, call.base_url).await?))
}

pub async fn update_account(app: App, call: Call<AccountUpdateParameters>) -> Result<StorageAccount> {
    let (group, account) = (call.param("group"), call.param("account"));
    Ok(Answer::Ok(app.update_account(group, account, call.body, call.base_url).await?))
}

pub async fn get_account(app: App, call: Call<NoBody>) -> Result<StorageAccount> {
    Ok(Answer::Ok(app.account(&call.param("group"), &call.param("account"), &call.base_url)?))
}

pub async fn list_accounts(app: App, call: Call<NoBody>) -> Result<Page<StorageAccount>> {
    let group = call.param("group");
    let group = (!group.is_empty()).then_some(group.as_str());
    let accounts = app.readable(app.accounts(group, &call.base_url)?, |account| &account.id);
    Ok(Answer::Ok(call.page(accounts, |account| &account.name)?))
}

pub async fn list_keys(app: App, call: Call<NoBody>) -> Result<AccountKeys> {
    Ok(Answer::Ok(app.account_keys(&call.param("group"), &call.param("account"))?))
}

pub async fn regenerate_key(app: App, call: Call<RegenerateKeyRequest>) -> Result<AccountKeys> {
    let (group, account) = (call.param("group"), call.param("account"));
    Ok(Answer::Ok(app.regenerate_key(group, account, call.body.key_name).await?))
}

pub async fn delete_account(app: App, call: Call<NoBody>) -> Result<NoBody> {
    Ok(match app.delete_account(call.param("group"), call.param("account")).await? {
        Some(operation) => {
            // This operation has no polling: it is answered when the files are gone, unless there are very many.
            app.operation_ends(&operation, ACCOUNT_PATIENCE).await;
            Answer::Done
        }
        None => Answer::Nothing,
    })
}

pub async fn check_account_name(app: App, call: Call<NameAvailabilityRequest>) -> Result<NameAvailability> {
    Ok(Answer::Ok(app.account_name_availability(&call.body.name)))
}

pub async fn usages(app: App, call: Call<NoBody>) -> Result<Page<Usage>> {
    let location = call.param("location");
    Ok(Answer::Ok(Page::whole(app.storage_usages((!location.is_empty()).then_some(location.as_str())))))
}
