//! A real browser, driven through WebDriver: Debian's Chromium, headless, with its own profile. Ends with the test. Every error
//! that a page writes to the console fails its test.

use std::time::Instant;

use base64::{Engine, engine::general_purpose::STANDARD};
use corro_test_support::skip;
use serde_json::{Value, json};

use super::webdriver::{self, Driver};
use super::{DEADLINE, Site};

/// WebDriver's key for an element reference.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    driver: Driver,
    /// Its profile and downloads.
    pub dir: tempfile::TempDir,
    /// Parts of console errors that the test expects.
    expected: Vec<String>,
}

/// Keys in WebDriver's encoding.
pub mod keys {
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const TAB: &str = "\u{e004}";
    pub const HOME: &str = "\u{e011}";
    pub const END: &str = "\u{e010}";
    pub const LEFT: &str = "\u{e012}";
}

impl Browser {
    /// `None`, with a notice, without a browser.
    pub fn start() -> Option<Browser> {
        Self::start_sized(1280, 1000)
    }

    pub fn start_sized(width: u32, height: u32) -> Option<Browser> {
        if !webdriver::is_there() {
            skip::missing_component("chromium and chromedriver are not both installed");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("corro-browser-").tempdir().expect("a temporary directory");
        let driver = Driver::start(dir.path(), width, height).expect("a browser starts");
        Some(Browser { driver, dir, expected: Vec::new() })
    }

    /// Opens a page of the site, logged in as its administrator.
    pub fn open(&self, site: &Site, path: &str) {
        let token = site.token();
        self.go(&format!("{}{path}#token={token}", site.url));
    }

    /// Navigates to a URL. When network interfaces change, as other tests make them do, Chromium aborts loading, so navigation
    /// is repeated.
    pub fn go(&self, url: &str) {
        self.command("url", json!({ "url": url }));
        let dropped = "performance.getEntriesByType('resource').some((one) => one.responseStatus === 0 && one.name.includes('/ui/assets/'))";
        for _ in 0..10 {
            if self.value(dropped) != true {
                return;
            }
            self.command("url", json!({ "url": "about:blank" }));
            self.command("url", json!({ "url": url }));
        }
    }

    /// The value of an expression in the page.
    pub fn value(&self, expression: &str) -> Value {
        self.command("execute/sync", json!({"script": format!("return {expression}"), "args": []}))
    }

    /// Result of a promise in the page.
    pub fn await_promise(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; Promise.resolve({expression}).then(done, (error) => done('error: ' + error.stack))"
        );
        self.command("execute/async", json!({"script": script, "args": []}))
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub fn wait(&self, expression: &str) {
        let deadline = Instant::now() + DEADLINE;
        // During navigation there is no page to evaluate in.
        let holds = || self.try_value(&format!("Boolean({expression})")) == Some(json!(true));
        while !holds() {
            if Instant::now() > deadline {
                let shown = self.value("document.body.innerText");
                panic!("waited {} s for {expression}; the page says: {shown}", DEADLINE.as_secs());
            }
            std::thread::park_timeout(std::time::Duration::from_millis(30));
        }
    }

    /// Waits until the text of an element contains this part.
    #[track_caller]
    pub fn wait_text(&self, selector: &str, part: &str) {
        self.wait(&format!("document.querySelector({})?.innerText.includes({})", json!(selector), json!(part)));
    }

    pub fn text(&self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({})?.innerText ?? ''", json!(selector)));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks like a person: at the element's position, when nothing covers it.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        self.wait(&format!("document.querySelector({})", json!(selector)));
        let element = self.find(selector);
        self.command(&format!("element/{element}/click"), json!({}));
    }

    /// Types into an element, after its existing content.
    #[track_caller]
    pub fn write(&self, selector: &str, text: &str) {
        self.wait(&format!("document.querySelector({})", json!(selector)));
        let element = self.find(selector);
        self.command(&format!("element/{element}/value"), json!({ "text": text }));
    }

    /// Presses keys at the current focus.
    pub fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})));
        let strokes: Vec<Value> = strokes.collect();
        self.command("actions", json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}));
    }

    /// Allows console errors that contain this text.
    pub fn allow_console_errors(mut self, part: &str) -> Self {
        self.expected.push(part.to_owned());
        self
    }

    /// Console errors since the last call, except the expected ones.
    pub fn console_errors(&self) -> Vec<String> {
        let lines = self.command("se/log", json!({"type": "browser"}));
        let errors = lines.as_array().into_iter().flatten().filter(|line| line["level"] == "SEVERE");
        let texts = errors.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        let texts = texts.filter(|text| !text.contains("ERR_NETWORK_CHANGED"));
        texts.filter(|text| !self.expected.iter().any(|part| text.contains(part))).collect()
    }

    pub fn screenshot(&self, path: &std::path::Path) {
        let encoded = self.ask("GET", "screenshot", Value::Null);
        let picture = STANDARD.decode(encoded.as_str().expect("a picture")).expect("base64");
        std::fs::write(path, picture).expect("the picture is written");
    }

    /// Ends a test: asserts that there were no console errors.
    #[track_caller]
    pub fn end(self) {
        let errors = self.console_errors();
        assert!(errors.is_empty(), "the console has errors: {errors:#?}");
    }

    fn find(&self, selector: &str) -> String {
        let found = self.command("element", json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no element {selector}: {found}")).to_owned()
    }

    fn try_value(&self, expression: &str) -> Option<Value> {
        let script = json!({"script": format!("return {expression}"), "args": []});
        self.driver.ask("POST", "execute/sync", &script).ok()
    }

    #[track_caller]
    pub fn command(&self, name: &str, body: Value) -> Value {
        self.ask("POST", name, body)
    }

    #[track_caller]
    fn ask(&self, method: &str, command: &str, body: Value) -> Value {
        let result = self.driver.ask(method, command, &body);
        result.unwrap_or_else(|result| panic!("{method} {command}: {result}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = self.try_value("document.body.innerText");
            eprintln!("--- the page says ---\n{}", shown.as_ref().and_then(Value::as_str).unwrap_or_default());
            eprintln!("--- the console ---\n{:#?}", self.console_errors());
        }
    }
}
