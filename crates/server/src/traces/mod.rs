//! Traces for whoever runs an OpenTelemetry collector: each request, each reconcile pass that did something, each job's life. Made
//! here and posted as OTLP over HTTP by the embedder's [`SpanExporter`]. Nobody who hands a span in ever waits: there is one bounded queue,
//! and what finds it full is counted and dropped. No attribute holds what a user wrote beyond names.
//!
//! Reading order: [`settings`] (the standard variables), [`context`] (names, sampling), [`span`] (OTLP), [`jobs`] (a job's life),
//! [`export`] (how they leave).

pub mod context;
mod export;
pub mod jobs;
pub mod settings;
pub mod span;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use corro_model::{AttemptId, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use context::Sampler;
use settings::Settings;
use span::Span;

/// Whoever brings a batch to where it is read.
pub trait SpanExporter: Send + Sync + 'static {
    fn export(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ExportResult> + Send + '_>>;
}

/// How that went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportResult {
    Accepted,
    /// Failed for now; the batch may be sent again.
    Retry(String),
    /// Refused for good; sending the same batch again cannot succeed.
    Rejected(String),
}

/// How long the end of the server waits for the last spans to leave.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Clones share everything. Without a collector nothing is made.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Inner>>);

struct Inner {
    queue: mpsc::Sender<Message>,
    sampler: Sampler,
    /// What was placed before is not known whole.
    recording_since: Timestamp,
    /// When the ranks of running attempts rank_starts.
    rank_starts: Mutex<HashMap<AttemptId, Timestamp>>,
    counts: Arc<SpanCounts>,
}

#[derive(Default)]
pub struct SpanCounts {
    pub sent: AtomicU64,
    pub dropped: AtomicU64,
}

enum Message {
    Span(Box<Span>),
    /// Send what there is, and say so.
    Flush(oneshot::Sender<()>),
}

impl Traces {
    /// Spans leave in a task of their own, for as long as the process lives.
    pub fn start(settings: Settings, collector: Arc<dyn SpanExporter>, now: Timestamp) -> (Traces, JoinHandle<()>) {
        let (queue, spans) = mpsc::channel(settings.queue);
        let counts = Arc::new(SpanCounts::default());
        let sampler = settings.sampler;
        let leaving = tokio::spawn(export::run(settings, collector, spans, counts.clone()));
        let inner = Inner { queue, sampler, recording_since: now, rank_starts: Mutex::default(), counts };
        (Traces(Some(Arc::new(inner))), leaving)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Who is recorded; nobody when there is no collector.
    pub fn sampler(&self) -> Option<Sampler> {
        self.0.as_ref().map(|inner| inner.sampler)
    }

    pub fn counts(&self) -> Option<&SpanCounts> {
        self.0.as_ref().map(|inner| &*inner.counts)
    }

    pub fn record(&self, span: Span) {
        let Some(inner) = &self.0 else { return };
        if inner.queue.try_send(Message::Span(Box::new(span))).is_err() {
            inner.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits, but not for long, until everything told so far has left.
    pub async fn flush(&self) {
        let Some(inner) = &self.0 else { return };
        let flushed = async {
            let (done, told) = oneshot::channel();
            if inner.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = told.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
    }
}

impl Inner {
    fn rank_starts(&self) -> MutexGuard<'_, HashMap<AttemptId, Timestamp>> {
        self.rank_starts.lock().expect("never poisoned: nothing panics while it is locked")
    }
}

#[cfg(test)]
pub mod tests;
