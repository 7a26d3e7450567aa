//! Span export task: sends a batch when it is full or its first span is `settings.delay` old. Failed batches are retried with
//! exponential backoff; meanwhile the queue fills up and [`Traces::record`](super::Traces::record) drops new spans.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::settings::Settings;
use super::span::{Span, encode_request};
use super::{ExportResult, Message, SpanCounts, SpanExporter};

/// Attempts per batch.
const MAX_ATTEMPTS: u32 = 5;
/// The first pause between attempts is the batch delay divided by this; each further pause is twice as long.
const FIRST_PAUSE_DIVISOR: u32 = 10;

pub async fn run(
    settings: Settings,
    collector: Arc<dyn SpanExporter>,
    mut queue: mpsc::Receiver<Message>,
    counts: Arc<SpanCounts>,
) {
    let mut is_failing = false;
    while let Some(first) = queue.recv().await {
        let (batch, flushed) = collect_batch(first, &mut queue, &settings).await;
        let n_spans = batch.len() as u64;
        let result = match batch.is_empty() {
            true => ExportResult::Accepted,
            // A shutdown waits for the flush, so it gets one attempt only.
            false => send(&settings, &*collector, &batch, if flushed.is_some() { 1 } else { MAX_ATTEMPTS }).await,
        };
        match result {
            ExportResult::Accepted => {
                counts.sent.fetch_add(n_spans, Ordering::Relaxed);
                if is_failing && n_spans > 0 {
                    tracing::warn!(url = settings.url, "traces are exported again");
                    is_failing = false;
                }
            }
            ExportResult::Retry(reason) | ExportResult::Rejected(reason) => {
                counts.dropped.fetch_add(n_spans, Ordering::Relaxed);
                // Logged once, not with each batch.
                if !is_failing {
                    tracing::warn!(
                        url = settings.url,
                        reason,
                        "traces cannot be exported; spans are dropped until the collector accepts them"
                    );
                }
                is_failing = true;
            }
        }
        if let Some(flushed) = flushed {
            let _ = flushed.send(());
        }
    }
}

/// Receives spans until the batch is full, the delay is over or a flush is requested.
async fn collect_batch(
    first: Message,
    queue: &mut mpsc::Receiver<Message>,
    settings: &Settings,
) -> (Vec<Span>, Option<oneshot::Sender<()>>) {
    let (mut batch, deadline) = (Vec::new(), Instant::now() + settings.delay);
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Flush(done) => return (batch, Some(done)),
            Message::Span(span) => batch.push(*span),
        }
        if batch.len() >= settings.batch {
            break;
        }
        next = timeout_at(deadline, queue.recv()).await.ok().flatten();
    }
    (batch, None)
}

async fn send(settings: &Settings, collector: &dyn SpanExporter, batch: &[Span], max_attempts: u32) -> ExportResult {
    let body = encode_request(&settings.resource, batch);
    let mut pause = settings.delay / FIRST_PAUSE_DIVISOR;
    let mut attempts_left = max_attempts;
    loop {
        let result = timeout(settings.timeout, collector.export(body.clone())).await;
        let result =
            result.unwrap_or_else(|_| ExportResult::Retry(format!("no response within {:?}", settings.timeout)));
        attempts_left -= 1;
        if attempts_left == 0 || !matches!(result, ExportResult::Retry(_)) {
            return result;
        }
        sleep(pause).await;
        pause *= 2;
    }
}
