//! Trace settings from OpenTelemetry's standard environment variables. Pure: the caller supplies the variables. As the standard
//! demands, an invalid value gives a warning and the default is used; the server starts anyway.

use std::time::Duration;

use super::context::Sampler;
use super::span::AttributeValue;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Endpoint that spans are posted to.
    pub url: String,
    /// Headers of each request. They often hold an API key.
    pub headers: Vec<(String, corro_model::Secret)>,
    /// PEM file with the CA certificate of the collector.
    pub certificate: Option<String>,
    /// Resource attributes: the service that sends the spans.
    pub resource: Vec<(String, AttributeValue)>,
    pub sampler: Sampler,
    /// Capacity of the queue in spans; more are dropped.
    pub queue: usize,
    /// Maximum number of spans per request.
    pub batch: usize,
    /// Maximum age of the first span of a batch.
    pub delay: Duration,
    /// Limit on one export request.
    pub timeout: Duration,
}

/// Parsed environment variables.
#[derive(Debug, Default, PartialEq)]
pub struct ParsedSettings {
    /// `None` when traces are off.
    pub settings: Option<Settings>,
    pub warnings: Vec<String>,
}

const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Reads the settings. Traces are on when an endpoint is set or `OTEL_TRACES_EXPORTER` is `otlp`.
pub fn parse_settings(variable: impl Fn(&str) -> Option<String>) -> ParsedSettings {
    let variable = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    // The variable for traces takes precedence over the one for all signals.
    let otlp_variable = |name: &str| {
        variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let mut warnings = Vec::new();
    let exporter = variable("OTEL_TRACES_EXPORTER");
    let traces_endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    let is_disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let is_enabled = traces_endpoint.is_some() || endpoint.is_some() || exporter.as_deref() == Some("otlp");
    match exporter.as_deref() {
        _ if is_disabled || !is_enabled => return ParsedSettings::default(),
        None | Some("otlp") => {}
        Some("none") => return ParsedSettings::default(),
        Some(other) => {
            warnings.push(format!(
                "OTEL_TRACES_EXPORTER is '{other}': only otlp and none are supported, so no traces are sent"
            ));
            return ParsedSettings { settings: None, warnings };
        }
    }
    let url = traces_endpoint.unwrap_or_else(|| {
        format!("{}/v1/traces", endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT).trim_end_matches('/'))
    });
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        warnings.push(format!(
            "OTEL_EXPORTER_OTLP_ENDPOINT gives '{url}', which is not an http:// or https:// URL: no traces are sent"
        ));
        return ParsedSettings { settings: None, warnings };
    }
    match otlp_variable("PROTOCOL").as_deref() {
        None | Some("http/json") => {}
        Some(other) => warnings.push(format!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is '{other}': this server supports http/json only and sends that to {url}; collectors accept it on the http/protobuf port (4318), not on the gRPC port (4317)"
        )),
    }
    if let Some(other) = otlp_variable("COMPRESSION").filter(|value| value != "none") {
        warnings.push(format!("OTEL_EXPORTER_OTLP_COMPRESSION is '{other}': traces are sent uncompressed"));
    }
    let sampler = match variable("OTEL_TRACES_SAMPLER") {
        None => Sampler::DEFAULT,
        Some(name) => {
            let read = Sampler::parse(&name, variable("OTEL_TRACES_SAMPLER_ARG").as_deref());
            read.unwrap_or_else(|text| {
                warnings.push(format!("{text}; every trace is recorded"));
                Sampler::DEFAULT
            })
        }
    };
    let headers = match otlp_variable("HEADERS").map(|text| parse_pairs(&text)) {
        None => Vec::new(),
        Some(Some(pairs)) => pairs.into_iter().map(|(name, value)| (name, corro_model::Secret::new(value))).collect(),
        Some(None) => {
            // The warning omits the value: it may hold an API key.
            warnings.push(
                "OTEL_EXPORTER_OTLP_HEADERS is invalid: write it as name=value,name=value; it is ignored".to_owned(),
            );
            Vec::new()
        }
    };
    let resource = match variable("OTEL_RESOURCE_ATTRIBUTES").map(|text| parse_pairs(&text)) {
        None => Vec::new(),
        Some(Some(pairs)) => pairs,
        Some(None) => {
            warnings.push(
                "OTEL_RESOURCE_ATTRIBUTES is invalid: write it as name=value,name=value; it is ignored".to_owned(),
            );
            Vec::new()
        }
    };
    let mut number = |name: &str, default: u64| match variable(name) {
        None => default,
        Some(text) => text.parse().ok().filter(|number| *number > 0).unwrap_or_else(|| {
            warnings.push(format!("{name} is '{text}': use a whole number above 0; the default {default} is used"));
            default
        }),
    };
    let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", 2048).min(1 << 20) as usize;
    let batch = (number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512) as usize).min(queue);
    let delay = Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5000));
    let default = number("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000);
    let timeout = Duration::from_millis(number("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", default));
    let resource = resource_attributes(resource, variable("OTEL_SERVICE_NAME"));
    let certificate = otlp_variable("CERTIFICATE");
    ParsedSettings {
        settings: Some(Settings { url, headers, certificate, resource, sampler, queue, batch, delay, timeout }),
        warnings,
    }
}

