//! SSH logins to a node, with OpenSSH's client where it is installed and with the library's. Real processes.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;

use corro_test_support::skip;
use russh::client::{self, AuthResult};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, Disconnect, Sig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use common::{DEADLINE, FakeNode, World, until_exists};
use corro_agent::AgentEnd;
use corro_model::Secret;
use corro_model::node::{DesiredNode, Login, SshEndpoint};
use corro_model::password::PasswordVerifier;

const USER: &str = "demoUser";

fn login(public_key: Option<&str>, password: Option<&str>) -> Login {
    let password = password.map(|password| PasswordVerifier::new(&Secret::new(password), [3; 16]));
    Login { user: USER.into(), public_key: public_key.map(str::to_owned), password }
}

/// Orders a login and waits until the SSH server listens.
async fn start_ssh_server(node: &FakeNode, login: Login) -> SshEndpoint {
    node.want(DesiredNode { login: Some(login), ..DesiredNode::default() });
    node.until("open to the administrator", |node| node.login.is_some()).await.login.expect("just seen")
}

struct AnyHost;

impl client::Handler for AnyHost {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(true)
    }
}

type Client = client::Handle<AnyHost>;

async fn connect(endpoint: &SshEndpoint) -> Client {
    let config = Arc::new(client::Config::default());
    client::connect(config, (endpoint.address.as_str(), endpoint.port), AnyHost).await.expect("the endpoint is open")
}

async fn with_key(endpoint: &SshEndpoint, user: &str, key: &PrivateKey) -> Result<Client, AuthResult> {
    let mut client = connect(endpoint).await;
    let key = PrivateKeyWithHashAlg::new(Arc::new(key.clone()), None);
    match client.authenticate_publickey(user, key).await.expect("an answer") {
        AuthResult::Success => Ok(client),
        refused => Err(refused),
    }
}

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

fn public(key: &PrivateKey) -> String {
    key.public_key().to_openssh().expect("a plain key")
}

