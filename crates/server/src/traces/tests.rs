//! How spans leave, with a collector made by hand.

use std::sync::atomic::AtomicUsize;

use super::context::{SpanId, TraceId};
use super::span::{Kind, Nanos};
use super::*;

/// Takes what it is given, after as many refusals.
#[derive(Default)]
struct Hand {
    away: AtomicUsize,
    taken: Mutex<Vec<serde_json::Value>>,
}

impl Collector for Hand {
    fn post(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = Posted> + Send + '_>> {
        Box::pin(async move {
            let away = self.away.load(Ordering::Relaxed);
            if away > 0 {
                self.away.store(away - 1, Ordering::Relaxed);
                return Posted::Later("away".to_owned());
            }
            self.taken.lock().expect("no panic").push(serde_json::from_slice(&body).expect("JSON"));
            Posted::Taken
        })
    }
}

impl Hand {
    fn batches(&self) -> Vec<usize> {
        let spans =
            |body: &serde_json::Value| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map(Vec::len);
        self.taken.lock().expect("no panic").iter().filter_map(spans).collect()
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
    settings::read(find).settings.expect("an endpoint")
}

fn span() -> Span {
    let (trace, id) = (TraceId::random(), SpanId::random());
    let (began, ended) = (Nanos(1), Nanos(2));
    Span {
        trace,
        id,
        parent: None,
        name: "x".to_owned(),
        kind: Kind::Internal,
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

async fn until(holds: impl Fn() -> bool) {
    let looking = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.expect("it comes true");
}

#[tokio::test]
async fn spans_leave_in_batches_and_the_rest_at_the_end() {
    let hand = Arc::new(Hand::default());
    let (traces, _leaving) = Traces::start(settings("100", "3", "600000"), hand.clone(), Timestamp::from_millis(0));
    (0..7).for_each(|_| traces.tell(span()));
    traces.flush().await;
    assert_eq!(hand.batches(), [3, 3, 1]);
    assert_eq!(counts(&traces), (7, 0));
    // Alone, one waits for company only so long.
    let (traces, _leaving) = Traces::start(settings("100", "3", "1"), hand.clone(), Timestamp::from_millis(0));
    traces.tell(span());
    until(|| hand.batches() == [3, 3, 1, 1]).await;
}

#[tokio::test]
async fn a_full_queue_drops_and_a_collector_that_is_away_is_tried_again() {
    let hand = Arc::new(Hand { away: AtomicUsize::new(2), ..Hand::default() });
    let (traces, _leaving) = Traces::start(settings("5", "5", "20"), hand.clone(), Timestamp::from_millis(0));
    (0..9).for_each(|_| traces.tell(span()));
    assert_eq!(counts(&traces), (0, 4), "nobody has waited");
    until(|| counts(&traces) == (5, 4)).await;
    assert_eq!(hand.batches(), [5]);
    hand.away.store(100, Ordering::Relaxed);
    traces.tell(span());
    // What is refused for long is counted.
    until(|| counts(&traces) == (5, 5)).await;
}

#[tokio::test]
async fn without_a_collector_nothing_is_made() {
    let traces = Traces::default();
    traces.tell(span());
    traces.flush().await;
    assert!(!traces.is_on() && traces.counts().is_none() && traces.sampler().is_none());
}
