//! Trace context: trace and span ids, the W3C `traceparent` header, and the sampler. Pure.

use std::fmt;

pub const TRACEPARENT: &str = "traceparent";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

/// Position in a trace: the trace, the span within it, and whether the trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
}

/// Sampling rule of `OTEL_TRACES_SAMPLER`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Share of the traces without a parent that are recorded, from 0 to 1.
    pub ratio: f64,
    /// Take over the caller's decision for traces that have a parent.
    pub parent_based: bool,
}

impl Context {
    /// Parses a `traceparent` header. `None` when it is invalid.
    pub fn parse(header: &str) -> Option<Context> {
        let parts: Vec<&str> = header.trim().split('-').collect();
        let (version, rest) = parts.split_first()?;
        let [trace, span, flags, further @ ..] = rest else { return None };
        // Versions above 0 may have further fields; version 0 may not, and 0xff is reserved.
        let version = hex::<1>(version)?[0];
        if version == 0xff || (version == 0 && !further.is_empty()) {
            return None;
        }
        let (trace, span, flags) = (hex::<16>(trace)?, hex::<8>(span)?, hex::<1>(flags)?[0]);
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Context { trace: TraceId(trace), span: SpanId(span), sampled: flags & 1 == 1 })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-0{}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TraceId {
    pub fn random() -> TraceId {
        TraceId(corro_store::encryption::random())
    }

    /// Trace id of a job: its GUID, so that the trace continues over a restart of the server and can be found by the job's id.
    pub fn for_job(guid: &str) -> TraceId {
        let digits = guid.replace('-', "");
        TraceId(hex(&digits).filter(|id| *id != [0; 16]).unwrap_or_else(|| digest(guid)))
    }
}

impl SpanId {
    pub fn random() -> SpanId {
        SpanId(corro_store::encryption::random())
    }

    /// Reproducible span id: the first bytes of the SHA-256 digest of `text`.
    pub fn from_digest(text: &str) -> SpanId {
        SpanId(digest(text))
    }
}

fn digest<const N: usize>(text: &str) -> [u8; N] {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(text);
    std::array::from_fn(|at| digest[at])
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Sampler {
    pub const DEFAULT: Sampler = Sampler { ratio: 1.0, parent_based: true };

    pub fn parse(name: &str, argument: Option<&str>) -> Result<Sampler, String> {
        let ratio = || {
            let given = argument.map_or(Ok(1.0), str::parse::<f64>);
            let given = given.ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            given.ok_or_else(|| {
                format!("OTEL_TRACES_SAMPLER_ARG is '{}': use a number from 0 to 1", argument.unwrap_or_default())
            })
        };
        let (ratio, parent_based) = match name {
            "always_on" => (1.0, false),
            "always_off" => (0.0, false),
            "traceidratio" => (ratio()?, false),
            "parentbased_always_on" => (1.0, true),
            "parentbased_always_off" => (0.0, true),
            "parentbased_traceidratio" => (ratio()?, true),
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER is '{name}': use always_on, always_off, traceidratio, or one of these with parentbased_ before it"
                ));
            }
        };
        Ok(Sampler { ratio, parent_based })
    }

    /// Whether this trace is recorded. Depends only on the id, so that all services with the same ratio decide alike.
    pub fn should_sample(&self, trace: TraceId, parent: Option<&Context>) -> bool {
        if let (true, Some(parent)) = (self.parent_based, parent) {
            return parent.sampled;
        }
        // W3C Trace Context requires randomness only in the last seven bytes.
        let mut number = [0; 8];
        number[1..].copy_from_slice(&trace.0[9..]);
        // Compared as integers: an f64 cannot represent all 56 bits.
        let threshold = ((1_u64 << 56) as f64 * (1.0 - self.ratio)) as u64;
        u64::from_be_bytes(number) >= threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparent_headers_are_parsed_as_w3c_defines() {
        assert_eq!(Context::parse(HEADER).map(|context| context.to_string()).as_deref(), Some(HEADER));
        let unsampled = HEADER.replace("-01", "-00");
        assert_eq!(Context::parse(&unsampled).map(|context| context.sampled), Some(false));
        let later = HEADER.replacen("00", "cc", 1) + "-more";
        assert!(Context::parse(&later).is_some_and(|context| context.sampled));
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(Context::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn samplers_follow_the_standard_names() {
        let takes = |name: &str, argument: Option<&str>, parent: Option<bool>| {
            let sampler = Sampler::parse(name, argument).expect("a name");
            let low = TraceId([0; 16]);
            let parent = parent.map(|sampled| Context { trace: low, span: SpanId([1; 8]), sampled });
            [low, TraceId([0xff; 16])].map(|trace| sampler.should_sample(trace, parent.as_ref()))
        };
        assert_eq!(takes("always_on", None, Some(false)), [true, true]);
        assert_eq!(takes("always_off", None, Some(true)), [false, false]);
        assert_eq!(takes("traceidratio", Some("0.5"), None), [false, true]);
        assert_eq!(takes("parentbased_always_on", None, Some(false)), [false, false]);
        assert_eq!(takes("parentbased_always_off", None, Some(true)), [true, true]);
        assert_eq!(takes("parentbased_always_off", None, None), [false, false]);
        assert_eq!(takes("parentbased_traceidratio", Some("0.5"), None), [false, true]);
        assert_eq!(takes("traceidratio", None, None), [true, true]);
        assert!(Sampler::parse("jaeger_remote", None).is_err());
        assert!(Sampler::parse("traceidratio", Some("2")).is_err_and(|text| text.contains("0 to 1")));
    }

    #[test]
    fn a_jobs_trace_id_is_its_guid() {
        let trace = TraceId::for_job("6a1f3c70-9f0e-4d1b-8a55-0123456789ab");
        assert_eq!(trace.to_string(), "6a1f3c709f0e4d1b8a550123456789ab");
        assert_eq!(TraceId::for_job("anything else"), TraceId::for_job("anything else"));
    }
}
