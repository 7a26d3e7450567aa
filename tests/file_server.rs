//! `corro files`: the standalone file service as a real process, used with connection strings by our own client and, where
//! installed, by the current SDK.

mod harness;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::host::azure_client;
use harness::{CommandOutput, http};
use rustix::process::{Pid, Signal, kill_process};

struct Files {
    dir: tempfile::TempDir,
    child: Option<Child>,
    url: String,
    /// Output of the start, without its first line.
    said: String,
}

impl Files {
    fn new() -> Files {
        let dir = tempfile::Builder::new().prefix("corro-test-").tempdir().expect("a temporary directory");
        Files { dir, child: None, url: String::new(), said: String::new() }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corro"));
        command.args(line.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command
    }

    fn start(&mut self, args: &str) {
        let mut command = self.command(&format!("files --data data --listen 127.0.0.1:0 {args}"));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let url = first.split_whitespace().find(|word| word.starts_with("http")).map(str::to_owned);
        let Some(url) = url else {
            panic!("it said {first:?} {:?}", CommandOutput::from(child.wait_with_output().expect("ended")));
        };
        self.url = url;
        self.said = lines.by_ref().take_while(|line| line != "Ctrl-C stops.").collect::<Vec<_>>().join("\n");
        self.child = Some(child);
    }

    /// Sends Ctrl-C. Returns the exit code and the last output.
    fn stop(&mut self) -> (Option<i32>, String) {
        let mut child = self.child.take().expect("it runs");
        kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (child.wait().expect("it ends").code(), said)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn connection(&self, account: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("data/accounts/{account}.connection"))).expect("it is kept");
        text.trim().to_owned()
    }

