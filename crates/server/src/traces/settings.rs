//! What the standard variables of OpenTelemetry say about traces. Pure: whoever asks hands in where variables are found. A value that
//! cannot be used is told and the usual one taken, as the standard wants: a server does not stay away for its traces.

use std::time::Duration;

use super::context::Sampler;
use super::span::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where spans are posted.
    pub url: String,
    /// Sent with them; they often hold a key.
    pub headers: Vec<(String, corro_model::Secret)>,
    /// A PEM file with whoever vouches for the collector.
    pub certificate: Option<String>,
    /// Who sends them.
    pub resource: Vec<(String, Value)>,
    pub sampler: Sampler,
    /// Spans that may wait to be sent; more are dropped.
    pub queue: usize,
    /// Spans in one request.
    pub batch: usize,
    /// How long a span waits for company.
    pub delay: Duration,
    /// How long a collector may take.
    pub timeout: Duration,
}

/// What is to be done about traces, and what must be told about it.
#[derive(Debug, Default, PartialEq)]
pub struct Asked {
    /// None are wanted without.
    pub settings: Option<Settings>,
    pub warnings: Vec<String>,
}

const USUAL_ENDPOINT: &str = "http://localhost:4318";

/// Traces are wanted when an endpoint is named, or the exporter `otlp`.
pub fn read(variable: impl Fn(&str) -> Option<String>) -> Asked {
    let variable = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    // One for traces alone goes before the one for everything.
    let of_traces = |name: &str| {
        variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let mut warnings = Vec::new();
    let exporter = variable("OTEL_TRACES_EXPORTER");
    let own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let common = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    let is_disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let wanted = own.is_some() || common.is_some() || exporter.as_deref() == Some("otlp");
    match exporter.as_deref() {
        _ if is_disabled || !wanted => return Asked::default(),
        None | Some("otlp") => {}
        Some("none") => return Asked::default(),
        Some(other) => {
            warnings.push(format!(
                "OTEL_TRACES_EXPORTER is '{other}': only otlp and none are known, so no traces are sent"
            ));
            return Asked { settings: None, warnings };
        }
    }
    let url = own
        .unwrap_or_else(|| format!("{}/v1/traces", common.as_deref().unwrap_or(USUAL_ENDPOINT).trim_end_matches('/')));
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        warnings.push(format!(
            "OTEL_EXPORTER_OTLP_ENDPOINT leads to '{url}', which is not a URL with http:// or https://: no traces are sent"
        ));
        return Asked { settings: None, warnings };
    }
    match of_traces("PROTOCOL").as_deref() {
        None | Some("http/json") => {}
        Some(other) => warnings.push(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is '{other}': this server speaks http/json only, and sends that to {url}; collectors take it where they take http/protobuf (port 4318), not at the port of grpc (4317)"
        )),
    }
    if let Some(other) = of_traces("COMPRESSION").filter(|value| value != "none") {
        warnings.push(format!("OTEL_EXPORTER_OTLP_COMPRESSION is '{other}': traces are sent without"));
    }
    let sampler = match variable("OTEL_TRACES_SAMPLER") {
        None => Sampler::USUAL,
        Some(name) => {
            let read = Sampler::parse(&name, variable("OTEL_TRACES_SAMPLER_ARG").as_deref());
            read.unwrap_or_else(|text| {
                warnings.push(format!("{text}; every trace is recorded"));
                Sampler::USUAL
            })
        }
    };
    let headers = match of_traces("HEADERS").map(|text| pairs(&text)) {
        None => Vec::new(),
        Some(Some(pairs)) => pairs.into_iter().map(|(name, value)| (name, corro_model::Secret::new(value))).collect(),
        Some(None) => {
            // Not the text: it may hold a key.
            warnings.push(
                "OTEL_EXPORTER_OTLP_HEADERS cannot be read: write it as name=value,name=value; none are sent"
                    .to_owned(),
            );
            Vec::new()
        }
    };
    let resource = match variable("OTEL_RESOURCE_ATTRIBUTES").map(|text| pairs(&text)) {
        None => Vec::new(),
        Some(Some(pairs)) => pairs,
        Some(None) => {
            warnings.push(
                "OTEL_RESOURCE_ATTRIBUTES cannot be read: write it as name=value,name=value; none are sent".to_owned(),
            );
            Vec::new()
        }
    };
    let mut number = |name: &str, usual: u64| match variable(name) {
        None => usual,
        Some(text) => text.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
            warnings.push(format!("{name} is '{text}': use a whole number above 0; it is taken as {usual}"));
            usual
        }),
    };
    let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", 2048).min(1 << 20) as usize;
    let batch = (number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512) as usize).min(queue);
    let delay = Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5000));
    let usual = number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
    let timeout = Duration::from_millis(number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", usual));
    let resource = named(resource, variable("OTEL_SERVICE_NAME"));
    let certificate = of_traces("CERTIFICATE");
    Asked {
        settings: Some(Settings { url, headers, certificate, resource, sampler, queue, batch, delay, timeout }),
        warnings,
    }
}

