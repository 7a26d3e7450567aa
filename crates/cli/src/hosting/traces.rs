//! Exporter of the server's traces, configured by OpenTelemetry's standard variables. The server parses them; this module supplies the HTTP client.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use corro_client::collector::{Collector, Reply};
use corro_server::traces::settings::{ParsedSettings, Settings, parse_settings};
use corro_server::traces::{self, ExportResult};

struct Way(Collector);

impl traces::SpanExporter for Way {
    fn export(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ExportResult> + Send + '_>> {
        Box::pin(async move {
            match self.0.post(body).await {
                Reply::Taken => ExportResult::Accepted,
                Reply::Later(reason) => ExportResult::Retry(reason),
                Reply::Refused(reason) => ExportResult::Rejected(reason),
            }
        })
    }
}

/// Who variables of this kind are for is this process: they may hold keys, and no node or job is handed them.
pub fn is_ours(variable: &str) -> bool {
    variable.starts_with("OTEL_")
}

/// As the environment wants it. What cannot be used is told, and is no reason not to start.
pub fn wanted() -> Option<(Settings, Arc<dyn traces::SpanExporter>)> {
    let ParsedSettings { settings, warnings } = parse_settings(|name| std::env::var(name).ok());
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let settings = settings?;
    let certificate = settings.certificate.as_deref().map(Path::new);
    match Collector::new(&settings.url, settings.headers.clone(), certificate) {
        Ok(collector) => {
            tracing::info!(url = settings.url, "traces are sent");
            Some((settings, Arc::new(Way(collector))))
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(url = settings.url, error, "no traces are sent");
            None
        }
    }
}
