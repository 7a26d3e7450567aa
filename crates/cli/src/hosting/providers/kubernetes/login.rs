//! Who asks the cluster, proved anew with every request: a token, a file that somebody keeps fresh, a password, or what a
//! plugin gives for a while.

use std::process::Stdio;
use std::time::Duration;

use corro_model::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::Mutex;

use super::kubeconfig::{Login, Plugin};

/// A plugin may ask somebody far away.
const PLUGIN: Duration = Duration::from_secs(60);
/// A token is not used when it has less than this left.
const MARGIN: SignedDuration = SignedDuration::from_secs(30);

pub struct Credential {
    login: Login,
    /// The cluster, as plugins want to have it told.
    cluster: Value,
    given: Mutex<Option<Given>>,
}

/// What a plugin gave.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    token: Option<Secret>,
    expiration_timestamp: Option<Time>,
}

#[derive(Deserialize)]
struct Answer {
    status: Option<Given>,
}

impl Credential {
    pub fn new(login: Login, cluster: Value) -> Self {
        Self { login, cluster, given: Mutex::default() }
    }

    pub async fn sign(&self, request: RequestBuilder) -> Result<RequestBuilder, String> {
        Ok(match &self.login {
            Login::None => request,
            Login::Token(token) => request.bearer_auth(token.expose()),
            Login::TokenFile(file) => {
                let read = tokio::fs::read_to_string(file).await;
                let token = read.map_err(|error| format!("cannot read the token in {}: {error}", file.display()))?;
                request.bearer_auth(token.trim())
            }
            Login::Password(name, password) => request.basic_auth(name, Some(password.expose())),
            Login::Plugin(plugin) => {
                let mut given = self.given.lock().await;
                let fresh = given.take().filter(|given| given.is_fresh(Timestamp::now()));
                let given = given.insert(match fresh {
                    Some(given) => given,
                    None => ask(plugin, &self.cluster).await?,
                });
                request.bearer_auth(given.token.as_ref().map_or("", Secret::expose))
            }
        })
    }

    /// The cluster did not believe it: a plugin is asked again next time.
    pub async fn was_refused(&self) {
        *self.given.lock().await = None;
    }
}

impl Given {
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.expiration_timestamp.as_ref().is_none_or(|ends| ends.0.duration_since(now) > MARGIN)
    }
}

async fn ask(plugin: &Plugin, cluster: &Value) -> Result<Given, String> {
    let name = &plugin.command;
    let mut spec = serde_json::json!({"interactive": false});
    if plugin.provide_cluster_info {
        spec["cluster"] = cluster.clone();
    }
    let info = serde_json::json!({"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec});
    let mut command = Command::new(name);
    command.args(plugin.args.iter().flatten()).env("KUBERNETES_EXEC_INFO", info.to_string());
    command.envs(plugin.env.iter().flatten().map(|variable| (&variable.name, variable.value.expose())));
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match tokio::time::timeout(PLUGIN, output).await {
        Err(_) => return Err(format!("the plugin {name} gave no token within {} s", PLUGIN.as_secs())),
        Ok(Err(error)) => {
            let hint = plugin.install_hint.iter().flat_map(|hint| hint.trim().lines().next());
            let hint: String = hint.map(|line| format!("; {line}")).collect();
            return Err(format!("the plugin {name} that gives tokens cannot be run: {error}{hint}"));
        }
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().next_back().unwrap_or("it says nothing");
        return Err(format!("the plugin {name} gave no token ({}): {said}", output.status));
    }
    given(&output.stdout).map_err(|error| format!("the plugin {name} gave no token: {error}"))
}

fn given(answer: &[u8]) -> Result<Given, String> {
    // What it said may hold a token, so it is not repeated.
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| {
        format!("its answer is no ExecCredential (line {}, column {})", error.line(), error.column())
    })?;
    let given = answer.status.ok_or("its answer has no status")?;
    match given.token.as_ref().is_some_and(|token| !token.expose().is_empty()) {
        true => Ok(given),
        false => Err("its answer has none, and certificates of plugins are not understood".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugins_answer_is_a_token_for_a_while() {
        let answer = br#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {},
            "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:10:00Z"}}"#;
        let given = given(answer).expect("a token");
        assert_eq!(given.token, Some(Secret::new("t")));
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert!(given.is_fresh(at("2026-01-01T00:09:00Z")));
        assert!(!given.is_fresh(at("2026-01-01T00:09:45Z")), "it would end on the way");
        assert!(!given.is_fresh(at("2026-01-01T00:11:00Z")));
    }

    #[test]
    fn an_answer_without_a_token_says_what_is_wrong_and_shows_nothing() {
        for (answer, says) in [
            (r#"hunter2"#, "no ExecCredential"),
            (r#"{"kind": "ExecCredential"}"#, "no status"),
            (r#"{"status": {"clientCertificateData": "hunter2"}}"#, "certificates of plugins"),
        ] {
            let error = given(answer.as_bytes()).err().expect("no token");
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
    }
}
