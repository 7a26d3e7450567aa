//! Ports of a job through the server: many bytes at once, rights, and every end of a connection. The jobs' programs listen on the loopback address.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use corro_test_support::rng::SplitMix64;
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::http::{exchange, request_head};
use crate::harness::{CommandOutput, DEADLINE, Site, signal, wait_for};
use crate::project::{ProjectSite, Running};

/// Sends back whatever a connection sends, until that ends. Writes its port to the file `port`.
const ECHO: &str = "import os, socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
server = Server(('127.0.0.1', 0), Echo)
with open('port.part', 'w') as file:
    file.write(str(server.server_address[1]))
os.rename('port.part', 'port')
server.serve_forever()
";

/// Upper bound of what this machine may need until an end is noticed, without the time that a loaded machine takes.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// A project whose job `echo` runs, and the port on its node.
fn echo_site() -> (ProjectSite, u16) {
    let project = ProjectSite::new(&[]);
    std::fs::write(project.dir().join("echo.py"), ECHO).expect("a file");
    project.corro("submit --detach --kind custom --name echo -- python3 echo.py").ok();
    let port = port_of(&project, "echo");
    (project, port)
}

fn port_of(project: &ProjectSite, job: &str) -> u16 {
    let file = project.job_directory(job).join("port");
    wait_for("the job to listen", || file.exists());
    std::fs::read_to_string(file).expect("a file").parse().expect("a port")
}

/// Starts `job port-forward`; returns the local port too.
fn forward(project: &ProjectSite, line: &str) -> (Running, u16) {
    started(project.start(&format!("job port-forward {line}")))
}

fn started(mut running: Running) -> (Running, u16) {
    let line = running.wait_for_line("127.0.0.1:");
    let port = line.split([':', ' ']).nth(1).and_then(|port| port.parse().ok()).expect("a port");
    (running, port)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the local port is open");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// A connection over which a few bytes have gone both ways.
fn used_connection(port: u16) -> TcpStream {
    let mut stream = connect(port);
    stream.write_all(b"ping").expect("written");
    let mut back = [0; 4];
    stream.read_exact(&mut back).expect("it comes back");
    assert_eq!(&back, b"ping");
    stream
}

/// Waits for the end of a connection on which nothing is sent.
fn end_of(mut stream: TcpStream) -> io::Result<usize> {
    let began = Instant::now();
    let end = stream.read(&mut [0; 1]);
    assert!(began.elapsed() < NOTICED_WITHIN, "it took {:?}", began.elapsed());
    end
}

fn is_reset(stream: TcpStream) -> bool {
    end_of(stream).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// A login of another user, in a configuration directory of its own.
fn log_in(site: &Site, name: &str, options: &str) {
    let made = site.corro(&format!("ad sp create-for-rbac -n {name} {options}")).json();
    let text = |field: &str| made[field].as_str().expect("text").to_owned();
    let line = format!("login --service-principal -u {} -p {}", text("appId"), text("password"));
    let line = format!("{line} --tenant {} --server {}", text("tenant"), site.url);
    let mut command = site.command("corro");
    command.args(line.split_whitespace()).env("CORRO_CONFIG_DIR", site.path().join(name));
    CommandOutput::from(command.output().expect("it runs")).ok();
}

fn as_user(project: &ProjectSite, name: &str, line: &str) -> Command {
    let mut command = project.command(line);
    command.env("CORRO_CONFIG_DIR", project.site.path().join(name));
    command
}

#[test]
fn two_connections_carry_megabytes_both_ways_at_once_without_any_ssh_key() {
    const LENGTH: usize = 8 << 20;
    let (project, port) = echo_site();
    // What a login at the node would need.
    let keys = project.site.home().join(".ssh");
    if keys.exists() {
        std::fs::remove_dir_all(keys).expect("removed");
    }
    let (mut running, local) = forward(&project, &format!("echo :{port}"));
    let exchanges: Vec<_> = [1, 2]
        .map(|seed| {
            std::thread::spawn(move || {
                let mut sent = vec![0; LENGTH];
                SplitMix64::new(seed).fill(&mut sent);
                let mut stream = connect(local);
                let mut writer = stream.try_clone().expect("a second handle");
                let writing = std::thread::spawn({
                    let sent = sent.clone();
                    move || {
                        writer.write_all(&sent).expect("written");
                        writer.shutdown(Shutdown::Write).expect("the end is sent");
                    }
                });
                let mut received = Vec::new();
                stream.read_to_end(&mut received).expect("it ends in order");
                writing.join().expect("no panic");
                assert!(received == sent, "{} of {} bytes came back", received.len(), sent.len());
            })
        })
        .into();
    exchanges.into_iter().for_each(|exchange| exchange.join().expect("no panic"));
    assert!(!project.site.path().join("config/known_nodes").exists(), "no SSH server was asked");
    let history = project.site.corro("admin history -o json").ok().stdout;
    assert!(history.contains(&format!("/jobs/echo/tunnels/{port}")), "the connection is audited: {history}");
    running.interrupt();
    let ended = running.end().ok();
    assert_eq!(ended.stderr, "Ctrl-C ends this command.\n");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, local)).is_err(), "the local port is closed");
}

