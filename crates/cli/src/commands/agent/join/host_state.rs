//! The endpoint of a host's server, stored in the host's directory (`server.json`).

use std::path::Path;

use corro_client::{Fingerprint, Trust};

use crate::error::CliError;

/// URL of the server and fingerprint of its certificate authority, from the join token.
pub struct ServerEndpoint {
    pub server: String,
    pub fingerprint: Option<String>,
}

impl ServerEndpoint {
    const FILE: &str = "server.json";

    /// The certificates to accept: those of the fingerprint, else the system's.
    pub fn trust(&self) -> Result<Trust, CliError> {
        let pinned = |text: &String| {
            Fingerprint::parse(text).map(Trust::Fingerprint).map_err(|error| CliError::from_error(&error))
        };
        self.fingerprint.as_ref().map_or(Ok(Trust::System), pinned)
    }

    pub fn save(&self, root: &Path) -> Result<(), CliError> {
        let text = serde_json::json!({"server": self.server, "caFingerprint": self.fingerprint}).to_string();
        let file = root.join(Self::FILE);
        std::fs::write(&file, text).map_err(|error| CliError::new(format!("cannot write {}: {error}", file.display())))
    }

    /// Loads the stored endpoint. A `server` that is given replaces the stored URL.
    pub fn load(root: &Path, server: Option<&str>) -> Result<ServerEndpoint, CliError> {
        let text = std::fs::read(root.join(Self::FILE)).unwrap_or_default();
        let stored: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let stored_server = stored["server"].as_str().map(str::to_owned);
        let fingerprint = stored["caFingerprint"].as_str().map(str::to_owned);
        let Some(server) = server.map(parse_server_url).transpose()?.or_else(|| stored_server.clone()) else {
            return Err(CliError::usage(format!("{} does not contain the URL of the server", root.display()))
                .hint("name it: corro agent join https://gpu-box:8470"));
        };
        let endpoint = ServerEndpoint { server, fingerprint };
        if stored_server.as_ref() != Some(&endpoint.server) {
            endpoint.save(root)?;
        }
        Ok(endpoint)
    }
}

/// Checks the scheme and removes a final slash.
pub fn parse_server_url(url: &str) -> Result<String, CliError> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest.is_some_and(|rest| !rest.is_empty()) {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => {
            Err(CliError::usage(format!("'{url}' is not a server's URL")).hint("write it as https://gpu-box:8470"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_urls_are_checked() {
        assert_eq!(parse_server_url("https://a:1/").expect("a URL"), "https://a:1");
        assert!(parse_server_url("gpu-box:8470").is_err() && parse_server_url("https://").is_err());
    }

    #[test]
    fn the_endpoint_is_stored() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert!(ServerEndpoint::load(root.path(), None).is_err());
        let fingerprint = Some("ab".repeat(32));
        ServerEndpoint { server: "https://a:1".into(), fingerprint: fingerprint.clone() }
            .save(root.path())
            .expect("saved");
        let moved = ServerEndpoint::load(root.path(), Some("https://b:2/")).expect("known");
        assert_eq!((moved.server.as_str(), &moved.fingerprint), ("https://b:2", &fingerprint));
        assert_eq!(ServerEndpoint::load(root.path(), None).expect("known").server, "https://b:2");
    }
}