/// What is sent with all spans: as it was given, with the service's name and ours.
fn named(mut resource: Vec<(String, String)>, service: Option<String>) -> Vec<(String, Value)> {
    if let Some(service) = service {
        resource.retain(|(name, _)| name != "service.name");
        resource.insert(0, ("service.name".to_owned(), service));
    }
    let usual = [("service.name", "corro"), ("service.version", env!("CARGO_PKG_VERSION"))];
    for (name, value) in usual {
        if !resource.iter().any(|(given, _)| given == name) {
            resource.push((name.to_owned(), value.to_owned()));
        }
    }
    resource.into_iter().map(|(name, value)| (name, Value::Text(value))).collect()
}

/// `name=value,name=value`, with percent signs for what would be mistaken; nothing when it is not that.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decoded = |text: &str| {
        let text = percent_encoding::percent_decode_str(text.trim()).decode_utf8().ok()?;
        Some(text.into_owned())
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name)?, decoded(value)?)).filter(|(name, _)| !name.is_empty())
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(variables: &[(&str, &str)]) -> Asked {
        read(|name| variables.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned()))
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn traces_are_sent_where_the_variables_say_and_only_then() {
        let url = |variables: &[(&str, &str)]| ask(variables).settings.map(|settings| settings.url);
        assert_eq!(url(&[]), None);
        assert_eq!(url(&[ENDPOINT]).as_deref(), Some("http://collector:4318/v1/traces"));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/here");
        assert_eq!(url(&[ENDPOINT, own]).as_deref(), Some("https://other/here"));
        assert_eq!(url(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some("http://localhost:4318/v1/traces"));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(ask(&[ENDPOINT, off]), Asked::default());
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_without_what_is_secret() {
        let told = |variables: &[(&str, &str)], word: &str| {
            let warnings = ask(variables).warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(word), "{warnings:?}");
            warnings[0].clone()
        };
        told(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/json only");
        told(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "mine")], "every trace is recorded");
        told(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")], "no traces are sent");
        told(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")], "http://");
        told(&[ENDPOINT, ("OTEL_BSP_MAX_QUEUE_SIZE", "-4")], "taken as 2048");
        assert!(!told(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "hush")], "name=value").contains("hush"));
        assert_eq!(ask(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).warnings, Vec::<String>::new());
    }

    #[test]
    fn headers_and_who_sends_are_read_as_pairs() {
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x = 1=2 ,");
        let resource = ("OTEL_RESOURCE_ATTRIBUTES", "site=lab,service.name=one");
        let settings = ask(&[ENDPOINT, headers, resource, ("OTEL_SERVICE_NAME", "two")]).settings.expect("wanted");
        let headers: Vec<_> = settings.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(headers, [("api-key", "a,b"), ("x", "1=2")]);
        assert!(!format!("{settings:?}").contains("a,b"));
        let text = |text: &str| Value::Text(text.to_owned());
        let resource: Vec<_> = settings.resource.into_iter().filter(|(name, _)| name != "service.version").collect();
        assert_eq!(resource, [("service.name".to_owned(), text("two")), ("site".to_owned(), text("lab"))]);
    }
}
