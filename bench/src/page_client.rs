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

use crate::http::Response;

/// Delay of a page between an event and its refresh.
const REFRESH_DELAY: Duration = Duration::from_millis(150);

/// Kind of the open page.
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

/// One open page and its keep-alive connection.
pub struct PageClient {
    stream: BufReader<TcpStream>,
    address: String,
    token: String,
    page: Page,
    ticks: u64,
    requests: u64,
}

impl PageClient {
    /// Opens the page and keeps it open until `stop` turns true; returns the number of requests.
    pub async fn run(
        client: Client,
        page: Page,
        ready: watch::Sender<usize>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<u64> {
        let address = client.server().trim_start_matches("http://").to_owned();
        let token = client.token().await?.expose().to_owned();
        let stream = BufReader::new(TcpStream::connect(&address).await.context("cannot connect")?);
        stream.get_ref().set_nodelay(true)?;
        let mut page_client = PageClient { stream, address, token, page, ticks: 0, requests: 0 };
        let mut events = client.events(None, true);
        events.next().await?.context("the stream ended")?;
        page_client.refresh().await?;
        ready.send_modify(|ready| *ready += 1);
        let mut second = interval(Duration::from_secs(1));
        let mut due: Option<Instant> = None;
        loop {
            let refresh_due = async move {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => {
                    event?.context("the stream ended")?;
                    due = due.or(Some(Instant::now() + REFRESH_DELAY));
                }
                () = refresh_due => {
                    due = None;
                    page_client.refresh().await?;
                }
                _ = second.tick() => page_client.tick().await?,
                () = async { let _ = stop.wait_for(|stop| *stop).await; } => return Ok(page_client.requests),
            }
        }
    }

    /// Requests of the page after an event.
    async fn refresh(&mut self) -> Result<()> {
        match self.page.clone() {
            Page::Overview { subscription } => {
                let all = format!("/subscriptions/{subscription}/providers/Corro");
                for query in
                    ["nodes?", "clusters?", "jobs?state=queued&order=queue&maxresults=100&", "jobs?maxresults=100&"]
                {
                    self.send("GET", &format!("{all}/{query}")).await?;
                }
            }
            Page::Job { id } => {
                for query in ["?", "/why?", "/metrics?points=400&", "/resources?"] {
                    self.send("GET", &format!("{id}{query}")).await?;
                }
                self.list_files(&id).await?;
            }
        }
        Ok(())
    }

    /// Requests of the page once a second.
    async fn tick(&mut self) -> Result<()> {
        self.ticks += 1;
        let Page::Job { id } = self.page.clone() else { return Ok(()) };
        self.send("GET", &format!("{id}/metrics?points=400&")).await?;
        if self.ticks.is_multiple_of(5) {
            self.send("GET", &format!("{id}/processes?orNone=true&")).await?;
            self.list_files(&id).await?;
        }
        if self.ticks.is_multiple_of(10) {
            self.send("GET", &format!("{id}/resources?")).await?;
        }
        Ok(())
    }

    async fn list_files(&mut self, id: &str) -> Result<()> {
        self.send("POST", &format!("{id}/listOutputFiles?outputdirectoryid=stdouterr&")).await
    }

    async fn send(&mut self, method: &str, target: &str) -> Result<()> {
        let PageClient { address, token, .. } = self;
        let body = if method == "POST" { "{}" } else { "" };
        let request = format!(
            "{method} {target}api-version={BATCHAI_VERSION} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let Response { status, body } = Response::read(&mut self.stream).await?;
        ensure!(status == 200, "{method} {target} failed with status {status}: {}", String::from_utf8_lossy(&body));
        self.requests += 1;
        Ok(())
    }
}
