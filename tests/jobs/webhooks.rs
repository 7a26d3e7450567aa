//! Webhooks of jobs: real posts to a receiver in this process, which can fail, or keep a post waiting while the server is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::harness::logs::wait_at;
use crate::harness::{GROUP, IN_WORKSPACE, Site, wait_for};
use corro_test_support::skip;
use serde_json::{Value, json};

/// Allows the receivers of these tests.
const ALLOW_LOOPBACK: [&str; 3] = ["--no-containers", "--webhook-allow", "127.0.0.1"];
const NO_CONTENT: &str = "204 No Content";

/// Decides the answer to a post by its event and the number of earlier posts of this event: a status, or none at all.
type Decide = fn(&str, usize) -> Option<&'static str>;

/// An HTTP server that records what it gets.
struct Receiver {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Post>>>,
}

#[derive(Clone)]
struct Post {
    event: String,
    head: String,
    body: Vec<u8>,
    /// Open as long as there is no answer.
    _connection: Arc<TcpStream>,
}

impl Post {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn document(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

impl Receiver {
    fn start(decide: Decide) -> Receiver {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, posts) = (listener.local_addr().expect("bound"), Arc::new(Mutex::new(Vec::<Post>::new())));
        let received = posts.clone();
        std::thread::spawn(move || {
            for mut connection in listener.incoming().flatten() {
                let Some(post) = read_post(&connection) else { continue };
                let mut posts = received.lock().expect("no test panics while it holds the posts");
                let earlier = posts.iter().filter(|earlier| earlier.event == post.event).count();
                if let Some(status) = decide(&post.event, earlier) {
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: 0\r\nlocation: /elsewhere\r\nconnection: close\r\n\r\n"
                    );
                    // The server may have been killed.
                    let _ = connection.write_all(answer.as_bytes());
                }
                posts.push(post);
            }
        });
        Receiver { address, posts }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn posts(&self) -> Vec<Post> {
        self.posts.lock().expect("no test panics while it holds the posts").clone()
    }

    /// Waits until the event was posted this often, and returns the last post.
    fn wait_for(&self, event: &str, count: usize) -> Post {
        let mut found = Vec::new();
        wait_for(&format!("{count} posts of {event}"), || {
            found = self.posts().into_iter().filter(|post| post.event == event).collect();
            found.len() >= count
        });
        found.swap_remove(count - 1)
    }
}

fn read_post(connection: &TcpStream) -> Option<Post> {
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    let event = header("x-corro-event")?.to_owned();
    reader.read_exact(&mut body).ok()?;
    Some(Post { event, head, body, _connection: Arc::new(connection.try_clone().ok()?) })
}

fn submit(site: &Site, name: &str, command: &str, webhook: &Value) {
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    site.submit_with(name, 1, settings, json!({"notifications": {"webhook": webhook}}));
}

fn why(site: &Site, job: &str) -> String {
    site.corro(&format!("job why {job} {IN_WORKSPACE} -e cifar")).ok().stdout
}

/// Files of the server that contain the text: logs, and the database.
fn places_with(site: &Site, text: &str) -> Vec<String> {
    let data = std::fs::read_dir(site.data()).expect("a data directory").flatten().map(|entry| entry.path());
    let files = data.chain([site.path().join("up.log")]).filter(|path| path.is_file());
    let has_text = |path: &std::path::PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    files.filter(has_text).map(|path| path.display().to_string()).collect()
}

/// The server is killed while the job runs, and again after the job has ended and before the receiver has answered.
#[test]
fn a_kill_of_the_server_loses_no_notification() {
    let mut site = Site::start_with(&ALLOW_LOOPBACK);
    site.prepare(1);
    let receiver = Receiver::start(|event, earlier| (event != "succeeded" || earlier > 0).then_some(NO_CONTENT));
    let url = receiver.url("/canary-path").replace("http://", "http://me:canary-login@");
    submit(&site, "train", &wait_at("go"), &json!({"url": url, "secret": "canary-key"}));
    let started = receiver.wait_for("started", 1);
    let document = started.document();
    assert_eq!((&document["executionState"], &document["attempt"]), (&json!("running"), &json!(1)), "{document}");
    site.wait_for_state("train", &["running"]);
    site.kill_server();
    site.open_gate("go");
    site.up();
    let unanswered = receiver.wait_for("succeeded", 1);
    site.kill_server();
    site.up();
    let answered = receiver.wait_for("succeeded", 2);
    assert_eq!(answered.document(), unanswered.document(), "the same notification");

    let job = site.wait_for_end("train");
    assert_eq!(job["executionState"], "succeeded", "{job}");
    assert_eq!(job["notifications"]["webhook"]["url"], format!("http://{}/***", receiver.address), "{job}");
    let names = json!({"id": job["id"], "name": "train", "experiment": "cifar", "workspace": "batchaidev", "resourceGroup": GROUP});
    let document = answered.document();
    assert_eq!(document["job"], names);
    assert!(answered.head.starts_with("POST /canary-path HTTP/1.1\r\n"), "{}", answered.head);
    assert_eq!(answered.header("authorization"), Some("Basic bWU6Y2FuYXJ5LWxvZ2lu"));
    assert_eq!(answered.header("x-corro-delivery"), document["deliveryId"].as_str());
    assert_ne!(answered.header("x-corro-delivery"), started.header("x-corro-delivery"));
    assert_eq!(answered.header("x-corro-signature-256"), Some(signature("canary-key", &answered.body).as_str()));
    assert_eq!(places_with(&site, "canary"), [] as [String; 0], "a credential of the webhook is in the clear");
}

/// The signature of a body, computed as the documentation says.
fn signature(key: &str, body: &[u8]) -> String {
    let program = "import hashlib, hmac, sys; print('sha256=' + hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), hashlib.sha256).hexdigest())";
    let text = std::str::from_utf8(body).expect("text");
    let output = Command::new("python3").args(["-c", program, key, text]).output().expect("python3 runs");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

#[test]
fn a_receiver_that_fails_gets_the_notification_again() {
    let mut site = Site::start_with(&ALLOW_LOOPBACK);
    site.prepare(1);
    let receiver = Receiver::start(|event, earlier| match (event, earlier) {
        ("failed", 0) => Some("500 Internal Server Error"),
        ("failed", 1) => Some("302 Found"),
        _ => Some(NO_CONTENT),
    });
    let webhook = json!({"url": receiver.url("/hook"), "events": ["failed", "stopped"]});
    submit(&site, "fails", "exit 3", &webhook);
    let first = receiver.wait_for("failed", 1).document();
    assert_eq!((&first["exitCode"], &first["error"]["code"]), (&json!(3), &json!("JobFailed")), "{first}");
    assert_eq!(site.job("fails")["executionState"], "failed", "the job has ended whatever the receiver does");
    let sentence = "The webhook could not be told yet that the job has failed: it answered 302 Found, and redirects are not \
                    followed. It is tried again.";
    wait_for("the explanation of the second failure", || why(&site, "fails").contains(sentence));
    let third = receiver.wait_for("failed", 3);
    assert!(third.head.starts_with("POST /hook "), "a redirect is not followed: {}", third.head);
    assert_eq!(third.document(), first);
    wait_for("the delivery to be recorded", || !why(&site, "fails").contains("webhook"));

    // What was accepted is not posted again by the next server. A stopped job is no failed one.
    site.kill_server();
    site.up();
    submit(&site, "stopped", &wait_at("never"), &webhook);
    site.wait_for_state("stopped", &["running"]);
    site.corro(&format!("batchai job terminate {IN_WORKSPACE} -e cifar -n stopped --yes")).ok();
    let stopped = receiver.wait_for("stopped", 1).document();
    assert_eq!(stopped["error"]["code"], "JobTerminated", "{stopped}");
    let events: Vec<String> = receiver.posts().into_iter().map(|post| post.event).collect();
    assert_eq!(events, ["failed", "failed", "failed", "stopped"]);
}

/// The name of this machine is a name that only the resolver knows to be an address of this machine.
#[test]
fn addresses_that_are_not_public_are_refused() {
    let site = Site::start();
    site.prepare(1);
    let receiver = Receiver::start(|_, _| Some(NO_CONTENT));
    let settings = json!({"customToolkitSettings": {"commandLine": "true"}});
    let job = |url: &str| site.job_json(1, settings.clone(), json!({"notifications": {"webhook": {"url": url}}}));
    site.submit("refused", &job(&receiver.url("/canary")))
        .fails(1, &["properties.notifications.webhook.url", "'127.0.0.1' is a loopback address", "--webhook-allow"]);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if !(name, 0).to_socket_addrs().is_ok_and(|mut found| found.next().is_some()) {
        return skip::unsupported_machine("a machine whose own name can be resolved");
    }
    site.submit("named", &job(&format!("http://{name}:{}/canary", receiver.address.port()))).ok();
    assert_eq!(site.wait_for_end("named")["executionState"], "succeeded", "the job is not affected");
    let sentences = ["has started", "has succeeded"].map(|event| {
        format!("The webhook was not told that the job {event} (1 post): the address of its host is not allowed, unless the operator starts the server with --webhook-allow.")
    });
    wait_for("the refusals in the job's explanation", || {
        sentences.iter().all(|text| why(&site, "named").contains(text))
    });
    let history = site.corro("admin history --kind job.undelivered -o json").json();
    let events: Vec<_> =
        history.as_array().expect("a list").iter().map(|entry| entry["detail"]["event"].clone()).collect();
    assert_eq!(events.len(), 2, "{history}");
    assert!(site.up_log().contains("whose address is not allowed"), "the operator's log names the address");
    assert_eq!(receiver.posts().len(), 0);
    assert_eq!(places_with(&site, "canary"), [] as [String; 0]);
}

/// The webhook of an experiment is set, changed and removed by 'experiment create'.
#[test]
fn jobs_report_to_the_webhook_of_their_experiment() {
    let site = Site::start_with(&ALLOW_LOOPBACK);
    site.prepare(1);
    let receiver = Receiver::start(|_, _| Some(NO_CONTENT));
    let create = |rest: &str| site.corro(&format!("batchai experiment create {IN_WORKSPACE} -n cifar {rest}"));
    create("--webhook-on failed").fails(2, &["argument --webhook-on: it needs a webhook: give --webhook"]);
    create(&format!("--webhook {} --webhook-on succeeded", receiver.url("/canary"))).ok();
    let shown = site.corro(&format!("batchai experiment show {IN_WORKSPACE} -n cifar -o json")).json();
    assert_eq!(shown["notifications"]["webhook"]["url"], format!("http://{}/***", receiver.address), "{shown}");
    let settings = json!({"customToolkitSettings": {"commandLine": "true"}});
    site.submit_with("first", 1, settings.clone(), json!({}));
    let first = receiver.wait_for("succeeded", 1);
    assert_eq!(first.document()["job"]["name"], "first");
    assert!(first.head.starts_with("POST /canary HTTP/1.1\r\n"), "{}", first.head);
    create("--webhook off").ok();
    site.submit_with("second", 1, settings, json!({}));
    assert_eq!(site.wait_for_end("second")["executionState"], "succeeded");
    submit(&site, "third", "true", &json!({"url": receiver.url("/own")}));
    let third = receiver.wait_for("succeeded", 2);
    assert_eq!(third.document()["job"]["name"], "third", "nothing was posted of the second job");
    assert_eq!(places_with(&site, "canary"), [] as [String; 0]);
}

#[test]
fn an_operator_turns_webhooks_off() {
    let site = Site::start_with(&["--no-containers", "--no-webhooks"]);
    site.prepare(0);
    let settings = json!({"customToolkitSettings": {"commandLine": "true"}});
    let job = site.job_json(1, settings, json!({"notifications": {"webhook": {"url": "https://hooks.example/x"}}}));
    site.submit("refused", &job).fails(1, &["properties.notifications", "turned webhooks off"]);
}
