//! Runs tests a second time as an unprivileged user when root runs them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use corro_test_support::skip;

/// An unused user id.
const USER: &str = "61234";

/// Runs these tests of this program again as an unprivileged user. Skipped with a notice where that is impossible.
pub fn rerun_tests(tests: &[&str]) {
    let this = std::env::current_exe().expect("this executable has a path");
    let open_to_all =
        |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005);
    let corro = Path::new(env!("CARGO_BIN_EXE_corro"));
    if !rustix::process::geteuid().is_root() || !this.ancestors().chain(corro.ancestors()).all(open_to_all) {
        skip::unsupported_machine(format_args!(
            "only root can switch users, and only if others can reach {}",
            this.display()
        ));
        return;
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}")).args(["--clear-groups", "--"]);
    command.arg(&this).args(["--exact", "--nocapture"]).args(tests).env("HOME", "/");
    // Root's own directory may be inaccessible to others.
    command.env_remove("TMPDIR");
    skip::VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    let Ok(output) = command.output() else {
        skip::missing_component("there is no setpriv on this machine");
        return;
    };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let n_passed = format!("{} passed", tests.len());
    assert!(said.contains(&n_passed), "a test of another name? {said}");
    skip::record_child(&said);
    eprint!("{said}");
}
