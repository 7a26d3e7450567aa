//! Traces of a real server, exported to a small collector: a request in its caller's trace, and the life of a job.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::harness::http::get;
use crate::harness::{Site, wait_for};

/// Accepts every POST.
#[derive(Clone, Default)]
struct Collector {
    heads: Arc<Mutex<Vec<String>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn start() -> (Collector, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let collector = Collector::default();
        let own = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                std::thread::spawn(move || own.serve(stream));
            }
        });
        (collector, url)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
        loop {
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a whole body");
            self.heads.lock().expect("no panic").push(head);
            self.bodies.lock().expect("no panic").push(serde_json::from_slice(&body).expect("JSON"));
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        }
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().expect("no panic");
        let spans = bodies.iter().flat_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array());
        spans.flatten().cloned().collect()
    }

    /// Spans of one trace, by name.
    fn of_trace(&self, trace: &Value) -> BTreeMap<String, Value> {
        let own = self.spans().into_iter().filter(|span| span["traceId"] == *trace);
        own.map(|span| (span["name"].as_str().expect("a name").to_owned(), span)).collect()
    }
}

fn attribute<'a>(span: &'a Value, name: &str) -> &'a Value {
    let found = span["attributes"].as_array().and_then(|all| all.iter().find(|one| one["key"] == name));
    found.map_or(&Value::Null, |one| one["value"].as_object().and_then(|value| value.values().next()).expect("a value"))
}

fn nanos(span: &Value, name: &str) -> u64 {
    span[name].as_str().and_then(|text| text.parse().ok()).expect("nanoseconds as text")
}

#[test]
fn requests_passes_and_jobs_are_traced() {
    let (collector, url) = Collector::start();
    let endpoint = format!("OTEL_EXPORTER_OTLP_ENDPOINT={url}");
    let mut site = Site::start_with(&[
        &endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS=api-key=hush-hush",
        "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
        "OTEL_SERVICE_NAME=lab",
        "OTEL_BSP_SCHEDULE_DELAY=50",
        "--no-containers",
    ]);
    site.prepare(1);

    // A request joins its caller's trace, and the response names it.
    let caller = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let response = get(&format!("{}/healthz?sig=secret-query", site.url), &[caller]);
    let parent = response.header("traceparent").expect("it is answered").to_owned();
    let trace = Value::from("0af7651916cd43dd8448eb211c80319c");
    wait_for("the request", || !collector.of_trace(&trace).is_empty());
    let span = &collector.of_trace(&trace)["GET /healthz"];
    assert_eq!(span["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(parent, format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", span["spanId"].as_str().expect("text")));
    assert_eq!((&span["kind"], attribute(span, "http.response.status_code")), (&2.into(), &"200".into()));

    // A job's life: queued, preparing, running, below one span.
    site.submit_custom("lives", 1, "sleep 1; env | grep -c OTEL; exit 3");
    site.wait_for_end("lives");
    let of_job = || collector.spans().into_iter().find(|span| span["name"] == "job lives");
    wait_for("the job's trace", || of_job().is_some());
    let job = of_job().expect("it is there");
    assert_eq!(job["parentSpanId"], Value::Null);
    assert_eq!(attribute(&job, "corro.exit_code"), "3", "{job:#}");
    assert_eq!(attribute(&job, "corro.state"), "failed");
    assert_eq!(job["status"]["code"], 2);
    assert!(attribute(&job, "corro.cluster").as_str().is_some_and(|cluster| cluster.ends_with("/nc6cluster")));
    let trace = collector.of_trace(&job["traceId"]);
    let mut until = nanos(&job, "startTimeUnixNano");
    for name in ["queued", "preparing", "running"] {
        let part = trace.get(name).unwrap_or_else(|| panic!("no {name}: {trace:#?}"));
        assert_eq!(part["parentSpanId"], job["spanId"], "{name}");
        assert!(nanos(part, "startTimeUnixNano") >= until, "{name} begins when what was before it is over");
        until = nanos(part, "endTimeUnixNano");
    }
    assert_eq!(until, nanos(&job, "endTimeUnixNano"));
    let ran = &trace["running"];
    assert!(nanos(ran, "endTimeUnixNano") - nanos(ran, "startTimeUnixNano") > 500_000_000, "it slept for a second");
    assert_eq!(site.stream("lives", "stdout.txt").stdout.trim(), "0", "no job sees the variables");

    // Caller and operation, by route and not only by path.
    let put = |span: &&Value| {
        span["name"].as_str().is_some_and(|name| name.starts_with("PUT ") && name.ends_with("/jobs/{job}"))
    };
    wait_for("the submission", || collector.spans().iter().any(|span| put(&span)));
    let spans = collector.spans();
    let submitted = spans.iter().find(put).expect("it is there");
    assert_eq!(*attribute(submitted, "enduser.id"), site.profile()["clientId"]);
    assert!(attribute(submitted, "http.route").as_str().is_some_and(|route| route.contains("{experiment}")));
    let pass =
        spans.iter().find(|span| span["name"] == "reconcile" && attribute(span, "corro.steps.kinds") == "place=1");
    assert!(pass.is_some(), "no pass placed the job");

    // Exports are counted; they contain no secret; the rest is flushed at shutdown.
    let metrics = site.arm("GET", "/metrics", Value::Null).is(200).text();
    assert!(metrics.contains("corro_trace_spans_total{outcome=\"sent\"}"), "{metrics}");
    site.corro("group list").ok();
    assert_eq!(site.interrupt_server(), Some(0));
    let listed =
        |span: &Value| span["name"].as_str().is_some_and(|name| name.to_lowercase().ends_with("/resourcegroups"));
    assert!(collector.spans().iter().any(listed), "the last request");
    let heads = collector.heads.lock().expect("no panic").clone();
    assert!(heads.iter().all(|head| head.starts_with("POST /v1/traces ") && head.contains("api-key: hush-hush")));
    let bodies = format!("{:?}", collector.bodies.lock().expect("no panic"));
    let secret = site.profile()["clientSecret"].as_str().expect("text").to_owned();
    assert!(
        bodies.contains("lab") && [&secret, "hush-hush", "secret-query"].iter().all(|secret| !bodies.contains(*secret))
    );
    let log = site.up_log();
    assert!(log.contains("http/json only") && !log.contains("hush-hush"), "{log}");
}
