//! Spans and their OTLP/JSON encoding, one request per batch. Pure.

use std::time::{SystemTime, UNIX_EPOCH};

use corro_model::Timestamp;
use serde_json::json;

use super::context::{SpanId, TraceId};

/// A finished operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: SpanKind,
    pub began: UnixNanos,
    pub ended: UnixNanos,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Error message of a failed span, sent as its OTLP status.
    pub failure: Option<String>,
}

/// Span kind with OTLP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
    Bool(bool),
}

/// Nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    pub fn now() -> UnixNanos {
        UnixNanos(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
    }
}

impl From<Timestamp> for UnixNanos {
    fn from(time: Timestamp) -> UnixNanos {
        UnixNanos(time.millis().max(0) as u64 * 1_000_000)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> AttributeValue {
        AttributeValue::Text(text)
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> AttributeValue {
        AttributeValue::Number(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> AttributeValue {
        AttributeValue::Bool(flag)
    }
}

/// Encodes an `ExportTraceServiceRequest` as JSON.
pub fn encode_request(resource: &[(String, AttributeValue)], spans: &[Span]) -> Vec<u8> {
    let resource: Vec<_> = resource.iter().map(|(name, value)| attribute(name, value)).collect();
    let spans: Vec<_> = spans.iter().map(span_json).collect();
    let scope = json!({"name": "corro", "version": env!("CARGO_PKG_VERSION")});
    let scoped = json!([{"scope": scope, "spans": spans}]);
    let request = json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": scoped}]});
    serde_json::to_vec(&request).expect("plain data")
}

fn span_json(span: &Span) -> serde_json::Value {
    let attributes: Vec<_> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut span_json = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.began.0.to_string(),
        "endTimeUnixNano": span.ended.max(span.began).0.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        span_json["parentSpanId"] = parent.to_string().into();
    }
    if let Some(failure) = &span.failure {
        span_json["status"] = json!({"code": 2, "message": failure});
    }
    span_json
}

fn attribute(name: &str, value: &AttributeValue) -> serde_json::Value {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        // OTLP/JSON writes 64-bit integers as strings.
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
        AttributeValue::Bool(flag) => json!({"boolValue": flag}),
    };
    json!({"key": name, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_encoded_as_otlp_json() {
        let span = Span {
            trace: TraceId([0xab; 16]),
            id: SpanId([1; 8]),
            parent: Some(SpanId([2; 8])),
            name: "queued".to_owned(),
            kind: SpanKind::Internal,
            began: Timestamp::from_millis(1500).into(),
            ended: UnixNanos(1_500_000_001),
            attributes: vec![("corro.attempt", 3.into()), ("corro.whole", true.into())],
            failure: Some("a rank failed".to_owned()),
        };
        let body = encode_request(&[("service.name".to_owned(), "corro".into())], &[span]);
        let body: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let resource = &body["resourceSpans"][0];
        let name = json!({"attributes": [{"key": "service.name", "value": {"stringValue": "corro"}}]});
        assert_eq!(resource["resource"], name);
        let expected = json!({
            "traceId": "ab".repeat(16), "spanId": "01".repeat(8), "parentSpanId": "02".repeat(8), "name": "queued", "kind": 1,
            "startTimeUnixNano": "1500000000", "endTimeUnixNano": "1500000001",
            "attributes": [
                {"key": "corro.attempt", "value": {"intValue": "3"}},
                {"key": "corro.whole", "value": {"boolValue": true}}
            ],
            "status": {"code": 2, "message": "a rank failed"}
        });
        assert_eq!(resource["scopeSpans"][0]["spans"], json!([expected]));
    }
}
