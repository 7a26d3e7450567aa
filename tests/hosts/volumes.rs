//! Shares that the nodes of a host mount over the network outlive the tokens they were mounted with. Also checks files that
//! jobs on a host must not see.

use std::path::Path;

use corro_test_support::skip;

use crate::harness::{Site, wait_for};
use crate::{JoinedHost, ONE_NODE, token};

fn host(site: &Site, words: &str) -> JoinedHost {
    let word = token(site, "")["token"].as_str().expect("a token").to_owned();
    let words = format!("{} --token {word} --name gpu-1 {ONE_NODE} {words}", site.url);
    JoinedHost::start(site, "h", &words)
}

#[test]
fn a_mount_outlives_the_pass_it_was_made_with() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return skip::unsupported_machine("no FUSE on this machine, so nothing can be mounted");
    }
    let mut site = Site::unstarted(&["--no-containers", "--tls", "--lease", "30", "--pass-life", "3"]);
    site.start_server("server", "127.0.0.1:0", "info");
    let host = host(&site, "--remote-shares");
    site.prepare(1);
    // One file stays open, the other is opened for every number. Twenty-four take twelve seconds at least: four lifetimes of a
    // mount token.
    let share = "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/cifar";
    let command = format!(
        "exec 3>>{share}/held; n=0; while [ ! -e {share}/go ]; do n=$((n+1)); \
         echo $n >&3 || exit 7; echo $n > {share}/count || exit 8; sleep 0.5; done; exec 3>&- || exit 9; echo went to $n"
    );
    site.submit_custom("long", 1, &command);
    wait_for("the job to work through four lives of a pass", || {
        let job = site.job("long");
        assert_ne!(job["executionState"], "failed", "{job}\n{}", host.log());
        site.on_share("count").trim().parse().is_ok_and(|count: u32| count >= 24)
    });
    std::fs::write(site.share().join("cifar/go"), "").expect("a file of the share");
    let ended = site.wait_for_end("long");
    assert_eq!(ended["executionState"], "succeeded", "{ended}\n{}\n{}", site.log("long", "stderr.txt"), host.log());
    let last: u32 = site.log("long", "stdout.txt").trim_start_matches("went to ").trim().parse().expect("a number");
    let all: String = (1..=last).map(|n| format!("{n}\n")).collect();
    assert_eq!(site.on_share("held"), all);
}

/// The profile of the user who runs the host would give access to the whole server.
#[test]
fn jobs_on_a_host_do_not_see_its_users_profile() {
    let site = crate::server();
    let _host = host(&site, "");
    site.prepare(1);
    let profile = site.path().join("config");
    assert!(profile.join("profile.json").exists(), "the server writes one for its user");
    let command = format!("cat {0}/profile.json; ls {0}; echo looked", profile.display());
    site.submit_custom("curious", 1, &command);
    let ended = site.wait_for_end("curious");
    assert_eq!(ended["executionState"], "succeeded", "{ended}");
    if site.log("curious", "execution.log").contains("NO namespaces") {
        return skip::unsupported_machine("this machine allows no namespaces");
    }
    assert_eq!(site.log("curious", "stdout.txt"), "looked\n", "{}", site.log("curious", "stderr.txt"));
}
