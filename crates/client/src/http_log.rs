//! Log of requests and responses for `--verbose` and `--debug`. Never logs a secret: signatures are cut from URLs,
//! headers are on an allow list, and of bodies only JSON is shown, with every field redacted that could hold a key,
//! password, token or variable value. The log levels are below those of long-running commands.

use std::sync::OnceLock;
use std::time::Duration;

use corro_model::warnings;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tracing::{debug, enabled, trace};

/// Headers that hold no secret.
const LOGGED_HEADERS: [&str; 9] = [
    "content-type",
    "content-length",
    "content-range",
    "retry-after",
    "azure-asyncoperation",
    "location",
    "x-ms-request-id",
    "x-ms-error-code",
    "etag",
];
/// JSON fields whose names contain one of these are redacted if they hold text.
const REDACTED_FIELD_WORDS: [&str; 7] = ["key", "password", "secret", "token", "value", "credential", "signature"];
/// Longer bodies are not logged, in bytes.
const MAX_LOGGED_BYTES: usize = 64 << 10;

/// Logs a request before it is sent.
pub fn sent(method: &Method, url: &str, body: &[u8]) {
    debug!("{method} {}", safe_url(url));
    if enabled!(tracing::Level::TRACE) && !body.is_empty() {
        trace!("  > {}", safe_body(body));
    }
}

/// Callback for the warnings in response headers.
static ON_WARNING: OnceLock<fn(&str)> = OnceLock::new();

/// Registers the callback for warnings in responses. Only the first registration counts.
pub fn on_warning(tell: fn(&str)) {
    let _ = ON_WARNING.set(tell);
}

/// Logs the head of a response.
pub fn answered(status: StatusCode, headers: &HeaderMap, after: Duration) {
    if let Some(tell) = ON_WARNING.get() {
        let values = headers.get_all(warnings::HEADER).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        values.filter_map(|value| warnings::decode(&value)).for_each(|text| tell(&text));
    }
    debug!("  {status} after {} ms", after.as_millis());
    for name in LOGGED_HEADERS {
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            trace!("  < {name}: {}", safe_url(value));
        }
    }
}

/// Logs the body of a response.
pub fn read(body: &[u8]) {
    if enabled!(tracing::Level::TRACE) && !body.is_empty() {
        trace!("  < {}", safe_body(body));
    }
}

/// Removes signatures: the whole query of a SAS URL, and the signing parameters of other queries.
fn safe_url(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let parts: Vec<String> = query
        .split('&')
        .map(|part| match part.split_once('=') {
            Some((name @ ("sig" | "code" | "token" | "client_secret"), _)) => format!("{name}=***"),
            _ => part.to_owned(),
        })
        .collect();
    format!("{path}?{}", parts.join("&"))
}

fn safe_body(body: &[u8]) -> String {
    let json = if body.len() <= MAX_LOGGED_BYTES { serde_json::from_slice::<Value>(body).ok() } else { None };
    match json {
        Some(mut json) => {
            blank(&mut json);
            json.to_string()
        }
        None => format!("({} bytes)", body.len()),
    }
}

fn blank(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(blank),
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_lowercase();
                match value {
                    Value::String(text) if REDACTED_FIELD_WORDS.iter().any(|part| name.contains(part)) => {
                        *text = "***".to_owned()
                    }
                    Value::String(text) if text.contains("sig=") => *text = safe_url(text),
                    other => blank(other),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_secret_is_blanked() {
        let body = r#"{"properties":{"nodeCount":2,"secrets":[{"name":"A","value":"canary"}],
            "mountVolumes":{"azureFileShares":[{"credentials":{"accountKey":"canary"}}]},
            "userAccountSettings":{"adminUserName":"me","adminUserPassword":"canary"}},
            "keys":[{"keyName":"canary","value":"canary"}],"access_token":"canary",
            "downloadUrl":"http://h/a/s/f?sv=1&sig=canary&sp=r"}"#;
        let shown = safe_body(body.as_bytes());
        assert!(!shown.contains("canary"), "{shown}");
        assert!(shown.contains("\"nodeCount\":2") && shown.contains("\"adminUserName\":\"me\""), "{shown}");
        assert!(shown.contains("http://h/a/s/f?sv=1&sig=***&sp=r"), "{shown}");
        assert_eq!(safe_body(b"grant_type=client_credentials&client_secret=canary"), "(50 bytes)");
    }

    #[test]
    fn addresses_keep_all_but_their_signature() {
        assert_eq!(safe_url("http://h/p?api-version=1&sig=x%2B"), "http://h/p?api-version=1&sig=***");
        assert_eq!(safe_url("http://h/p"), "http://h/p");
    }
}
