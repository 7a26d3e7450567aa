//! Remote execution on a node with the real `az`: runs a command there while a local port is forwarded to it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use super::harness::{IN_WORKSPACE, wait_for};
use super::real::RealSite;

#[test]
fn a_command_runs_on_a_node_while_a_port_leads_there() {
    let Some(real) = RealSite::start() else { return };
    let site = &real.site;
    site.prepare(0);
    let size = "--vm-size Standard_D1 --user-name demoUser --password Secret_123 --target 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n doors {size}")).ok();
    wait_for("the node's door to be open", || {
        site.corro(&format!("batchai cluster node list {IN_WORKSPACE} -c doors")).json()[0]["port"].is_number()
    });
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = service.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut caller in service.incoming().flatten() {
            // One line each way: the client's tunnel closes a connection when one side has finished.
            let mut said = String::new();
            let _ = BufReader::new(&caller).read_line(&mut said);
            let _ = caller.write_all(said.to_uppercase().as_bytes());
        }
    });
    // The client accepts a fixed port only; this one was free a moment ago.
    let here = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let done = site.path().join("done");
    let waits = format!("until [ -e {} ]; do sleep 0.1; done; echo served $USER", done.display());

    let mut az = site.command("az");
    az.args(["batchai", "cluster", "node", "exec", "-c", "doors", "-p", "Secret_123"]).args(IN_WORKSPACE.split(' '));
    az.args(["-L", &format!("{here}:127.0.0.1:{there}"), "--exec", &waits]);
    let mut az = az.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("az starts");
    let mut stream = None;
    wait_for("the port to be open", || {
        assert!(az.try_wait().expect("a child").is_none(), "az ended before its command");
        stream = TcpStream::connect(("127.0.0.1", here)).ok();
        stream.is_some()
    });
    let mut stream = stream.expect("just connected");
    stream.write_all(b"through the node\n").expect("taken");
    let mut response = String::new();
    BufReader::new(&stream).read_line(&mut response).expect("a response");
    assert_eq!(response, "THROUGH THE NODE\n");

    std::fs::write(done, "").expect("written");
    let ended = az.wait_with_output().expect("az ends");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && said.contains("served demoUser"),
        "{said}\n{}",
        String::from_utf8_lossy(&ended.stderr)
    );
}
