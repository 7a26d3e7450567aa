//! Login with the real `az` and libraries: the first requests after it, and expiry and logout.

use serde_json::Value;

use super::harness::CommandOutput;
use super::real::RealSite;

/// Runs `az` with one more environment variable.
fn az_with(real: &RealSite, (name, value): (&str, &str), line: &str) -> CommandOutput {
    let mut command = real.site.command("az");
    command.args(line.split_whitespace()).env(name, value);
    CommandOutput::from(command.output().expect("az starts"))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}")).to_owned()
}

#[test]
fn a_real_az_logs_in_and_makes_a_group() {
    let Some(real) = RealSite::start() else { return };
    let made = real.az("group create -n first -l eastus").json();
    assert_eq!(made["properties"]["provisioningState"], "Succeeded", "{made}");
    assert_eq!(real.az("group show -n first").json(), made);
    assert_eq!(real.site.corro("group show -n first").json(), made);
}

#[test]
fn az_finds_its_subscription_regions_and_providers() {
    let Some(real) = RealSite::start() else { return };
    let subscription = real.own("subscription");
    let shown = real.az("account show").json();
    assert_eq!((text(&shown, "id"), text(&shown, "tenantId")), (subscription.clone(), real.own("tenant")));
    assert_eq!(real.az("account list --refresh").json()[0]["id"], shown["id"]);
    let token = real.az("account get-access-token").json();
    assert_eq!(text(&token, "subscription"), subscription);
    let regions = real.az("account list-locations --query [].name").json();
    assert!(regions.as_array().expect("a list").contains(&"eastus".into()), "{regions}");
    let providers = real.az("provider list --query [].namespace").json();
    assert!(providers.as_array().expect("a list").contains(&"Microsoft.BatchAI".into()), "{providers}");
    real.az("provider register -n Microsoft.BatchAI").ok();
    assert_eq!(real.az("provider show -n Microsoft.BatchAI --query registrationState").json(), "Registered");
    real.az("provider register -n Microsoft.Nothing")
        .fails(1, &["The resource namespace 'Microsoft.Nothing' is invalid"]);
    real.az("group create -n g -l eastus").ok();
    assert_eq!(real.az("group exists -n g").json(), true);
    assert_eq!(real.az("group exists -n other").json(), false);
    let workspace = real.az("batchai workspace create -g g -n w").json();
    assert_eq!(real.az("resource list -g g --query [].name").json(), serde_json::json!(["w"]));
    let as_resource = real.az(&format!("resource show --ids {}", text(&workspace, "id"))).json();
    assert_eq!(as_resource["properties"]["provisioningState"], "succeeded", "{as_resource}");
    assert_eq!(
        real.az("resource list --resource-type Microsoft.Storage/storageAccounts").json(),
        serde_json::json!([])
    );
}

#[test]
fn az_gets_login_errors_and_rights_by_role() {
    let Some(real) = RealSite::start() else { return };
    let (id, tenant) = (real.own("clientId"), real.own("tenant"));
    let log_in =
        |id: &str, secret: &str| real.az(&format!("login --service-principal -u {id} -p {secret} --tenant {tenant}"));
    log_in(&id, "wrong").fails(1, &["AADSTS7000215: The client id or secret is wrong"]);
    real.az("login --use-device-code").fails(1, &["AADSTS700016", "use a service principal"]);
    real.site.corro("group create -n g -l eastus").ok();
    let scope = format!("{}/resourceGroups/g", real.site.subscription());
    let reader = real.site.corro(&format!("ad sp create-for-rbac -n reader --role Reader --scopes {scope}")).json();
    // By the name in the response, as az itself does.
    log_in(&text(&reader, "name"), &text(&reader, "password")).ok();
    assert_eq!(real.az("group list --query [].name").json(), serde_json::json!(["g"]));
    real.az("group create -n h -l eastus").fails(1, &["does not have authorization to perform action"]);
    real.az("batchai workspace create -g g -n w").fails(1, &["does not have authorization"]);
    // It logs in anew for every request, so it notices a new password but no revoked tokens.
    real.site.corro("ad sp revoke-tokens --id reader").ok();
    real.az("group list").ok();
    let renewed = real.site.corro("ad sp reset-credentials -n reader").json();
    real.az("group list").fails(1, &["AADSTS7000215"]);
    log_in(&text(&reader, "appId"), &text(&renewed, "password")).ok();
    real.site.corro("ad sp delete --id reader").ok();
    real.az("group list").fails(1, &["AADSTS7000215"]);
}

#[test]
fn a_managed_identity_of_az_brings_its_secret() {
    let Some(real) = RealSite::start() else { return };
    let made = real.site.corro("ad sp create-for-rbac -n machine --role Contributor").json();
    let shown = format!("{}:{}", text(&made, "appId"), text(&made, "password"));
    let with_secret = ("MSI_ENDPOINT", format!("{}/oauth2/token", real.url().replace("://", &format!("://{shown}@"))));
    let without = ("MSI_ENDPOINT", format!("{}/oauth2/token", real.url()));
    az_with(&real, (without.0, &without.1), "login --identity").fails(1, &["401"]);
    let account = az_with(&real, (with_secret.0, &with_secret.1), "login --identity").json();
    assert_eq!(account[0]["tenantId"], real.own("tenant"));
    az_with(&real, (with_secret.0, &with_secret.1), "group create -n g -l eastus").ok();
}

#[test]
fn libraries_log_in_and_are_refused() {
    let Some(real) = RealSite::not_logged_in("az", &[]) else { return };
    real.site.corro("group create -n group -l eastus").ok();
    let reader = real.site.corro("ad sp create-for-rbac -n reader --role Reader").json();
    let (id, secret) = (text(&reader, "appId"), text(&reader, "password"));
    for environment in ["sdk1", "sdk2"] {
        let vars = [("READER_ID", id.as_str()), ("READER_SECRET", secret.as_str())];
        let Some(ended) = real.python(environment, "login.py", &vars) else { continue };
        ended.ok();
    }
}

#[test]
fn a_real_library_reaches_an_account_by_its_host_name() {
    let Some(real) = RealSite::not_logged_in("az", &[]) else { return };
    real.corro("group create -n first -l eastus").ok();
    real.corro("storage account create -g first -n secondaccount -l eastus --sku Standard_LRS").ok();
    let keys = real.corro("storage account keys list -g first -n secondaccount").json();
    let vars = [("ACCOUNT", "secondaccount"), ("KEY", keys[0]["value"].as_str().expect("a key"))];
    let Some(ended) = real.python("sdk12", "smoke.py", &vars) else { return };
    ended.ok();
}
