//! Event stream of the server, read line by line. A broken connection is reopened after the last event until the server
//! has been unreachable for too long. Missed events are reported as an event of their own.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use corro_model::events::{EVENTS_PATH, Event, JSON_LINES};
use reqwest::{Method, Response, StatusCode};

use crate::ClientError;
use crate::client::Client;
use crate::operation::RECONNECT_TIMEOUT;
use crate::response::{HttpResponse, check_status};

/// Pause between attempts to reach the server.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(300);

pub struct Events {
    client: Client,
    /// Id of the last event, from which to resume.
    last: Option<String>,
    follows: bool,
    open: Option<Response>,
    text: BytesMut,
    away: Option<Instant>,
}

impl Client {
    /// Events from now on, or after the event `after` (`0`: all that the server has buffered). Unless it `follows`, the
    /// stream ends after the last buffered event.
    pub fn events(&self, after: Option<&str>, follows: bool) -> Events {
        let last = after.map(str::to_owned);
        Events { client: self.clone(), last, follows, open: None, text: BytesMut::new(), away: None }
    }
}

impl Events {
    /// Next event; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.buffered()? {
                self.last = Some(event.id.clone());
                return Ok(Some(event));
            }
            let read = match &mut self.open {
                Some(response) => self.client.transport().chunk(response).await,
                None => match self.connect().await {
                    Ok(response) => {
                        (self.open, self.away) = (Some(response), None);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            match read {
                Ok(Some(piece)) => self.text.extend_from_slice(&piece),
                Ok(None) if !self.follows => return Ok(None),
                // The server stops, or the login that opened the stream has expired.
                Ok(None) => self.open = None,
                Err(error) if !self.follows || !error.is_transient() => return Err(error),
                Err(error) => {
                    self.open = None;
                    self.text.clear();
                    match self.away {
                        None => {
                            self.away = Some(Instant::now());
                            self.client.notify_unreachable();
                        }
                        Some(since) if since.elapsed() > RECONNECT_TIMEOUT => return Err(error),
                        Some(_) => {}
                    }
                    tokio::time::sleep(UNREACHABLE_PAUSE).await;
                }
            }
        }
    }

    fn buffered(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line = self.text.split_to(end + 1);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event = serde_json::from_slice(&line);
            let event = event.map_err(|source| ClientError::UnexpectedAnswer { operation: "events", source })?;
            return Ok(Some(event));
        }
        Ok(None)
    }

    async fn connect(&self) -> Result<Response, ClientError> {
        let after = self.last.as_deref().map_or_else(String::new, |id| format!("&after={id}"));
        let url = format!("{}{EVENTS_PATH}?follow={}{after}", self.client.server(), self.follows);
        let response = self.client.open(Method::GET, &url, &[("accept", JSON_LINES)]).await?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let mut response = response;
        let mut body = BytesMut::new();
        while let Some(piece) = self.client.transport().chunk(&mut response).await? {
            body.extend_from_slice(&piece);
        }
        check_status(HttpResponse { status, headers, body: body.freeze() })?;
        Err(ClientError::Api(corro_model::ApiError::new(status.as_u16(), "Unknown", "the server sent no events")))
    }
}
