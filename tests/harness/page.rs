//! Browser helpers on top of `browser`: scripts, texts anywhere on a page, clicks by visible label.

use serde_json::{Value, json};

use super::browser::Browser;

impl Browser {
    /// Result of a script in the page; promises are awaited.
    #[track_caller]
    pub fn eval(&self, script: &str) -> Value {
        self.await_promise(&format!("(async () => {{ {script} }})()"))
    }

    /// Waits until the script returns a truthy value.
    #[track_caller]
    pub fn wait_for_script(&self, script: &str) {
        self.wait(&format!("(() => {{ {script} }})()"));
    }

    /// Waits until an element that matches `css` contains the text.
    #[track_caller]
    pub fn wait_for_text(&self, css: &str, text: &str) {
        self.wait(&format!(
            "[...document.querySelectorAll({})].some((one) => one.innerText.includes({}))",
            json!(css),
            json!(text)
        ));
    }

    /// Clicks the first element that matches `css` and whose text starts with `text`.
    #[track_caller]
    pub fn click_on(&self, css: &str, text: &str) {
        let found = format!(
            "[...document.querySelectorAll({})].find((one) => one.innerText.trim().startsWith({}))",
            json!(css),
            json!(text)
        );
        self.wait(&found);
        let element = self.value(&found);
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        self.command(&format!("element/{}/click", id.expect("an element")), json!({}));
    }

    pub fn url(&self) -> String {
        self.value("location.href").as_str().unwrap_or_default().to_owned()
    }

    /// Asserts that the pages logged no errors since the last check, except those that contain one of these texts.
    #[track_caller]
    pub fn assert_console_clean_except(&self, meant: &[&str]) {
        let errors = self.console_errors();
        let odd: Vec<_> = errors.iter().filter(|error| !meant.iter().any(|text| error.contains(text))).collect();
        assert!(odd.is_empty(), "the console has errors: {odd:#?}");
    }
}
