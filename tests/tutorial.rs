//! The tutorial's 17 commands, typed exactly as in it, against a real server.

mod harness;

use harness::Site;

#[test]
fn a_group_is_created_and_listed() {
    let site = Site::start();
    site.corro("group create --name batchai.horovod --location eastus").ok();
    assert_eq!(site.corro("group list --query [].name -o tsv").ok().stdout, "batchai.horovod\n");
}
