//! Export of the server's traces over OTLP/HTTP, configured by OpenTelemetry's standard variables. The server reads the variables;
//! this module supplies the HTTP client, which the server must not depend on.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use corro_client::otlp_http::{ExportReply, OtlpClient};
use corro_server::traces::settings::{ParsedSettings, Settings, parse_settings};
use corro_server::traces::{self, ExportResult};

/// The server's exporter trait, implemented by the client crate's OTLP client.
struct OtlpExporter(OtlpClient);

impl traces::SpanExporter for OtlpExporter {
    fn export(&self, body: Vec<u8>) -> Pin<Box<dyn Future<Output = ExportResult> + Send + '_>> {
        Box::pin(async move {
            match self.0.post(body).await {
                ExportReply::Accepted => ExportResult::Accepted,
                ExportReply::RetryLater(reason) => ExportResult::Retry(reason),
                ExportReply::Rejected(reason) => ExportResult::Rejected(reason),
            }
        })
    }
}

/// Whether a variable configures trace export. Such variables may hold API keys, so no agent or job inherits them.
pub fn is_otel_variable(variable: &str) -> bool {
    variable.starts_with("OTEL_")
}

/// The exporter that the environment configures, if any. A setting that cannot be used is logged; the server starts anyway.
pub fn exporter_from_env() -> Option<(Settings, Arc<dyn traces::SpanExporter>)> {
    let ParsedSettings { settings, warnings } = parse_settings(|name| std::env::var(name).ok());
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let settings = settings?;
    let certificate = settings.certificate.as_deref().map(Path::new);
    match OtlpClient::new(&settings.url, settings.headers.clone(), certificate) {
        Ok(collector) => {
            tracing::info!(url = settings.url, "traces are sent");
            Some((settings, Arc::new(OtlpExporter(collector))))
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(url = settings.url, error, "no traces are sent");
            None
        }
    }
}
