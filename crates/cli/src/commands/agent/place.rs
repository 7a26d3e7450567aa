//! Where the server of a host is, as the host remembers it from one start to the next.

use std::path::Path;

use corro_client::{Fingerprint, Trust};

use crate::failure::Failure;

/// Where the server is and whose certificate is believed: what the token said, kept for the next start.
pub struct Place {
    pub server: String,
    pub fingerprint: Option<String>,
}

impl Place {
    const FILE: &str = "server.json";

    pub fn trust(&self) -> Result<Trust, Failure> {
        let read =
            |text: &String| Fingerprint::parse(text).map(Trust::Fingerprint).map_err(|error| Failure::of(&error));
        self.fingerprint.as_ref().map_or(Ok(Trust::System), read)
    }

    pub fn keep(&self, root: &Path) -> Result<(), Failure> {
        let text = serde_json::json!({"server": self.server, "caFingerprint": self.fingerprint}).to_string();
        let file = root.join(Self::FILE);
        std::fs::write(&file, text).map_err(|error| Failure::new(format!("cannot write {}: {error}", file.display())))
    }

    /// A URL that is given now is where the server is from now on.
    pub fn recall(root: &Path, server: Option<&str>) -> Result<Place, Failure> {
        let text = std::fs::read(root.join(Self::FILE)).unwrap_or_default();
        let kept: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        let known = kept["server"].as_str().map(str::to_owned);
        let fingerprint = kept["caFingerprint"].as_str().map(str::to_owned);
        let Some(server) = server.map(plain_url).transpose()?.or_else(|| known.clone()) else {
            return Err(Failure::usage(format!("{} does not say where the server is", root.display()))
                .hint("name it: corro agent join https://gpu-box:8470"));
        };
        let place = Place { server, fingerprint };
        if known.as_ref() != Some(&place.server) {
            place.keep(root)?;
        }
        Ok(place)
    }
}

pub fn plain_url(url: &str) -> Result<String, Failure> {
    let known = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match known.is_some_and(|rest| !rest.is_empty()) {
        true => Ok(url.trim_end_matches('/').to_owned()),
        false => Err(Failure::usage(format!("'{url}' is not a server's URL")).hint("write it as https://gpu-box:8470")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked() {
        assert_eq!(plain_url("https://a:1/").expect("a URL"), "https://a:1");
        assert!(plain_url("gpu-box:8470").is_err() && plain_url("https://").is_err());
    }

    #[test]
    fn where_the_server_is_outlives_a_start() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert!(Place::recall(root.path(), None).is_err());
        let fingerprint = Some("ab".repeat(32));
        Place { server: "https://a:1".into(), fingerprint: fingerprint.clone() }.keep(root.path()).expect("kept");
        let moved = Place::recall(root.path(), Some("https://b:2/")).expect("known");
        assert_eq!((moved.server.as_str(), &moved.fingerprint), ("https://b:2", &fingerprint));
        assert_eq!(Place::recall(root.path(), None).expect("known").server, "https://b:2");
    }
}