    /// Our own client with the account's connection string and nothing else.
    fn corro(&self, account: &str, line: &str) -> CommandOutput {
        let mut command = self.command(line);
        command.env("AZURE_STORAGE_CONNECTION_STRING", self.connection(account));
        let authority = self.path("data/tls/ca.pem");
        if authority.exists() {
            command.env("CORRO_CA", authority);
        }
        CommandOutput::from(command.output().expect("it runs"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn a_directory_is_served_with_its_connection_string() {
    let mut files = Files::new();
    files.start("--account one --account two");
    let key_file = files.path("data/accounts/one.key");
    assert_eq!((mode(&key_file), mode(&files.path("data/accounts/one.connection"))), (0o600, 0o600));
    let keys = fs::read_to_string(&key_file).expect("keys");
    assert!(!files.said.contains(keys.lines().next().expect("a key")), "a key is shown: {}", files.said);
    assert!(files.said.contains("one.connection") && files.said.contains("two.connection"), "{}", files.said);

    files.corro("one", "storage share create -n share").ok();
    fs::write(files.path("up.bin"), vec![7; 5_000_000]).expect("written");
    files.corro("one", "storage file upload -s share --source up.bin").ok();
    assert_eq!(fs::read(files.path("data/shares/one/share/up.bin")).expect("a plain file"), vec![7; 5_000_000]);
    fs::write(files.path("data/shares/one/share/by hand.txt"), "hello").expect("written");
    let list = files.corro("one", "storage file list -s share --query [].name -o tsv").ok().stdout;
    assert_eq!(list, "by hand.txt\nup.bin\n");
    files.corro("one", "storage file download -s share -p up.bin --dest down.bin").ok();
    assert_eq!(fs::read(files.path("down.bin")).expect("downloaded"), vec![7; 5_000_000]);
    // Accounts are separate: another's key gives no access.
    assert_eq!(files.corro("two", "storage share list").json(), serde_json::json!([]));
    let wrong = files.connection("two").replace("AccountName=two", "AccountName=one").replace("/two", "/one");
    let refused = files.command("storage share list").env("AZURE_STORAGE_CONNECTION_STRING", wrong).output();
    CommandOutput::from(refused.expect("it runs")).fails(1, &["failed to authenticate"]);

    let (code, said) = files.stop();
    assert_eq!((code, said.trim()), (Some(0), "Stopped."));
    // A restart keeps the accounts and their keys.
    files.start("");
    assert_eq!(fs::read_to_string(&key_file).expect("keys"), keys);
    assert_eq!(files.corro("one", "storage share exists -n share").json()["exists"], true);
}

#[test]
fn there_is_nothing_else_on_that_port() {
    let mut files = Files::new();
    files.start("--account one");
    let address = files.url.trim_start_matches("http://").to_owned();
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/subscriptions?api-version=2016-06-01"),
        ("POST", "/adfs/oauth2/token"),
        ("POST", "/oauth2/token"),
        ("GET", "/metadata/endpoints?api-version=2015-01-01"),
        ("POST", "/corro/v1/join"),
        ("GET", "/corro/v1/connect"),
        ("GET", "/one/share?restype=share"),
        ("GET", "/unknown?comp=list"),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd"),
    ] {
        let request = http::request_head(&address, &format!("{method} {path} HTTP/1.1"), &["Content-Length: 0"]);
        let response = http::exchange(&address, request.as_bytes()).expect("a response");
        assert!(matches!(response.status, 400 | 401 | 403), "{method} {path}: {}", response.status);
        assert!(response.header("x-ms-error-code").is_some(), "{method} {path}");
    }
    assert!(!files.path("data/corro.db").exists() && !files.path(".corro").exists(), "nothing but files is kept");
}

#[test]
fn over_tls_with_the_users_own_key_and_wrong_starts() {
    let mut files = Files::new();
    fs::write(files.path("my.key"), "bXkgb3duIGtleQ==\n").expect("written");
    files.start("--account one --key-file my.key --tls --name files.test --show-connection-strings");
    assert!(files.url.starts_with("https://files.test:"), "{}", files.url);
    assert!(files.said.contains("AccountKey=bXkgb3duIGtleQ=="), "{}", files.said);
    // The name is only in the certificate; this machine knows the address.
    let local = files.connection("one").replace("files.test", "127.0.0.1");
    let mut command = files.command("storage share create -n share");
    command.env("AZURE_STORAGE_CONNECTION_STRING", &local).env("CORRO_CA", files.path("data/tls/ca.pem"));
    CommandOutput::from(command.output().expect("it runs")).ok();
    let mut command = files.command("storage share list");
    let untrusted = command.env("AZURE_STORAGE_CONNECTION_STRING", &local).output().expect("it runs");
    CommandOutput::from(untrusted).fails(1, &["is not trusted"]);

    let run = |line: &str| CommandOutput::from(files.command(line).output().expect("it runs"));
    run("files --data data --account one").fails(1, &["already running"]);
    run("files --data other").fails(2, &["there is no account to serve", "--account"]);
    run("files --data other --account No_Good").fails(1, &["No_Good"]);
    run("files --data other --account a1b --listen 0.0.0.0:0").fails(1, &["without TLS"]);
    run("files --data other --account abc --account abd --key-file my.key").fails(2, &["belongs to one account"]);
    fs::create_dir(files.path("whole")).expect("made");
    fs::write(files.path("whole/corro.db"), "").expect("written");
    run("files --data whole --account abc").fails(1, &["the data directory of a full server", "'corro up'"]);
}

#[test]
fn todays_sdk_needs_the_connection_string_only() {
    let Some(sdk) = azure_client("sdk12") else { return };
    for args in ["", "--tls"] {
        let mut files = Files::new();
        files.start(&format!("--account one {args}"));
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/azure/python/connection_string.py");
        let mut command = Command::new(sdk.join("bin/python"));
        command.arg("-B").arg(program).env("CONNECTION_STRING_FILE", files.path("data/accounts/one.connection"));
        if !args.is_empty() {
            command.env("CA_FILE", files.path("data/tls/ca.pem"));
        }
        CommandOutput::from(command.output().expect("Python runs")).ok();
    }
}
