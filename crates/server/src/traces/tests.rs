//! Export of spans to a fake collector.

use std::sync::atomic::AtomicUsize;

use super::context::{SpanId, TraceId};
use super::span::{SpanKind, UnixNanos};
use super::*;

/// Accepts batches after a number of failed attempts.
#[derive(Default)]
struct FakeCollector {
    unavailable: AtomicUsize,
    batches: Mutex<Vec<serde_json::Value>>,
}

impl SpanExporter for FakeCollector {
    fn export(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ExportResult> + Send + '_>> {
        Box::pin(async move {
            let unavailable = self.unavailable.load(Ordering::Relaxed);
            if unavailable > 0 {
                self.unavailable.store(unavailable - 1, Ordering::Relaxed);
                return ExportResult::Retry("unavailable".to_owned());
            }
            self.batches.lock().expect("no panic").push(serde_json::from_slice(&body).expect("JSON"));
            ExportResult::Accepted
        })
    }
}

impl FakeCollector {
    fn batch_sizes(&self) -> Vec<usize> {
        let spans =
            |body: &serde_json::Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map(Vec::len);
        self.batches.lock().expect("no panic").iter().filter_map(spans).collect()
    }
}

fn settings(queue: &str, batch: &str, delay: &str) -> Settings {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", queue),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch),
        ("OTEL_BSP_SCHEDULE_DELAY", delay),
    ];
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    settings::parse_settings(find).settings.expect("an endpoint")
}

fn span() -> Span {
    let (trace, id) = (TraceId::random(), SpanId::random());
    let (began, ended) = (UnixNanos(1), UnixNanos(2));
    Span {
        trace,
        id,
        parent: None,
        name: "x".to_owned(),
        kind: SpanKind::Internal,
        began,
        ended,
        attributes: Vec::new(),
        failure: None,
    }
}

fn counts(traces: &Traces) -> (u64, u64) {
    let counts = traces.counts().expect("they are on");
    (counts.sent.load(Ordering::Relaxed), counts.dropped.load(Ordering::Relaxed))
}

async fn wait_until(holds: impl Fn() -> bool) {
    let polling = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), polling).await.expect("the condition becomes true in time");
}

#[tokio::test]
async fn spans_are_exported_in_batches_and_the_rest_on_flush() {
    let fake = Arc::new(FakeCollector::default());
    let (traces, _exporting) = Traces::start(settings("100", "3", "600000"), fake.clone(), Timestamp::from_millis(0));
    (0..7).for_each(|_| traces.record(span()));
    traces.flush().await;
    assert_eq!(fake.batch_sizes(), [3, 3, 1]);
    assert_eq!(counts(&traces), (7, 0));
    // A lone span is sent when the batch delay is over.
    let (traces, _exporting) = Traces::start(settings("100", "3", "1"), fake.clone(), Timestamp::from_millis(0));
    traces.record(span());
    wait_until(|| fake.batch_sizes() == [3, 3, 1, 1]).await;
}

#[tokio::test]
async fn a_full_queue_drops_spans_and_a_failing_export_is_retried() {
    let fake = Arc::new(FakeCollector { unavailable: AtomicUsize::new(2), ..FakeCollector::default() });
    let (traces, _exporting) = Traces::start(settings("5", "5", "20"), fake.clone(), Timestamp::from_millis(0));
    (0..9).for_each(|_| traces.record(span()));
    assert_eq!(counts(&traces), (0, 4), "recording does not block");
    wait_until(|| counts(&traces) == (5, 4)).await;
    assert_eq!(fake.batch_sizes(), [5]);
    fake.unavailable.store(100, Ordering::Relaxed);
    traces.record(span());
    // A batch that fails in all attempts is counted as dropped.
    wait_until(|| counts(&traces) == (5, 5)).await;
}

#[tokio::test]
async fn traces_are_off_without_a_collector() {
    let traces = Traces::default();
    traces.record(span());
    traces.flush().await;
    assert!(!traces.is_on() && traces.counts().is_none() && traces.sampler().is_none());
}
