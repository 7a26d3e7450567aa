//! The public API without our client: raw requests, tokens, and signatures of the file service. For suites that test the wire
//! format, also with requests that no client sends.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corro_model::storage::shared_key;
use serde_json::Value;

use super::Site;
use super::http::{Response, exchange, request_head};

pub const VERSION: &str = "2018-05-01";

impl Response {
    /// The body as JSON; `null` when it is empty.
    #[track_caller]
    pub fn json(&self) -> Value {
        if self.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// The status and the ARM envelope's code.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        let response = self.is(status);
        let error = &response.json()["error"];
        assert_eq!(error["code"], code, "{response}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{response}");
        response
    }

    /// Value of a header that must be present.
    #[track_caller]
    pub fn required_header(&self, name: &str) -> String {
        self.header(name).unwrap_or_else(|| panic!("no {name} in {self}")).to_owned()
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n\n{}", self.headers, self.text())
    }
}

impl Site {
    /// A request with only these headers and a content length.
    #[track_caller]
    pub fn request(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        lines.push(format!("Content-Length: {}", body.len()));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let address = self.address();
        let mut bytes = request_head(&address, &format!("{method} {target} HTTP/1.1"), &lines).into_bytes();
        bytes.extend_from_slice(body);
        exchange(&address, &bytes).unwrap_or_else(|| panic!("{method} {target} got no response"))
    }

    /// A request as the resource manager's clients send it: bearer token and API version, JSON content type even without a
    /// body. Every response is validated against the service's document.
    #[track_caller]
    pub fn arm(&self, method: &str, path: &str, body: Value) -> Response {
        let token = format!("Bearer {}", self.token());
        let target = match path.contains('?') {
            true => path.to_owned(),
            false => format!("{path}?api-version={VERSION}"),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Authorization", token.as_str()), ("Content-Type", "application/json; charset=utf-8")];
        let response = self.request(method, &target, &headers, body.as_bytes());
        super::swagger::document().assert_conforms(method, &target, &response);
        response
    }

    /// A new access token of the administrator.
    #[track_caller]
    pub fn token(&self) -> String {
        let profile = self.profile();
        let field = |name: &str| profile[name].as_str().expect("text").to_owned();
        let form = format!(
            "grant_type=client_credentials&client_id={}&resource=x&client_secret={}",
            field("clientId"),
            field("clientSecret")
        );
        let kind = [("Content-Type", "application/x-www-form-urlencoded")];
        let response = self.request("POST", "/adfs/oauth2/token", &kind, form.as_bytes()).is(200);
        response.json()["access_token"].as_str().expect("a token").to_owned()
    }

    pub fn profile(&self) -> Value {
        let text = std::fs::read(self.path().join("config/profile.json")).expect("the server wrote a profile");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// `/subscriptions/…`
    pub fn subscription(&self) -> String {
        format!("/subscriptions/{}", self.profile()["subscription"].as_str().expect("text"))
    }

    /// The workspace that `prepare` creates.
    pub fn workspace(&self) -> String {
        let group = format!("{}/resourceGroups/{}", self.subscription(), super::GROUP);
        format!("{group}/providers/Microsoft.BatchAI/workspaces/batchaidev")
    }

    /// The account's two keys as displayed: base64.
    pub fn account_keys(&self) -> Vec<String> {
        let path = "providers/Microsoft.Storage/storageAccounts/mystorageaccount/listKeys";
        let response =
            self.arm("POST", &format!("{}/resourceGroups/{}/{path}", self.subscription(), super::GROUP), Value::Null);
        let keys = response.is(200).json();
        let keys = keys["keys"].as_array().expect("a list").iter();
        keys.map(|key| key["value"].as_str().expect("text").to_owned()).collect()
    }

    pub fn raw_key(&self) -> Vec<u8> {
        STANDARD.decode(&self.account_keys()[0]).expect("base64")
    }

    /// A request of the file service in path style, signed with the account's key. `target` begins after the account.
    #[track_caller]
    pub fn signed_request(
        &self,
        key: &[u8],
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        headers.extend([("x-ms-date", date.as_str()), ("x-ms-version", "2018-03-28")]);
        let target = format!("/mystorageaccount{target}");
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let request = shared_key::Request { method, path, query, account: "mystorageaccount" };
        let signed = headers.iter().copied().chain([("content-length", length.as_str())]);
        let authorization = shared_key::authorization(request, signed, key);
        headers.push(("Authorization", &authorization));
        self.request(method, &target, &headers, body)
    }
}