#[test]
fn a_connection_ends_with_an_error_when_the_agent_is_killed() {
    let (project, port) = echo_site();
    let (mut running, local) = forward(&project, &format!("echo :{port}"));
    let stream = used_connection(local);
    let agents = project.site.agents();
    let (_, pid) = agents.first().expect("a node");
    signal(*pid, Signal::KILL);
    assert!(is_reset(stream));
    // The job starts again elsewhere, where its port may be another one.
    let ended = running.end().fails(1, &["a connection broke off: the connection to the node's agent broke"]);
    assert!(
        ended.stderr.contains("the job echo has left its nodes, so its ports may be others now")
            || ended.stderr.contains("The job echo failed"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_connection_ends_with_an_error_when_the_job_ends() {
    let (project, port) = echo_site();
    // Listens outside of the job, so it does not end with the job's processes.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let other = listener.local_addr().expect("bound").port();
    let (mut running, local) = forward(&project, &format!("echo :{other} :{port}"));
    let stream = connect(local);
    let (mut accepted, _) = listener.accept().expect("the node's agent connects");
    accepted.write_all(b"x").expect("written");
    (&stream).read_exact(&mut [0; 1]).expect("it arrives");
    project.corro("job stop echo").ok();
    assert!(is_reset(stream));
    assert!(is_reset(accepted), "the other end learns of it too");
    let ended = running.end().fails(1, &["The job echo failed"]);
    assert!(ended.stderr.contains("a connection broke off: the job "), "{}", ended.stderr);
    project
        .corro(&format!("job port-forward echo {port}"))
        .fails(1, &["the job echo has failed: only a running job has ports", "corro job why"]);
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    let (project, port) = echo_site();
    let unused = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.local_addr().expect("bound").port()
    };
    let (mut running, local) = forward(&project, &format!("echo :{unused}"));
    assert!(is_reset(connect(local)));
    let message = format!("nothing listens on port {unused} of the loopback address there");
    wait_for("the reason", || running.stderr().contains(&message));
    assert!(
        running.stderr().contains(&format!("Cannot connect to port {unused} on node tvm-")),
        "{}",
        running.stderr()
    );
    running.interrupt();
    running.end().ok();
    // Mistakes of the command line, and a local port that is taken.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let number = taken.local_addr().expect("bound").port();
    project
        .corro(&format!("job port-forward echo {number}:{port}"))
        .fails(1, &[&format!("cannot listen on port {number}"), &format!(":{port} for one that is free")]);
    project.corro("job port-forward echo 70000").fails(2, &["'70000' is not a port"]);
    project.corro("job port-forward echo 80 --rank 7").fails(1, &["no rank 7"]);
    project.corro("job port-forward nothing 80").fails(3, &["there is no job nothing"]);
}

#[test]
fn only_who_may_submit_jobs_connects_and_only_while_the_login_is_valid() {
    let (project, port) = echo_site();
    let site = &project.site;
    log_in(site, "reader", "--role Reader");
    log_in(site, "contributor", "--role Contributor");
    site.corro("group create -n elsewhere -l eastus").ok();
    let scope = format!("{}/resourceGroups/elsewhere", subscription(site));
    log_in(site, "stranger", &format!("--role Contributor --scopes {scope}"));

    let (mut refused, local) =
        started(Running::start(as_user(&project, "reader", &format!("job port-forward echo :{port}"))));
    assert!(is_reset(connect(local)));
    wait_for("the reason", || refused.stderr().contains("does not have authorization to perform action"));
    refused.interrupt();
    refused.end().ok();

    let path = format!(
        "{}/resourceGroups/default/providers/Microsoft.BatchAI/workspaces/default/experiments/cifar/jobs/echo/tunnels",
        subscription(site)
    );
    let ask = |token: Option<String>, target: &str| {
        let line = format!("GET {path}/{target}?api-version=2018-05-01 HTTP/1.1");
        let mut headers = vec!["Upgrade: websocket".to_owned(), "Sec-WebSocket-Version: 13".to_owned()];
        headers.push("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        headers.extend(token.map(|token| format!("Authorization: Bearer {token}")));
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        let head =
            request_head(&site.address(), &line, &headers).replace("Connection: close", "Connection: Upgrade, close");
        let response = exchange(&site.address(), head.as_bytes()).expect("an answer");
        (response.status, response.text())
    };
    for user in ["reader", "stranger"] {
        for target in [port.to_string().as_str(), "notebook", "ssh", "x"] {
            let (status, text) = ask(Some(token_of(site, user)), target);
            assert!(status == 403 && text.contains("AuthorizationFailed"), "{user}: {status} {text}");
        }
    }
    assert_eq!(ask(None, "80").0, 401);
    assert_eq!(ask(Some("x".to_owned()), "80").0, 401);
    assert_eq!(ask(Some(token_of(site, "contributor")), "0").0, 400);

    let (mut running, local) =
        started(Running::start(as_user(&project, "contributor", &format!("job port-forward echo :{port}"))));
    let stream = used_connection(local);
    let (mut own, own_local) = forward(&project, &format!("echo :{port}"));
    let own_stream = used_connection(own_local);
    site.corro("ad sp revoke-tokens --id contributor").ok();
    assert!(is_reset(stream));
    wait_for("the reason", || running.stderr().contains("the login that opened it is no longer valid"));
    (&own_stream).write_all(b"more").expect("another login's connection stays");
    (&own_stream).read_exact(&mut [0; 4]).expect("it comes back");
    for running in [&mut running, &mut own] {
        running.interrupt();
        running.end().ok();
    }
}

fn subscription(site: &Site) -> String {
    format!("/subscriptions/{}", site.profile()["subscription"].as_str().expect("text"))
}

/// An access token of a user.
fn token_of(site: &Site, name: &str) -> String {
    let profile = std::fs::read_to_string(site.path().join(name).join("profile.json")).expect("a profile");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    let text = |field: &str| profile[field].as_str().expect("text").to_owned();
    let form = format!(
        "grant_type=client_credentials&client_id={}&resource=x&client_secret={}",
        text("clientId"),
        text("clientSecret")
    );
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let response = site.request("POST", "/adfs/oauth2/token", &kind, form.as_bytes());
    response.json()["access_token"].as_str().expect("a token").to_owned()
}

#[test]
fn connections_wait_for_a_server_that_restarts() {
    let (mut project, port) = echo_site();
    let address = project.site.address();
    let (mut running, local) = forward(&project, &format!("echo :{port}"));
    let stream = used_connection(local);
    project.site.kill_server();
    assert!(is_reset(stream));
    // Made while there is no server.
    let mut waiting = connect(local);
    waiting.write_all(b"ping").expect("taken");
    project.site.up_at(&address);
    let mut back = [0; 4];
    waiting.read_exact(&mut back).expect("it comes back");
    assert_eq!(&back, b"ping");
    running.interrupt();
    let ended = running.end().ok();
    assert!(ended.stderr.contains("a connection broke off: the connection to the server broke"), "{}", ended.stderr);
}

#[test]
fn commands_in_a_job_go_through_the_server_too() {
    let (project, _) = echo_site();
    let output = project.command("job exec echo").args(["--", "sh", "-c", "exit 7"]).output().expect("it runs");
    assert_eq!(CommandOutput::from(output).code, 7);
    let history = project.site.corro("admin history -o json").ok().stdout;
    assert!(history.contains("/jobs/echo/tunnels/ssh"), "{history}");
    // A reader with the cluster's key logs in at the node itself.
    log_in(&project.site, "reader", "--role Reader");
    let output = as_user(&project, "reader", "job exec echo -- echo direct").output().expect("it runs");
    assert_eq!(CommandOutput::from(output).ok().stdout, "direct\n");
}
