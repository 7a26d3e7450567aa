//! Authenticates requests to the Kubernetes API: bearer token, rotated token file, basic authentication, or an exec plugin whose token is
//! cached until shortly before it expires.

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

use super::kubeconfig::{AuthMethod, ExecPlugin};

/// Time limit of a plugin, which may use the network.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// A token is renewed when it expires in less than this.
const EXPIRY_MARGIN: SignedDuration = SignedDuration::from_secs(30);

pub struct Credential {
    method: AuthMethod,
    /// `spec.cluster` of the ExecCredential that plugins get.
    cluster: Value,
    plugin_token: Mutex<Option<PluginToken>>,
}

/// Status of an ExecCredential.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginToken {
    token: Option<Secret>,
    expiration_timestamp: Option<Time>,
}

#[derive(Deserialize)]
struct ExecCredential {
    status: Option<PluginToken>,
}

impl Credential {
    pub fn new(method: AuthMethod, cluster: Value) -> Self {
        Self { method, cluster, plugin_token: Mutex::default() }
    }

    /// Adds the authorization header.
    pub async fn authorize(&self, request: RequestBuilder) -> Result<RequestBuilder, String> {
        Ok(match &self.method {
            AuthMethod::None => request,
            AuthMethod::Token(token) => request.bearer_auth(token.expose()),
            AuthMethod::TokenFile(file) => {
                let read = tokio::fs::read_to_string(file).await;
                let token = read.map_err(|error| format!("cannot read the token in {}: {error}", file.display()))?;
                request.bearer_auth(token.trim())
            }
            AuthMethod::Password(name, password) => request.basic_auth(name, Some(password.expose())),
            AuthMethod::ExecPlugin(plugin) => {
                let mut cached = self.plugin_token.lock().await;
                let fresh = cached.take().filter(|token| token.is_fresh(Timestamp::now()));
                let current = cached.insert(match fresh {
                    Some(token) => token,
                    None => run_plugin(plugin, &self.cluster).await?,
                });
                request.bearer_auth(current.token.as_ref().map_or("", Secret::expose))
            }
        })
    }

    /// Forgets the cached token after a 401 response, so that the next request runs the plugin again.
    pub async fn discard_token(&self) {
        *self.plugin_token.lock().await = None;
    }
}

impl PluginToken {
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.expiration_timestamp.as_ref().is_none_or(|ends| ends.0.duration_since(now) > EXPIRY_MARGIN)
    }
}

async fn run_plugin(plugin: &ExecPlugin, cluster: &Value) -> Result<PluginToken, String> {
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
    let output = match tokio::time::timeout(PLUGIN_TIMEOUT, output).await {
        Err(_) => {
            return Err(format!("the credential plugin {name} gave no token within {} s", PLUGIN_TIMEOUT.as_secs()));
        }
        Ok(Err(error)) => {
            let hint = plugin.install_hint.iter().flat_map(|hint| hint.trim().lines().next());
            let hint: String = hint.map(|line| format!("; {line}")).collect();
            return Err(format!("the credential plugin {name} cannot be run: {error}{hint}"));
        }
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = stderr.trim().lines().next_back().unwrap_or("no message");
        return Err(format!("the credential plugin {name} gave no token ({}): {said}", output.status));
    }
    parse_exec_credential(&output.stdout)
        .map_err(|error| format!("the credential plugin {name} gave no token: {error}"))
}

fn parse_exec_credential(answer: &[u8]) -> Result<PluginToken, String> {
    // The answer may contain a token, so the error does not quote it.
    let answer: ExecCredential = serde_json::from_slice(answer).map_err(|error| {
        format!("its output is not an ExecCredential (line {}, column {})", error.line(), error.column())
    })?;
    let status = answer.status.ok_or("its output has no status")?;
    match status.token.as_ref().is_some_and(|token| !token.expose().is_empty()) {
        true => Ok(status),
        false => Err("its output has none, and client certificates of plugins are not supported".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_token_expires() {
        let answer = br#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {},
            "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:10:00Z"}}"#;
        let token = parse_exec_credential(answer).expect("a token");
        assert_eq!(token.token, Some(Secret::new("t")));
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert!(token.is_fresh(at("2026-01-01T00:09:00Z")));
        assert!(!token.is_fresh(at("2026-01-01T00:09:45Z")), "it expires too soon");
        assert!(!token.is_fresh(at("2026-01-01T00:11:00Z")));
    }

    #[test]
    fn an_answer_without_a_token_is_explained_and_not_quoted() {
        for (answer, expected) in [
            (r#"hunter2"#, "not an ExecCredential"),
            (r#"{"kind": "ExecCredential"}"#, "no status"),
            (r#"{"status": {"clientCertificateData": "hunter2"}}"#, "client certificates of plugins"),
        ] {
            let error = parse_exec_credential(answer.as_bytes()).err().expect("no token");
            assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
        }
    }
}
