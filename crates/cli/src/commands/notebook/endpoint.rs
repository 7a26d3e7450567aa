//! Where the Jupyter of a job listens: Jupyter writes a file about itself to its runtime directory, which the node's agent reads. Only its port, token and
//! path are used; the address is always the loopback address of the node.

use corro_model::Secret;
use serde::Deserialize;

/// A Jupyter that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub port: u16,
    token: Secret,
    /// `/`, or what the user's configuration sets.
    base_path: String,
    page: String,
    is_https: bool,
}

/// Fields of `jpserver-PID.json` and, for older versions, `nbserver-PID.json`.
#[derive(Deserialize)]
struct RuntimeFile {
    port: u16,
    #[serde(default)]
    token: String,
    #[serde(default = "slash")]
    base_url: String,
    #[serde(default)]
    secure: bool,
}

fn slash() -> String {
    "/".to_owned()
}

impl Endpoint {
    /// Reads the output of [`corro_model::notebook::describe_script`]. `None`: Jupyter does not listen yet.
    pub fn parse(output: &[u8]) -> Option<Endpoint> {
        let text = std::str::from_utf8(output).ok()?;
        let (page, files) = text.split_once('\n')?;
        let page = ["lab", "tree"].into_iter().find(|known| *known == page.trim())?;
        // A file that Jupyter is writing is not complete; it is read again.
        let files = serde_json::Deserializer::from_str(files).into_iter::<RuntimeFile>();
        let file = files.map_while(Result::ok).filter(|file| file.port > 0).last()?;
        let is_path = file.base_url.starts_with('/') && file.base_url.bytes().all(|byte| byte.is_ascii_graphic());
        Some(Endpoint {
            port: file.port,
            token: Secret::new(file.token),
            base_path: if is_path { file.base_url } else { slash() },
            page: page.to_owned(),
            is_https: file.secure,
        })
    }

    /// The address for a browser on this machine. It logs in anyone who has it.
    pub fn url(&self, local_port: u16) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let base = self.base_path.trim_end_matches('/');
        let address = format!("{scheme}://127.0.0.1:{local_port}{base}/{}", self.page);
        match self.token.expose() {
            "" => address,
            token => format!("{address}?token={}", encode(token)),
        }
    }
}

/// Percent-encodes what is not allowed in a query.
fn encode(token: &str) -> String {
    let byte = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    token.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(output: &str) -> Option<String> {
        Endpoint::parse(output.as_bytes()).map(|endpoint| endpoint.url(8888))
    }

    #[test]
    fn the_runtime_file_of_jupyter_is_read() {
        let file = r#"{"base_url": "/", "hostname": "127.0.0.1", "password": false, "pid": 12, "port": 8889, "root_dir": "/w",
            "secure": false, "sock": "", "token": "ab12", "url": "http://127.0.0.1:8889/", "version": "2.14.1"}"#;
        let endpoint = Endpoint::parse(format!("lab\n{file}").as_bytes()).expect("an endpoint");
        assert_eq!(endpoint.port, 8889);
        assert_eq!(endpoint.url(9000), "http://127.0.0.1:9000/lab?token=ab12");
        assert!(!format!("{endpoint:?}").contains("ab12"));
        // After a restart of Jupyter in the same job the newest file counts.
        let both = format!("tree\n{file}\n{}", file.replace("8889", "8890").replace("\"/\"", "\"/x/\""));
        assert_eq!(url(&both).as_deref(), Some("http://127.0.0.1:8888/x/tree?token=ab12"));
        let open = r#"{"port": 1, "token": "", "secure": true, "base_url": "evil"}"#;
        assert_eq!(url(&format!("lab\n{open}")).as_deref(), Some("https://127.0.0.1:8888/lab"));
    }

    #[test]
    fn a_jupyter_that_starts_has_no_endpoint() {
        for output in
            ["", "lab", "lab\n", "lab\n{\"port\": 88", "lab\n{\"port\": 0}", "other\n{\"port\": 1}", "lab\n[]"]
        {
            assert_eq!(url(output), None, "{output}");
        }
    }
}
