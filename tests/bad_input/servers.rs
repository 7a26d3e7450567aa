//! Servers that cannot start, and commands without a server.

use std::net::TcpListener;

use crate::harness::{CommandOutput, Site};

fn up(site: &Site, args: &[&str]) -> CommandOutput {
    let output = site.command("corro").arg("up").args(args).output().expect("it runs");
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let mut site = Site::start();
    let data = site.data();
    let data = data.to_str().expect("a plain path").to_owned();
    let second = up(&site, &["--data", &data, "--listen", "127.0.0.1:0"]);
    let pid = site.up_pid().to_string();
    let second = second.fails(1, &["already running", &data, &pid, &site.url, "hint: "]);
    assert_eq!(second.stdout, "");
    assert_eq!(site.corro("group list").ok().stdout, "[]\n", "the first one did not mind");

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("bound").to_string();
    up(&site, &["--data", "other", "--listen", &taken])
        .fails(1, &["cannot listen on", &taken, "hint: another program"]);
    up(&site, &["--data", "other", "--listen", "0.0.0.0:0"]).fails(1, &["refusing to listen on 0.0.0.0", "loopback"]);
    up(&site, &["--data", "other", "--listen", "[::]:0"]).fails(1, &["refusing to listen"]);
    up(&site, &["--data", "other", "--listen", "192.0.2.1:0"]).fails(1, &["refusing to listen on 192.0.2.1"]);
    up(&site, &["--data", "other", "--listen", "nonsense"]).fails(2, &["'nonsense'", "hint: write it as"]);
    up(&site, &["--data", "other", "--lease", "0"]).fails(2, &["--lease"]);
    site.write("file", "not a directory");
    up(&site, &["--data", "file"]).fails(1, &["file", "--data DIR"]);
    assert_eq!(site.corro("group list").ok().stdout, "[]\n", "the profile is still the first one's");

    // After the server has ended, the commands report its address.
    assert_eq!(site.interrupt_server(), Some(0));
    let url = site.url.trim_end_matches('/').to_owned();
    let lost = site.corro("group list").fails(1, &["cannot reach the server", &url, "hint: start it with 'corro up'"]);
    assert_eq!(lost.stdout, "");
    std::fs::remove_file(site.path().join("config/profile.json")).expect("the profile was written");
    site.corro("group list")
        .fails(1, &["No Corro server is configured", "hint: start a server on this machine with 'corro up'"]);
}
