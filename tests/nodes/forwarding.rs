//! Local ports forwarded to a node by our own client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{IN_WORKSPACE, Site, signal, wait_for};

#[test]
fn a_port_leads_to_the_node_until_ctrl_c() {
    let site = Site::start();
    site.prepare(0);
    let size = "--vm-size Standard_D1 --user-name demoUser --password canary-forward --target 1";
    site.corro(&format!("batchai cluster create {IN_WORKSPACE} -n doors {size}")).ok();
    wait_for("the node's door to be open", || {
        site.corro(&format!("batchai cluster node list {IN_WORKSPACE} -c doors")).json()[0]["port"].is_number()
    });
    let service = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = service.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut caller in service.incoming().flatten() {
            let mut said = String::new();
            let _ = caller.read_to_string(&mut said);
            let _ = caller.write_all(said.to_uppercase().as_bytes());
        }
    });

    let mut command = site.command("corro");
    command.args(["batchai", "cluster", "node", "exec", "-c", "doors", "-p", "canary-forward"]);
    command.args(IN_WORKSPACE.split(' ')).args(["-L", &format!("0:127.0.0.1:{port}")]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("corro runs");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("readable");
    let address = line.strip_prefix("Forwarding ").and_then(|rest| rest.split(' ').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(address.starts_with("127.0.0.1:"), "on loopback only: {line}");
    for word in ["one", "two"] {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.write_all(word.as_bytes()).expect("taken");
        stream.shutdown(Shutdown::Write).expect("no more to say");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        assert_eq!(response, word.to_uppercase());
    }
    signal(child.id(), Signal::INT);
    wait_for("the end of forwarding", || child.try_wait().expect("a child").is_some());
    assert_eq!(child.wait().expect("it has ended").code(), Some(0));
    assert!(TcpStream::connect(&address).is_err(), "the port is closed");

    // A port in use is reported before anything runs.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let exec = format!("batchai cluster node exec {IN_WORKSPACE} -c doors -p canary-forward --exec true");
    let refused = site.corro(&format!("{exec} -L {}:localhost:1", taken.local_addr().expect("bound").port()));
    refused.fails(1, &["cannot listen on port"]);
}
