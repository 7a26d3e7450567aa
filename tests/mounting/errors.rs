//! Errors of `corro mount` and `corro unmount`, with their causes.

use std::fs;

use super::fixture::{mount_process, start_share};

#[test]
fn mount_errors_name_their_cause() {
    let Some(share) = start_share() else { return };
    fs::write(share.path("file"), "x").expect("written");
    fs::create_dir(share.path("dir")).expect("made");
    share.corro("mount share nowhere").fails(1, &["does not exist", "mkdir"]);
    share.corro("mount share file").fails(1, &["is not a directory"]);
    share.corro("mount missing dir").fails(1, &["The specified share does not exist: missing"]);
    share.corro("mount Bad_Name dir").fails(1, &["Bad_Name"]);
    share.corro("mount share dir --file-mode 999").fails(2, &["octal"]);
    share.corro("unmount dir").fails(1, &["no share is mounted at"]);
    let key = "bm90IHRoZSBrZXk=";
    share
        .corro(&format!("mount share dir --account-name one --account-key {key}"))
        .fails(1, &["failed to authenticate"]);
    fs::remove_dir(share.path("dir")).expect("empty");
    share.mount("dir", "");
    share.corro("mount share dir").fails(1, &["a share is mounted at", "corro unmount"]);
    // The key is in no command line and no environment.
    let connection = share.connection();
    let key = connection.split("AccountKey=").nth(1).and_then(|rest| rest.split(';').next()).expect("a key");
    let pid = mount_process(&share.path("dir"));
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).expect("readable");
        assert!(!String::from_utf8_lossy(&text).contains(key), "the key is in {file}");
    }
    share.unmount("dir");
}
