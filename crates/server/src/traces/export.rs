//! How spans leave: in batches, when there are enough of them or the first has waited long enough. A collector that is away is tried
//! again, later each time; meanwhile the queue fills up and what comes then is dropped by whoever tells it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::settings::Settings;
use super::span::{Span, request};
use super::{Collector, Counts, Message, Posted};

/// A batch is tried so often.
const TRIES: u32 = 5;
/// The first pause is so much of what spans wait for company; each is twice the one before.
const PAUSE: u32 = 10;

pub async fn run(
    settings: Settings,
    collector: Arc<dyn Collector>,
    mut queue: mpsc::Receiver<Message>,
    counts: Arc<Counts>,
) {
    let mut troubled = false;
    while let Some(first) = queue.recv().await {
        let (batch, flushed) = gather(first, &mut queue, &settings).await;
        let n_spans = batch.len() as u64;
        let posted = match batch.is_empty() {
            true => Posted::Taken,
            // The end of the server waits for one try.
            false => send(&settings, &*collector, &batch, if flushed.is_some() { 1 } else { TRIES }).await,
        };
        match posted {
            Posted::Taken => {
                counts.sent.fetch_add(n_spans, Ordering::Relaxed);
                if troubled && n_spans > 0 {
                    tracing::warn!(url = settings.url, "traces are taken again");
                    troubled = false;
                }
            }
            Posted::Later(reason) | Posted::Refused(reason) => {
                counts.dropped.fetch_add(n_spans, Ordering::Relaxed);
                // Said once, not with each batch.
                if !troubled {
                    tracing::warn!(
                        url = settings.url,
                        reason,
                        "traces cannot be sent; they are dropped until they can"
                    );
                }
                troubled = true;
            }
        }
        if let Some(flushed) = flushed {
            let _ = flushed.send(());
        }
    }
}

/// The first span and what comes after it, as far as it comes soon and has room.
async fn gather(
    first: Message,
    queue: &mut mpsc::Receiver<Message>,
    settings: &Settings,
) -> (Vec<Span>, Option<oneshot::Sender<()>>) {
    let (mut batch, until) = (Vec::new(), Instant::now() + settings.delay);
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Flush(done) => return (batch, Some(done)),
            Message::Span(span) => batch.push(*span),
        }
        if batch.len() >= settings.batch {
            break;
        }
        next = timeout_at(until, queue.recv()).await.ok().flatten();
    }
    (batch, None)
}

async fn send(settings: &Settings, collector: &dyn Collector, batch: &[Span], tries: u32) -> Posted {
    let body = request(&settings.resource, batch);
    let mut pause = settings.delay / PAUSE;
    let mut left = tries;
    loop {
        let posted = timeout(settings.timeout, collector.post(body.clone())).await;
        let posted = posted.unwrap_or_else(|_| Posted::Later(format!("no answer in {:?}", settings.timeout)));
        left -= 1;
        if left == 0 || !matches!(posted, Posted::Later(_)) {
            return posted;
        }
        sleep(pause).await;
        pause *= 2;
    }
}