/// Completes the given resource attributes with the service's name and version.
fn resource_attributes(mut resource: Vec<(String, String)>, service: Option<String>) -> Vec<(String, AttributeValue)> {
    if let Some(service) = service {
        resource.retain(|(name, _)| name != "service.name");
        resource.insert(0, ("service.name".to_owned(), service));
    }
    let default = [("service.name", "corro"), ("service.version", env!("CARGO_PKG_VERSION"))];
    for (name, value) in default {
        if !resource.iter().any(|(given, _)| given == name) {
            resource.push((name.to_owned(), value.to_owned()));
        }
    }
    resource.into_iter().map(|(name, value)| (name, AttributeValue::Text(value))).collect()
}

/// Parses `name=value,name=value` with percent-encoded names and values. `None` when the text has another form.
fn parse_pairs(text: &str) -> Option<Vec<(String, String)>> {
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

    fn parse(variables: &[(&str, &str)]) -> ParsedSettings {
        parse_settings(|name| variables.iter().find(|(given, _)| *given == name).map(|(_, value)| (*value).to_owned()))
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn endpoint_variables_choose_the_url_and_enable_traces() {
        let url = |variables: &[(&str, &str)]| parse(variables).settings.map(|settings| settings.url);
        assert_eq!(url(&[]), None);
        assert_eq!(url(&[ENDPOINT]).as_deref(), Some("http://collector:4318/v1/traces"));
        let traces_endpoint = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://other/here");
        assert_eq!(url(&[ENDPOINT, traces_endpoint]).as_deref(), Some("https://other/here"));
        assert_eq!(url(&[("OTEL_TRACES_EXPORTER", "otlp")]).as_deref(), Some("http://localhost:4318/v1/traces"));
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(parse(&[ENDPOINT, off]), ParsedSettings::default());
        }
    }

    #[test]
    fn invalid_values_give_warnings_without_secrets() {
        let warns = |variables: &[(&str, &str)], word: &str| {
            let warnings = parse(variables).warnings;
            assert!(warnings.len() == 1 && warnings[0].contains(word), "{warnings:?}");
            warnings[0].clone()
        };
        warns(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "http/json only");
        warns(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "mine")], "every trace is recorded");
        warns(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "zipkin")], "no traces are sent");
        warns(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")], "http://");
        warns(&[ENDPOINT, ("OTEL_BSP_MAX_QUEUE_SIZE", "-4")], "default 2048");
        assert!(!warns(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "hush")], "name=value").contains("hush"));
        assert_eq!(parse(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]).warnings, Vec::<String>::new());
    }

    #[test]
    fn headers_and_resource_attributes_are_parsed_as_pairs() {
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%2Cb, x = 1=2 ,");
        let resource = ("OTEL_RESOURCE_ATTRIBUTES", "site=lab,service.name=one");
        let settings =
            parse(&[ENDPOINT, headers, resource, ("OTEL_SERVICE_NAME", "two")]).settings.expect("tracing is on");
        let headers: Vec<_> = settings.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        assert_eq!(headers, [("api-key", "a,b"), ("x", "1=2")]);
        assert!(!format!("{settings:?}").contains("a,b"));
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let resource: Vec<_> = settings.resource.into_iter().filter(|(name, _)| name != "service.version").collect();
        assert_eq!(resource, [("service.name".to_owned(), text("two")), ("site".to_owned(), text("lab"))]);
    }
}
