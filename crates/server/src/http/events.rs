//! Event stream over HTTP: server-sent events, or one JSON object per line. Written as fast as the client reads; keep-alives let both
//! sides notice a broken connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use corro_model::ApiError;
use corro_model::events::{JSON_LINES, SERVER_SENT};
use corro_model::storage::query_texts;
use futures_util::stream;
use http::{HeaderValue, header};

use crate::app::App;
use crate::app::history::events::{EventLine, EventReader};
use crate::app::monitoring::http_counters::HttpCounters;

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Server-sent `retry` field: milliseconds until a browser reconnects.
const RETRY_HINT: &str = "retry: 1000\n\n";

#[derive(Clone, Copy, PartialEq)]
enum StreamFormat {
    ServerSent,
    JsonLines,
}

struct EventStream {
    reader: EventReader,
    format: StreamFormat,
    follows: bool,
    ready: VecDeque<String>,
    _counter: StreamCounter,
}

/// Counts the open streams.
struct StreamCounter(Arc<HttpCounters>);

impl StreamCounter {
    fn new(numbers: &Arc<HttpCounters>) -> Self {
        numbers.event_streams.fetch_add(1, Ordering::Relaxed);
        Self(numbers.clone())
    }
}

impl Drop for StreamCounter {
    fn drop(&mut self) {
        self.0.event_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Responds to `GET /events` with what the app's caller may read.
pub fn respond(app: &App, request: &Request) -> Result<Response, ApiError> {
    let query = query_texts(request.uri().query().unwrap_or_default());
    let query_param =
        |name: &str| query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
    let follows = match query_param("follow") {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            let message = format!("follow is '{other}': use true or false");
            return Err(ApiError::new(400, "InvalidQueryParameterValue", message).about("follow"));
        }
    };
    let header_value = |name: header::HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let format = match header_value(header::ACCEPT).is_some_and(|accept| accept.contains(SERVER_SENT)) {
        true => StreamFormat::ServerSent,
        false => StreamFormat::JsonLines,
    };
    // A reconnecting browser's Last-Event-ID takes precedence over the URL, which stays the same.
    let after = header_value(header::HeaderName::from_static("last-event-id"))
        .filter(|id| !id.is_empty())
        .or(query_param("after"));
    let ready =
        if format == StreamFormat::ServerSent { VecDeque::from([RETRY_HINT.to_owned()]) } else { VecDeque::new() };
    let event_stream = EventStream {
        reader: app.subscribe_events(after),
        format,
        follows,
        ready,
        _counter: StreamCounter::new(&app.telemetry.http_counters),
    };
    let body = stream::unfold(event_stream, |mut event_stream| async {
        let chunk = event_stream.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(chunk)), event_stream))
    });
    let mut response = Response::new(Body::from_stream(body));
    let content_type = if format == StreamFormat::ServerSent { SERVER_SENT } else { JSON_LINES };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Asks proxies not to buffer the response.
    headers.insert(header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(response)
}

impl EventStream {
    /// The next chunk of the body; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(chunk);
            }
            let lines = self.reader.next_batch();
            if !lines.is_empty() {
                return Some(lines.iter().map(|line| self.format.write(line)).collect());
            }
            if self.reader.is_behind() {
                continue;
            }
            if !self.follows {
                return None;
            }
            match tokio::time::timeout(KEEP_ALIVE, self.reader.wait()).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(_) => return Some(self.format.keep_alive().to_owned()),
            }
        }
    }
}

impl StreamFormat {
    fn write(self, (id, text): &EventLine) -> String {
        match self {
            StreamFormat::ServerSent => format!("id: {id}\ndata: {text}\n\n"),
            StreamFormat::JsonLines => format!("{text}\n"),
        }
    }

    fn keep_alive(self) -> &'static str {
        match self {
            StreamFormat::ServerSent => ": still here\n\n",
            StreamFormat::JsonLines => "\n",
        }
    }
}
