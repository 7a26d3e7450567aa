//! Notebooks: what a browser reaches, what is secret, and what happens to the job.

use crate::harness::{http, signal, wait_for};
use crate::project::ProjectSite;
use rustix::process::Signal;

/// What `corro notebook` relies on: the token from the environment, a port of the loopback address from `--port` on, and the file about itself. It prints
/// its address with the token, as Jupyter does.
const JUPYTER: &str = r#"#!/usr/bin/env python3
import http.server, json, os, pathlib, sys, urllib.parse
token = os.environ["JUPYTER_TOKEN"]
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        allowed = urllib.parse.parse_qs(url.query).get("token") == [token]
        if allowed and url.path == "/save":
            pathlib.Path("analysis.ipynb").write_text("saved")
        body = f"jupyter at {url.path}, {' '.join(sys.argv[1:])}\n".encode() if allowed else b"no\n"
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
for port in range(int(options["--port"]), int(options["--port"]) + int(options["--port-retries"])):
    try:
        server = http.server.ThreadingHTTPServer((options["--ip"], port), Handler)
        break
    except OSError:
        pass
directory = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
about = {"port": port, "token": token, "base_url": "/", "secure": False, "pid": os.getpid()}
(directory / f"jpserver-{os.getpid()}.json").write_text(json.dumps(about))
print(f"http://127.0.0.1:{port}/lab?token={token}", file=sys.stderr, flush=True)
server.serve_forever()
"#;

fn site() -> ProjectSite {
    ProjectSite::new(&[("jupyter-lab", JUPYTER)])
}

/// The token in an address.
fn token(url: &str) -> &str {
    url.split_once("/lab?token=").expect("a token").1
}

#[test]
fn a_browser_reaches_jupyter_and_the_notebook_goes_on_after_ctrl_c() {
    let project = site();
    // A port that no other test takes when this one leaves it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let mut notebook = project.start(&format!("notebook --port {} -- --debug", free.port()));
    let url = notebook.wait_for_line("http://127.0.0.1:");
    let answer = http::get(&url, &[]);
    assert_eq!(answer.status, 200);
    assert!(
        answer.text().starts_with("jupyter at /lab, ") && answer.text().ends_with(" --debug\n"),
        "{}",
        answer.text()
    );
    assert_eq!(http::get(url.split('?').next().expect("an address"), &[]).status, 403, "the token is needed");

    // The token is shown to the user of this command alone.
    let secret = token(&url);
    assert_eq!(secret.len(), 48);
    let log = project.job_directory("notebook-1").join(".corro/logs");
    let logs = || walk(&log).iter().map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect::<String>();
    wait_for("Jupyter's own message in the log", || logs().contains("/lab?token="));
    assert!(!logs().contains(secret), "{}", logs());
    let shown = project.site.corro("batchai job show -g default -w default -e cifar -n notebook-1").ok();
    assert!(!shown.stdout.contains(secret) && shown.stdout.contains("JUPYTER_TOKEN"), "{}", shown.stdout);
    assert!(!notebook.stderr().contains(secret), "{}", notebook.stderr());

    notebook.interrupt();
    let ended = notebook.end().ok();
    assert!(
        ended
            .stderr
            .contains("The notebook notebook-1 goes on. Reach it again with 'corro notebook attach notebook-1'"),
        "{}",
        ended.stderr
    );
    assert!(std::net::TcpStream::connect(address(&url)).is_err(), "the local port is closed");
    assert_eq!(project.job_state("notebook-1"), "running");

    let mut again = project.start("notebook attach notebook-1");
    let again_url = again.wait_for_line("http://127.0.0.1:");
    assert_eq!(token(&again_url), secret);
    let save = again_url.replace("/lab?", "/save?");
    assert_eq!(http::get(&save, &[]).status, 200);
    project.corro("job stop notebook-1").ok();
    again.end().fails(1, &["The job notebook-1 failed"]);
    // What was saved is a result of the job.
    project.corro("fetch notebook-1").ok();
    assert_eq!(
        std::fs::read_to_string(project.dir().join("notebook-1/analysis.ipynb")).expect("it is fetched"),
        "saved"
    );
}

fn address(url: &str) -> String {
    url.split('/').nth(2).expect("an address").to_owned()
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn two_notebooks_on_one_machine_have_ports_of_their_own() {
    let project = site();
    // The cluster has two nodes then.
    project.corro("submit --nodes 2 -- true").ok();
    let mut one = project.start("notebook --name one");
    let first = one.wait_for_line("http://127.0.0.1:");
    let mut two = project.start("notebook --name two --stop-on-exit");
    let second = two.wait_for_line("http://127.0.0.1:");
    assert_ne!((address(&first), token(&first)), (address(&second), token(&second)));
    for url in [&first, &second] {
        assert_eq!(http::get(url, &[]).status, 200);
    }
    let crossed = format!("http://{}/lab?token={}", address(&first), token(&second));
    assert_eq!(http::get(&crossed, &[]).status, 403, "each port leads to its own notebook");
    two.interrupt();
    let ended = two.end().ok();
    assert!(ended.stderr.contains("Stopped. Its files: 'corro fetch two'."), "{}", ended.stderr);
    assert_eq!(project.job_state("two"), "failed");
    assert_eq!(project.job_state("one"), "running");
}

#[test]
fn the_address_stays_while_the_job_moves_and_the_server_restarts() {
    let mut project = site();
    let address_of_server = project.site.url.strip_prefix("http://").expect("an address").to_owned();
    let mut notebook = project.start("notebook");
    let url = notebook.wait_for_line("http://127.0.0.1:");
    assert_eq!(http::get(&url, &[]).status, 200);
    project.site.kill_server();
    project.site.up_at(&address_of_server);
    assert_eq!(http::get(&url, &[]).status, 200, "the same address leads there again");
    // The node is lost, and the job runs again.
    let agents = project.site.agents();
    let (_, pid) = agents.first().expect("a node");
    signal(*pid, Signal::KILL);
    wait_for("the notebook to be reached again", || notebook.stderr().contains("Jupyter can be reached again."));
    assert_eq!(http::get(&url, &[]).status, 200);
    assert_eq!(notebook.stdout().lines().count(), 1, "the address is the same: {}", notebook.stdout());
    notebook.interrupt();
    notebook.end().ok();
}

#[test]
fn without_jupyter_the_job_says_how_to_get_it() {
    let none = "#!/bin/sh\nexit 1\n";
    let project = ProjectSite::new(&[("python3", none), ("python", none)]);
    let mut notebook = project.start("notebook");
    let ended = notebook.end();
    if ended.code == -1 || ended.stdout.contains("http://") {
        return;
    }
    let ended = ended.fails(1, &["The job notebook-1 failed with exit code 1", "add '--pip jupyterlab'"]);
    assert_eq!(ended.stdout, "");
}

#[test]
fn mistakes_are_refused_before_anything_is_submitted() {
    let project = site();
    project.corro("notebook --nodes 2").fails(2, &["argument --nodes: a notebook is one process on one node"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    project.corro(&format!("notebook --port {port}")).fails(1, &[&format!("cannot listen on port {port}"), "--port"]);
    project.corro("notebook attach none").fails(3, &["there is no job none"]);
    let jobs = project.site.corro("batchai job list -g default -w default -e cifar");
    assert!(jobs.code != 0 || jobs.json().as_array().is_some_and(Vec::is_empty));
}
