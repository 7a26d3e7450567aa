//! HTTP response of a failed request: status, headers and the XML error document. Writes the operator's detail to the log.

use axum::{body::Body, response::Response};
use corro_model::Timestamp;
use http::{HeaderValue, Method, StatusCode, header};
use hyper::ext::ReasonPhrase;

use crate::protocol::error::StorageError;
use crate::protocol::error_codes::status_and_message;
use crate::protocol::request::StorageRequest;
use crate::protocol::xml;

impl StorageError {
    pub fn into_response(self, request: &StorageRequest, now: i64) -> Response {
        let (status, _) = status_and_message(self.code);
        if let Some(cause) = &self.cause {
            tracing::error!(request = request.request_id, account = request.account, code = self.code, "{cause}");
        }
        let bodiless = request.method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        let mut response = Response::new(match bodiless {
            true => Body::empty(),
            false => Body::from(self.document(request, now)),
        });
        *response.status_mut() = status;
        // Clients show the reason phrase of a response without a body.
        let reason = self.message.lines().next().unwrap_or_default().as_bytes().to_vec();
        if let Ok(reason) = ReasonPhrase::try_from(reason) {
            response.extensions_mut().insert(reason);
        }
        let headers = response.headers_mut();
        headers.insert("x-ms-error-code", HeaderValue::from_static(self.code));
        if !bodiless {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after_seconds()));
        }
        if let Some(length) = self.file_length {
            let value = format!("bytes */{length}");
            headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(value).expect("digits and spaces"));
        }
        response
    }

    fn document(&self, request: &StorageRequest, now: i64) -> String {
        let header = self.header.map(|name| format!("<HeaderName>{name}</HeaderName>")).unwrap_or_default();
        format!(
            "{}<Error><Code>{}</Code><Message>{}\nRequestId:{}\nTime:{}</Message>{header}</Error>",
            xml::DECLARATION,
            self.code,
            xml::escape(&self.message),
            request.request_id,
            Timestamp::from_millis(now.saturating_mul(1000)).whole_seconds(),
        )
    }
}
