//! A real browser, driven over WebDriver: Chromium with a profile of its own, which ends with the test. Every wait is for a
//! condition in the page. Whatever the page says on its console as an error fails the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::host::find_program;
use super::http::{exchange, head};
use super::{Site, wait_for};

pub struct Browser {
    driver: Child,
    address: String,
    session: String,
    _profile: tempfile::TempDir,
}

/// What WebDriver calls keys that write nothing.
pub mod keys {
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const TAB: &str = "\u{e004}";
    pub const DOWN: &str = "\u{e015}";
}

impl Browser {
    /// `None`, loudly, where there is no Chromium.
    pub fn start() -> Option<Browser> {
        let (Some(chromium), Some(driver)) = (find_program("chromium"), find_program("chromedriver")) else {
            eprintln!("SKIPPED: no chromium or no chromedriver on this machine, so no page can be looked at");
            return None;
        };
        let profile = tempfile::Builder::new().prefix("corro-browser-").tempdir().expect("a temporary directory");
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let mut lines = BufReader::new(driver.stdout.take().expect("it is piped"));
        let port = loop {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).expect("its output can be read"), 0, "chromedriver ended");
            let said = line.split("successfully on port ").nth(1);
            if let Some(port) = said.and_then(|rest| rest.trim().trim_end_matches('.').parse::<u16>().ok()) {
                break port;
            }
        };
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let mut browser =
            Browser { driver, address: format!("127.0.0.1:{port}"), session: String::new(), _profile: profile };
        let mut arguments: Vec<String> = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1360,900",
        ]
        .map(str::to_owned)
        .into();
        arguments.push(format!("--user-data-dir={}", browser._profile.path().display()));
        let options = json!({"binary": chromium, "args": arguments});
        let wanted = json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let made = browser.ask("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}")).to_owned();
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let length = format!("Content-Length: {}", body.len());
        let lines = ["Content-Type: application/json", length.as_str()];
        let request = head(&self.address, &format!("{method} {path} HTTP/1.1"), &lines) + &body;
        let answer = exchange(&self.address, request.as_bytes()).unwrap_or_else(|| panic!("{path}: no answer"));
        let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        assert_eq!(answer.status, 200, "{method} {path}: {}", told["value"]["message"]);
        told["value"].clone()
    }

    fn tell(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    pub fn go(&self, url: &str) {
        self.tell("/url", &json!({"url": url}));
    }

    pub fn url(&self) -> String {
        self.eval("return location.href").as_str().unwrap_or_default().to_owned()
    }

    /// The page of a site, logged in as its administrator.
    pub fn open(&self, site: &Site, path: &str) {
        self.go(&format!("{}{path}#token={}", site.url, site.token()));
    }

    /// What a script in the page gives back; one that gives a promise is waited for.
    pub fn eval(&self, script: &str) -> Value {
        let script = format!("return (async () => {{ {script} }})()");
        self.tell("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until the script gives something true.
    #[track_caller]
    pub fn wait(&self, what: &str, script: &str) -> Value {
        let mut last = Value::Null;
        let holds = || {
            last = self.eval(script);
            !matches!(&last, Value::Null | Value::Bool(false)) && last != "" && last != 0
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wait_for(what, holds)));
        if outcome.is_err() {
            panic!("waited for {what}; the page at {} shows: {}", self.url(), self.text("body"));
        }
        last
    }

    /// Waits until the text is to be read inside what `css` chooses.
    #[track_caller]
    pub fn sees(&self, css: &str, text: &str) {
        let script = format!(
            "return [...document.querySelectorAll({})].some((e) => e.innerText.includes({}))",
            json!(css),
            json!(text)
        );
        self.wait(&format!("{text:?} in {css}"), &script);
    }

    pub fn text(&self, css: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(css));
        self.eval(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks on the first element that `css` chooses, as a person does, when it is there.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.tell(&format!("/element/{}/click", self.find(css)), &json!({}));
    }

    /// Clicks on the first of them that has this text.
    #[track_caller]
    pub fn click_on(&self, css: &str, text: &str) {
        let found = format!(
            "[...document.querySelectorAll({})].find((e) => e.innerText.trim().startsWith({}))",
            json!(css),
            json!(text)
        );
        let element = self.wait(&format!("{text:?} in {css}"), &format!("return {found} ?? null"));
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        self.tell(&format!("/element/{}/click", id.expect("an element")), &json!({}));
    }

    /// Writes into a field.
    #[track_caller]
    pub fn write(&self, css: &str, text: &str) {
        self.tell(&format!("/element/{}/value", self.find(css)), &json!({"text": text}));
    }

    /// Presses keys, wherever the focus is.
    pub fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            [json!({"type": "keyDown", "value": key.to_string()}), json!({"type": "keyUp", "value": key.to_string()})]
        });
        let strokes: Vec<Value> = strokes.collect();
        self.tell("/actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}));
    }

    #[track_caller]
    fn find(&self, css: &str) -> String {
        let script = format!("return document.querySelector({}) ?? null", json!(css));
        let element = self.wait(css, &script);
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        id.expect("an element").to_owned()
    }

    /// A command of Chromium's own protocol.
    pub fn cdp(&self, command: &str, parameters: Value) -> Value {
        self.tell("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Errors on the console since the last look.
    pub fn errors(&self) -> Vec<String> {
        let log = self.tell("/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().into_iter().flatten().filter(|entry| entry["level"] == "SEVERE");
        entries.filter_map(|entry| entry["message"].as_str().map(str::to_owned)).collect()
    }

    /// Nothing went wrong on the page; errors that have one of these texts in them were meant.
    #[track_caller]
    pub fn is_clean_but_for(&self, meant: &[&str]) {
        let errors = self.errors();
        let odd: Vec<_> = errors.iter().filter(|error| !meant.iter().any(|text| error.contains(text))).collect();
        assert!(odd.is_empty(), "the console has errors: {odd:#?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let request = head(&self.address, &format!("DELETE /session/{} HTTP/1.1", self.session), &[]);
            let _ = exchange(&self.address, request.as_bytes());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
