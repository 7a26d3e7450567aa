//! OpenTelemetry traces: one span per HTTP request, per reconcile pass that changed something, and per state of a job. Spans
//! are sent as OTLP/JSON over HTTP by the [`SpanExporter`] that the embedder supplies. Recording never blocks: spans go through
//! one bounded queue, and those that find it full are counted and dropped. Attributes hold names, never other user input.
//!
//! Reading order: [`settings`] (environment variables), [`context`] (ids, `traceparent`, sampling), [`span`] (OTLP encoding),
//! [`jobs`] (spans of a job), `export` (batching and retries).

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

/// Transport to an OpenTelemetry collector. The body is one OTLP/JSON request.
pub trait SpanExporter: Send + Sync + 'static {
    fn export(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ExportResult> + Send + '_>>;
}

/// Outcome of one export request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportResult {
    Accepted,
    /// Failed for now; the batch may be sent again.
    Retry(String),
    /// Refused for good; sending the same batch again cannot succeed.
    Rejected(String),
}

/// Limit on how long a shutdown waits for the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Handle for recording spans. Clones share one queue. The default value has no exporter and records nothing.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Inner>>);

struct Inner {
    queue: mpsc::Sender<Message>,
    sampler: Sampler,
    /// Start of this server. The start of the ranks is unknown for attempts placed before.
    recording_since: Timestamp,
    /// Start of the first rank of each running attempt.
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
    /// Send everything queued, then signal.
    Flush(oneshot::Sender<()>),
}

impl Traces {
    /// Spawns the task that exports spans. It ends when the last clone is dropped.
    pub fn start(settings: Settings, collector: Arc<dyn SpanExporter>, now: Timestamp) -> (Traces, JoinHandle<()>) {
        let (queue, spans) = mpsc::channel(settings.queue);
        let counts = Arc::new(SpanCounts::default());
        let sampler = settings.sampler;
        let exporting = tokio::spawn(export::run(settings, collector, spans, counts.clone()));
        let inner = Inner { queue, sampler, recording_since: now, rank_starts: Mutex::default(), counts };
        (Traces(Some(Arc::new(inner))), exporting)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The sampler, or `None` without an exporter.
    pub fn sampler(&self) -> Option<Sampler> {
        self.0.as_ref().map(|inner| inner.sampler)
    }

    pub fn counts(&self) -> Option<&SpanCounts> {
        self.0.as_ref().map(|inner| &*inner.counts)
    }

    /// Queues a finished span; drops it when the queue is full. Never blocks.
    pub fn record(&self, span: Span) {
        let Some(inner) = &self.0 else { return };
        if inner.queue.try_send(Message::Span(Box::new(span))).is_err() {
            inner.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all spans recorded so far are exported, for `FLUSH_TIMEOUT` at most.
    pub async fn flush(&self) {
        let Some(inner) = &self.0 else { return };
        let flushed = async {
            let (done, flushed) = oneshot::channel();
            if inner.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = flushed.await;
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
