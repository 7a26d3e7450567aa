//! Load generator: many persistent HTTP connections with minimal work per request. Requests are prepared bytes; responses are
//! read and counted but not parsed, because the clients share the machine with the measured server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corro_model::arm::TOKEN_PATH;
use corro_model::ops::{BATCHAI_VERSION, JobsCreate, JobsList, path_of};

use crate::fixture::{GROUP, WORKSPACE};
use crate::site::Site;

/// Read timeout of a response: a server that takes longer is broken.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Server address and access token, shared by all clients.
#[derive(Clone)]
pub struct Session {
    address: String,
    subscription: String,
    token: String,
}

impl Session {
    /// Requests a token with the site's own client credentials.
    pub fn log_in(site: &Site) -> Result<Self> {
        let profile = site.profile()?;
        let address =
            profile.server.strip_prefix("http://").context("the server does not speak plain HTTP")?.to_owned();
        let mut session = Self { address, subscription: profile.subscription.clone(), token: String::new() };
        let form = format!(
            "grant_type=client_credentials&client_id={}&client_secret={}&resource=x",
            profile.client_id,
            profile.client_secret.expose()
        );
        let mut connection = session.connect()?;
        let (status, body) = connection.exchange("POST", TOKEN_PATH, form.as_bytes())?;
        let token: serde_json::Value = serde_json::from_slice(body).context("the token response is not JSON")?;
        if status != 200 {
            bail!("login failed with status {status}");
        }
        session.token = token["access_token"].as_str().context("the token response has no access_token")?.to_owned();
        Ok(session)
    }

    pub fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(Connection { stream, session: self.clone(), request: Vec::new(), response: vec![0; 1 << 16] })
    }

    pub fn job_path(&self, experiment: &str, job: &str) -> String {
        let values = [
            ("subscription", self.subscription.as_str()),
            ("group", GROUP),
            ("workspace", WORKSPACE),
            ("experiment", experiment),
            ("job", job),
        ];
        format!("{}?api-version={BATCHAI_VERSION}", path_of::<JobsCreate>(&values))
    }

    pub fn jobs_path(&self, experiment: &str) -> String {
        let subscription = ("subscription", self.subscription.as_str());
        let values = [subscription, ("group", GROUP), ("workspace", WORKSPACE), ("experiment", experiment)];
        format!("{}?api-version={BATCHAI_VERSION}", path_of::<JobsList>(&values))
    }
}

/// One client's connection.
pub struct Connection {
    stream: TcpStream,
    session: Session,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Connection {
    /// One request and its whole response: status and body.
    pub fn exchange(&mut self, method: &str, target: &str, body: &[u8]) -> Result<(u16, &[u8])> {
        let Session { address, token, .. } = &self.session;
        self.request.clear();
        write!(
            self.request,
            "{method} {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        self.request.extend_from_slice(body);
        self.stream.write_all(&self.request)?;
        let mut filled = 0;
        let (status, head, length) = loop {
            filled += self.read(filled)?;
            if let Some(at) = self.response[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.response[..at])?;
                let status =
                    head.split(' ').nth(1).and_then(|word| word.parse().ok()).context("the response has no status")?;
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
                });
                break (status, at + 4, length.unwrap_or(0));
            }
        };
        if self.response.len() < head + length {
            self.response.resize(head + length, 0);
        }
        while filled < head + length {
            filled += self.read(filled)?;
        }
        Ok((status, &self.response[head..head + length]))
    }

    fn read(&mut self, filled: usize) -> Result<usize> {
        if filled == self.response.len() {
            bail!("the response header is too long");
        }
        match self.stream.read(&mut self.response[filled..])? {
            0 => bail!("the server closed the connection"),
            n => Ok(n),
        }
    }
}
