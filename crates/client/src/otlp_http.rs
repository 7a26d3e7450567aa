//! OTLP/HTTP exporter: posts JSON bodies to an OpenTelemetry collector. Knows the URL and headers; callers build the
//! bodies.
//!
//! Hand-written because it is one POST over the transport that this crate already has, with the same certificate and
//! proxy rules. The `opentelemetry` SDK would add a second HTTP stack.

use std::path::Path;

use bytes::Bytes;
use corro_model::Secret;
use reqwest::Method;

use crate::transport::Transport;
use crate::{ClientError, Trust};

pub struct OtlpClient {
    transport: Transport,
    url: String,
    headers: Vec<(String, Secret)>,
}

/// Collector's reply to an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportReply {
    Accepted,
    /// Unreachable or overloaded; try again.
    RetryLater(String),
    Rejected(String),
}

impl OtlpClient {
    /// `certificate` is a PEM file with the collector's certificate authority, if the system does not trust it.
    pub fn new(
        url: &str,
        headers: Vec<(String, Secret)>,
        certificate: Option<&Path>,
    ) -> Result<OtlpClient, ClientError> {
        let trust = certificate.map_or(Ok(Trust::System), Trust::from_file)?;
        Ok(OtlpClient { transport: Transport::new(url, &trust)?, url: url.to_owned(), headers })
    }

    pub async fn post(&self, body: Vec<u8>) -> ExportReply {
        let json = [("content-type", "application/json")];
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
        let headers: Vec<(&str, &str)> = json.into_iter().chain(own).collect();
        match self.transport.exchange(Method::POST, &self.url, &headers, Bytes::from(body)).await {
            Ok(answer) if answer.status.is_success() => ExportReply::Accepted,
            Ok(answer) if matches!(answer.status.as_u16(), 429 | 502 | 503 | 504) => {
                ExportReply::RetryLater(answer.status.to_string())
            }
            Ok(answer) => ExportReply::Rejected(answer.status.to_string()),
            Err(error @ ClientError::InvalidHeader { .. }) => ExportReply::Rejected(error.to_string()),
            Err(ClientError::Unreachable { .. }) => ExportReply::RetryLater("it cannot be reached".to_owned()),
            Err(ClientError::Untrusted { .. }) => ExportReply::RetryLater("its certificate is not trusted".to_owned()),
            Err(ClientError::NotTls { .. }) => ExportReply::RetryLater("it does not speak TLS".to_owned()),
            Err(_) => ExportReply::RetryLater("the connection broke".to_owned()),
        }
    }
}