/// Output of a command on both streams, and its exit status.
async fn exec(client: &Client, line: &str) -> (String, String, Option<u32>, Option<Sig>) {
    let mut channel = client.channel_open_session().await.expect("a session");
    channel.exec(true, line).await.expect("it is asked for");
    let (mut out, mut err, mut code, mut signal) = (Vec::new(), Vec::new(), None, None);
    let talk = async {
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => out.extend_from_slice(&data),
                ChannelMsg::ExtendedData { data, .. } => err.extend_from_slice(&data),
                ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
                ChannelMsg::ExitSignal { signal_name, .. } => signal = Some(signal_name),
                _ => {}
            }
        }
    };
    timeout(DEADLINE, talk).await.expect("the command ends in time");
    let text = |bytes| String::from_utf8(bytes).expect("plain text");
    (text(out), text(err), code, signal)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_administrator_can_log_in() {
    let world = World::new().await;
    let (mine, other) = (key(1), key(2));
    let endpoint = start_ssh_server(&world.node, login(Some(&public(&mine)), Some("open sesame"))).await;
    assert_eq!(endpoint.address, "127.0.0.4");
    assert!(endpoint.port >= 50_000, "{endpoint:?}");

    let client = with_key(&endpoint, USER, &mine).await.expect("the key fits");
    let (out, err, code, _) = exec(&client, "echo out; echo $USER; echo err >&2; exit 7").await;
    assert_eq!((out.as_str(), err.as_str(), code), ("out\ndemoUser\n", "err\n", Some(7)));
    assert!(with_key(&endpoint, USER, &other).await.is_err(), "another key");
    assert!(with_key(&endpoint, "root", &mine).await.is_err(), "another user");

    let mut client = connect(&endpoint).await;
    assert!(client.authenticate_password(USER, "open sesam").await.is_ok_and(|answer| !answer.success()));
    assert!(client.authenticate_password("root", "open sesame").await.is_ok_and(|answer| !answer.success()));
    assert!(client.channel_open_session().await.is_err(), "not authenticated yet");
    // A refused channel ends the connection; the right password gets another.
    let mut client = connect(&endpoint).await;
    assert!(client.authenticate_password(USER, "open sesame").await.expect("an answer").success());
    assert_eq!(exec(&client, "pwd").await.0.trim(), world.agent.root.join("login").to_string_lossy());

    // Without a login there is no SSH server.
    world.node.want(DesiredNode::default());
    world.node.until("closed", |node| node.login.is_none()).await;
    assert!(tokio::net::TcpStream::connect((endpoint.address.as_str(), endpoint.port)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn authentication_attempts_are_limited() {
    let world = World::new().await;
    let endpoint = start_ssh_server(&world.node, login(None, Some("right"))).await;
    let mut client = connect(&endpoint).await;
    let mut n_attempts = 0;
    while let Ok(answer) = client.authenticate_password(USER, format!("wrong {n_attempts}")).await {
        assert!(!answer.success());
        n_attempts += 1;
        // The answer to the last attempt may be a closed connection.
        assert!(n_attempts <= 7, "it may guess for ever");
    }
    assert!(n_attempts >= 6, "{n_attempts} attempts: a mistyped password takes the method away");
}

/// Most clients try their keys before they ask for a password.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_accepted_after_a_rejected_key() {
    let world = World::new().await;
    let (mine, other) = (key(1), key(2));
    let endpoint = start_ssh_server(&world.node, login(Some(&public(&mine)), Some("right"))).await;
    let mut client = connect(&endpoint).await;
    let refused = client
        .authenticate_publickey(USER, PrivateKeyWithHashAlg::new(Arc::new(other), None))
        .await
        .expect("an answer");
    let left = match refused {
        AuthResult::Failure { remaining_methods, .. } => remaining_methods,
        AuthResult::Success => panic!("the key is another's"),
    };
    assert!(left.contains(&russh::MethodKind::Password) && left.contains(&russh::MethodKind::PublicKey), "{left:?}");
    let refused = client.authenticate_password(USER, "wrong").await.expect("an answer");
    assert!(matches!(&refused, AuthResult::Failure { remaining_methods, .. } if !remaining_methods.is_empty()));
    assert!(client.authenticate_password(USER, "right").await.expect("an answer").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_forwarded_connections_go_through() {
    let world = World::new().await;
    let mine = key(1);
    let endpoint = start_ssh_server(&world.node, login(Some(&public(&mine)), None)).await;
    let client = with_key(&endpoint, USER, &mine).await.expect("the key fits");
    let (_, _, code, signal) = exec(&client, "kill -TERM $$").await;
    assert!(code.is_none() && matches!(signal, Some(Sig::TERM)), "{code:?} {signal:?}");

    let mut channel = client.channel_open_session().await.expect("a session");
    channel
        .exec(true, "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done")
        .await
        .expect("asked");
    let (mut said, mut code) = (String::new(), None);
    let talk = async {
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => {
                    said.push_str(&String::from_utf8_lossy(&data));
                    if said == "ready\n" {
                        channel.signal(Sig::INT).await.expect("sent");
                    }
                }
                ChannelMsg::ExitStatus { exit_status } => code = Some(exit_status),
                _ => {}
            }
        }
    };
    timeout(DEADLINE, talk).await.expect("the command ends in time");
    assert_eq!((said.as_str(), code), ("ready\ninterrupted\n", Some(9)));

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("it is read");
        stream.write_all(text.to_uppercase().as_bytes()).await.expect("it is written");
    });
    let forwarded = client.channel_open_direct_tcpip("127.0.0.1", port.into(), "127.0.0.1", 1).await;
    let mut stream = forwarded.expect("a listener is there").into_stream();
    stream.write_all(b"through the endpoint").await.expect("it is written");
    stream.shutdown().await.expect("that was all");
    let mut text = String::new();
    timeout(DEADLINE, stream.read_to_string(&mut text)).await.expect("in time").expect("an answer");
    assert_eq!(text, "THROUGH THE ENDPOINT");
    echo.await.expect("it served");
    let nowhere = client.channel_open_direct_tcpip("127.0.0.1", port.into(), "127.0.0.1", 1).await;
    assert!(nowhere.is_err(), "the listener is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_its_session_or_the_node() {
    let mut world = World::new().await;
    let mine = key(1);
    let endpoint = start_ssh_server(&world.node, login(Some(&public(&mine)), None)).await;
    let mark = |name: &str| world.directory.path().join(name);
    let busy = |file: &Path| format!("(setsid sleep 600 &) ; touch '{}'; sleep 600", file.display());
    let client = with_key(&endpoint, USER, &mine).await.expect("the key fits");
    let channel = client.channel_open_session().await.expect("a session");
    channel.exec(true, busy(&mark("first"))).await.expect("asked");
    until_exists(&mark("first")).await;
    assert!(world.node.n_processes() >= 2);
    client.disconnect(Disconnect::ByApplication, "", "").await.expect("said");
    drop(client);
    until_none(&world.node).await;

    let client = with_key(&endpoint, USER, &mine).await.expect("the key fits");
    let channel = client.channel_open_session().await.expect("a session");
    channel.exec(true, busy(&mark("second"))).await.expect("asked");
    until_exists(&mark("second")).await;
    world.node.want(DesiredNode { retire: true, ..DesiredNode::default() });
    assert_eq!(world.agent.end().await, AgentEnd::Retired);
    assert_eq!(world.node.n_processes(), 0, "the node is no more, and neither is anything on it");
    assert!(!world.agent.root.join("login").exists() && !world.agent.root.join("host_key.json").exists());
}

async fn until_none(node: &FakeNode) {
    let gone = timeout(DEADLINE, async {
        while node.n_processes() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    gone.await.expect("everything of the session ends");
}

/// OpenSSH's client without the settings of this machine.
fn ssh(endpoint: &SshEndpoint, key: &Path, options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-F", "/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
    command.args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-i"]).arg(key);
    command.args(options).args(["-p", &endpoint.port.to_string(), &format!("{USER}@{}", endpoint.address)]).args(words);
    command.env_remove("SSH_AUTH_SOCK").kill_on_drop(true);
    command
}

async fn run(mut command: Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ssh is there");
    let mut stdin = child.stdin.take().expect("asked for");
    stdin.write_all(input.as_bytes()).await.expect("it is read");
    drop(stdin);
    timeout(DEADLINE, child.wait_with_output()).await.expect("it ends in time").expect("it was started")
}

async fn read_until(screen: &mut tokio::process::ChildStdout, said: &mut String, wanted: &str) {
    let mut buffer = [0; 4096];
    while !said.contains(wanted) {
        let read = timeout(DEADLINE, screen.read(&mut buffer)).await.expect("it goes on").expect("it can be read");
        assert!(read > 0, "it ended without '{wanted}': {said}");
        said.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n")
}

/// A key pair of this kind; `None` if OpenSSH is not installed.
async fn key_pair(directory: &Path, kind: &str) -> Option<(PathBuf, String)> {
    let path = directory.join(format!("id_{kind}"));
    let made = Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-f"]).arg(&path).status().await;
    if made.is_err() {
        skip::missing_component("OpenSSH is not installed here (apt-get install openssh-client)");
        return None;
    }
    let public = std::fs::read_to_string(path.with_extension("pub")).expect("ssh-keygen writes both");
    Some((path, public))
}

#[tokio::test(flavor = "multi_thread")]
async fn openssh_logs_in_with_every_kind_of_key() {
    let world = World::new().await;
    for kind in ["rsa", "ed25519", "ecdsa"] {
        let Some((key, public)) = key_pair(world.directory.path(), kind).await else { return };
        world.node.want(DesiredNode::default());
        world.node.until("closed to the owner of the last key", |node| node.login.is_none()).await;
        let endpoint = start_ssh_server(&world.node, login(Some(&public), None)).await;
        let algorithms: &[&str] =
            if kind == "rsa" { &["rsa-sha2-256", "rsa-sha2-512", "ssh-rsa"] } else { &["+ssh-rsa"] };
        for algorithm in algorithms {
            let option = format!("PubkeyAcceptedAlgorithms={algorithm}");
            let output = run(ssh(&endpoint, &key, &["-o", &option], &["echo", "in"]), "").await;
            assert_eq!(text(&output.stdout), "in\n", "{kind} {algorithm}: {}", text(&output.stderr));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openssh_runs_commands_shells_and_terminals() {
    let world = World::new().await;
    let Some((key, public)) = key_pair(world.directory.path(), "ed25519").await else { return };
    let endpoint = start_ssh_server(&world.node, login(Some(&public), None)).await;

    let output = run(ssh(&endpoint, &key, &[], &["tr a-z A-Z; echo err >&2; exit 5"]), "what is typed").await;
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("WHAT IS TYPED".to_owned(), "err\n".to_owned()));
    assert_eq!(output.status.code(), Some(5));

    // More than any buffer on the way.
    let much = "0123456789abcdef".repeat(200_000);
    let output = run(ssh(&endpoint, &key, &[], &["cat | wc -c; head -c 3000000 /dev/zero"]), &much).await;
    assert_eq!(output.stdout.len(), "3200000\n".len() + 3_000_000);

    let output =
        run(ssh(&endpoint, &key, &["-tt"], &["bash -ilc 'tty; stty size; echo $TERM $HOME'; exit 4"]), "").await;
    let said = text(&output.stdout);
    assert!(said.starts_with("/dev/pts/") && said.contains("/login\n"), "{said}");
    assert_eq!(output.status.code(), Some(4));

    let output = run(ssh(&endpoint, &key, &["-T"], &[]), "echo $0 $AZ_BATCHAI_MOUNT_ROOT\nexit 3\n").await;
    let mounts = world.agent.root.join("mounts");
    assert_eq!((text(&output.stdout), output.status.code()), (format!("bash {}\n", mounts.display()), Some(3)));

    // A shell on a terminal, with job control and Ctrl-C.
    let mut command = ssh(&endpoint, &key, &["-tt"], &[]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh is there");
    let (mut keyboard, mut screen) = (child.stdin.take().expect("asked for"), child.stdout.take().expect("asked for"));
    let mut said = String::new();
    keyboard.write_all(b"echo on $((40 + 2)); sleep 600\n").await.expect("it is read");
    read_until(&mut screen, &mut said, "on 42").await;
    keyboard.write_all(b"\x03").await.expect("it is read");
    read_until(&mut screen, &mut said, "^C").await;
    keyboard.write_all(b"echo after $((40 + 3)); exit 6\n").await.expect("it is read");
    read_until(&mut screen, &mut said, "after 43").await;
    assert!(!said.contains("no job control"), "{said}");
    let status = timeout(DEADLINE, child.wait()).await.expect("it ends in time").expect("it was started");
    assert_eq!(status.code(), Some(6), "{said}");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let target = format!("127.0.0.1:{}", listener.local_addr().expect("it is bound").port());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(b"hello from behind the endpoint\n").await.expect("it is written");
    });
    let output = run(ssh(&endpoint, &key, &["-W", &target], &[]), "").await;
    assert_eq!(text(&output.stdout), "hello from behind the endpoint\n", "{}", text(&output.stderr));
    served.await.expect("it served");
    until_none(&world.node).await;
}
