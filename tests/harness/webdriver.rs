//! WebDriver client: requests to a private `chromedriver`, which ends on drop. Depends on no other module of the harness, since
//! the benchmarks include it too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Timeout of every browser request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Shell that runs a driver and kills its process group, including browsers, when its standard input closes: however this
/// program ends.
const ENDS_WITH_ITS_INPUT: &str = "chromedriver --port=0 </dev/null & read -r _; kill -KILL 0";

pub struct Driver {
    process: Child,
    address: String,
    session: String,
}

/// Whether both programs are installed.
pub fn is_there() -> bool {
    let found = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|reply| reply.status.success());
    found("chromium") && found("chromedriver")
}

impl Driver {
    /// Starts a headless browser whose profile and downloads are in `dir`.
    pub fn start(dir: &Path, width: u32, height: u32) -> Result<Driver, Value> {
        let mut shell = Command::new("sh");
        shell.args(["-c", ENDS_WITH_ITS_INPUT]).process_group(0).env("HOME", dir);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = shell.spawn().map_err(|error| json!(error.to_string()))?;
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("started successfully on port ")?;
            rest.trim_end_matches('.').parse::<u16>().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        let address = format!("127.0.0.1:{}", port.unwrap_or_default());
        let mut driver = Driver { process, address, session: String::new() };
        let profile = format!("--user-data-dir={}", dir.join("profile").display());
        let size = format!("--window-size={width},{height}");
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--lang=en-US", size, profile],
            "prefs": {"download.default_directory": dir},
        });
        let wanted =
            json!({"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options});
        let session = driver.exchange("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}))?;
        driver.session = session["sessionId"].as_str().unwrap_or_default().to_owned();
        driver.ask("POST", "timeouts", &json!({"script": 30_000, "pageLoad": 30_000}))?;
        Ok(driver)
    }

    /// Sends a WebDriver command and returns its result or its error.
    pub fn ask(&self, method: &str, command: &str, body: &Value) -> Result<Value, Value> {
        self.exchange(method, &format!("/session/{}/{command}", self.session), body)
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (address, length) = (&self.address, body.len());
        let kind = "Content-Type: application/json; charset=utf-8";
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{kind}\r\n\r\n{body}"
        );
        let (status, response) = post(address, request.as_bytes()).map_err(|error| json!(error.to_string()))?;
        let reply: Value = serde_json::from_slice(&response).map_err(|error| json!(error.to_string()))?;
        if status == 200 { Ok(reply["value"].clone()) } else { Err(reply["value"].clone()) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.exchange("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Status and body. The driver sends a content length and leaves the connection open.
fn post(address: &str, request: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.write_all(request)?;
    let mut response = BufReader::new(stream);
    let (mut status, mut length, mut line) = (0, 0, String::new());
    while response.read_line(&mut line)? > 2 {
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().unwrap_or(0)
            }
            None => status = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0),
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    response.read_exact(&mut body)?;
    Ok((status, body))
}
