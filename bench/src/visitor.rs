//! A simulated open dashboard page: an event stream, and the requests that a page makes on events and once per second, over one
//! keep-alive connection. The requests and their timing mirror the dashboard's `overview.js` and `job.js`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corro_client::Client;
use corro_model::ops::BATCHAI_VERSION;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, interval};

use crate::http::Answer;

/// Delay of a page between an event and its refresh.
const PAUSE: Duration = Duration::from_millis(150);

/// The open page.
#[derive(Clone)]
pub enum Page {
    Overview {
        subscription: String,
    },
    /// The page of a running job, by its id.
    Job {
        id: String,
    },
}

pub struct Visitor {
    stream: BufReader<TcpStream>,
    address: String,
    token: String,
    page: Page,
    beats: u64,
    requests: u64,
}

impl Visitor {
    /// Opens the page and keeps it open until `stop` turns true; returns the number of requests.
    pub async fn stay(
        client: Client,
        page: Page,
        ready: watch::Sender<usize>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64> {
        let address = client.server().trim_start_matches("http://").to_owned();
        let token = client.token().await?.expose().to_owned();
        let stream = BufReader::new(TcpStream::connect(&address).await.context("cannot connect")?);
        stream.get_ref().set_nodelay(true)?;
        let mut visitor = Visitor { stream, address, token, page, beats: 0, requests: 0 };
        let mut events = client.events(None, true);
        events.next().await?.context("the stream ended")?;
        visitor.refresh().await?;
        ready.send_modify(|ready| *ready += 1);
        let mut beat = interval(Duration::from_secs(1));
        let mut due: Option<Instant> = None;
        loop {
            let looks = async move {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => {
                    event?.context("the stream ended")?;
                    due = due.or(Some(Instant::now() + PAUSE));
                }
                () = looks => {
                    due = None;
                    visitor.refresh().await?;
                }
                _ = beat.tick() => visitor.beat().await?,
                () = async { let _ = stop.wait_for(|stop| *stop).await; } => return Ok(visitor.requests),
            }
        }
    }

    /// Requests of the page after an event.
    async fn refresh(&mut self) -> Result<()> {
        match self.page.clone() {
            Page::Overview { subscription } => {
                let all = format!("/subscriptions/{subscription}/providers/Corro");
                for what in
                    ["nodes?", "clusters?", "jobs?state=queued&order=queue&maxresults=100&", "jobs?maxresults=100&"]
                {
                    self.ask("GET", &format!("{all}/{what}")).await?;
                }
            }
            Page::Job { id } => {
                for what in ["?", "/why?", "/metrics?points=400&"] {
                    self.ask("GET", &format!("{id}{what}")).await?;
                }
                self.files(&id).await?;
            }
        }
        Ok(())
    }

    /// Requests of the page once a second.
    async fn beat(&mut self) -> Result<()> {
        self.beats += 1;
        let Page::Job { id } = self.page.clone() else { return Ok(()) };
        self.ask("GET", &format!("{id}/metrics?points=400&")).await?;
        if self.beats.is_multiple_of(2) {
            self.ask("GET", &format!("{id}/processes?orNone=true&")).await?;
        }
        if self.beats.is_multiple_of(5) {
            self.files(&id).await?;
        }
        Ok(())
    }

    async fn files(&mut self, id: &str) -> Result<()> {
        self.ask("POST", &format!("{id}/listOutputFiles?outputdirectoryid=stdouterr&")).await
    }

    async fn ask(&mut self, method: &str, target: &str) -> Result<()> {
        let Visitor { address, token, .. } = self;
        let body = if method == "POST" { "{}" } else { "" };
        let request = format!(
            "{method} {target}api-version={BATCHAI_VERSION} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let Answer { status, body } = Answer::read(&mut self.stream).await?;
        ensure!(status == 200, "{method} {target} gave {status}: {}", String::from_utf8_lossy(&body));
        self.requests += 1;
        Ok(())
    }
}
