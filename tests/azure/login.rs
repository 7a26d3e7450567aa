//! Logging in with the real clients, and the first things they ask for.

use super::real::RealSite;

#[test]
fn a_real_az_logs_in_and_makes_a_group() {
    let Some(real) = RealSite::start() else { return };
    let made = real.az("group create -n first -l eastus").json();
    assert_eq!(made["properties"]["provisioningState"], "Succeeded", "{made}");
    assert_eq!(real.az("group show -n first").json(), made);
    assert_eq!(real.corro("group show -n first").json(), made);
}

#[test]
fn a_real_library_reaches_an_account_by_its_host_name() {
    let Some(real) = RealSite::not_logged_in("az", &[]) else { return };
    real.corro("group create -n first -l eastus").ok();
    real.corro("storage account create -g first -n secondaccount -l eastus --sku Standard_LRS").ok();
    let keys = real.corro("storage account keys list -g first -n secondaccount").json();
    let vars = [("ACCOUNT", "secondaccount"), ("KEY", keys[0]["value"].as_str().expect("a key"))];
    let Some(ended) = real.python("sdk12", "first.py", &vars) else { return };
    ended.ok();
}
