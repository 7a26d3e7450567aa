//! Traces for whoever runs an OpenTelemetry collector: each request, each reconcile pass that did something, each job's life. Made
//! here and posted as OTLP over HTTP by the embedder's [`Collector`]. Nobody who hands a span in ever waits: there is one bounded queue,
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
pub trait Collector: Send + Sync + 'static {
    fn post(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>>;
}

/// How that went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    Taken,
    /// Not now; it may be tried again.
    Later(String),
    /// Never, as it is.
    Refused(String),
}

/// How long the end of the server waits for the last spans to leave.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Clones share everything. Without a collector nothing is made.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Inner>>);

struct Inner {
    queue: mpsc::Sender<Message>,
    sampler: Sampler,
    /// What was placed before is not known whole.
    since: Timestamp,
    /// When the ranks of running attempts began.
    began: Mutex<HashMap<AttemptId, Timestamp>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
pub struct Counts {
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
    pub fn start(settings: Settings, collector: Arc<dyn Collector>, now: Timestamp) -> (Traces, JoinHandle<()>) {
        let (queue, spans) = mpsc::channel(settings.queue);
        let counts = Arc::new(Counts::default());
        let sampler = settings.sampler;
        let leaving = tokio::spawn(export::run(settings, collector, spans, counts.clone()));
        let inner = Inner { queue, sampler, since: now, began: Mutex::default(), counts };
        (Traces(Some(Arc::new(inner))), leaving)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Who is recorded; nobody when there is no collector.
    pub fn sampler(&self) -> Option<Sampler> {
        self.0.as_ref().map(|inner| inner.sampler)
    }

    pub fn counts(&self) -> Option<&Counts> {
        self.0.as_ref().map(|inner| &*inner.counts)
    }

    pub fn tell(&self, span: Span) {
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
        let _ = tokio::time::timeout(LAST_WORDS, flushed).await;
    }
}

impl Inner {
    fn began(&self) -> MutexGuard<'_, HashMap<AttemptId, Timestamp>> {
        self.began.lock().expect("no one panics while holding the beginnings")
    }
}

#[cfg(test)]
pub mod tests;
