//! The resource manager API under the Python libraries of the retired service: azure-mgmt-batchai with both generations of its
//! runtime, azure-mgmt-resource and azure-mgmt-storage of the command line. The tests themselves are in `python/batchai*.py`
//! and `python/accounts.py`.

use super::harness::{CommandOutput, GROUP};
use super::real::RealSite;

const ACCOUNT: &str = "mystorageaccount";

fn with_batchai(environment: &'static str) {
    let Some((real, _machines)) = RealSite::served(environment, 2) else { return };
    real.site.corro(&format!("group create -n {GROUP} -l eastus")).ok();
    real.site.corro(&format!("storage account create -g {GROUP} -n {ACCOUNT} --sku Standard_LRS")).ok();
    real.site.corro(&format!("storage share create -n share --account-name {ACCOUNT}")).ok();
    let key = format!("storage account keys list -g {GROUP} -n {ACCOUNT} --query [0].value -o tsv");
    let key = real.site.corro(&key).ok().stdout.trim().to_owned();
    let vars = [("ACCOUNT", ACCOUNT), ("ACCOUNT_KEY", &key)];
    passed(real.python(environment, "batchai.py", &vars));
}

/// Python's own report is on standard error.
#[track_caller]
fn passed(ended: Option<CommandOutput>) {
    if let Some(ended) = ended {
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn batch_ai_by_the_library_of_2018() {
    with_batchai("sdk1");
}

#[test]
fn batch_ai_by_the_same_library_on_the_last_runtime() {
    with_batchai("sdk2");
}

#[test]
fn groups_and_accounts_by_the_libraries_of_the_command_line() {
    let Some(real) = RealSite::not_logged_in("az", &[]) else { return };
    passed(real.python("az", "accounts.py", &[]));
}
