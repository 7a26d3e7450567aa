//! HTTP response of a failed request: status, headers and the XML error document. Writes the operator's detail to the log.

use axum::{body::Body, response::Response};
use corro_model::Timestamp;
use http::{HeaderValue, Method, StatusCode, header};
use hyper::ext::ReasonPhrase;

use crate::protocol::error::Refusal;
use crate::protocol::error_codes::row;
use crate::protocol::request::Call;
use crate::protocol::xml;

impl Refusal {
    pub fn into_response(self, call: &Call, now: i64) -> Response {
        let (status, _) = row(self.code);
        if let Some(cause) = &self.cause {
            tracing::error!(request = call.request_id, account = call.account, code = self.code, "{cause}");
        }
        let bodiless = call.method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        let mut response = Response::new(match bodiless {
            true => Body::empty(),
            false => Body::from(self.document(call, now)),
        });
        *response.status_mut() = status;
        // Of an answer without a body, clients show the reason.
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
            headers.insert(header::RETRY_AFTER, HeaderValue::from(self.wait_seconds()));
        }
        if let Some(length) = self.length {
            let value = format!("bytes */{length}");
            headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(value).expect("digits and spaces"));
        }
        response
    }

    fn document(&self, call: &Call, now: i64) -> String {
        let header = self.header.map(|name| format!("<HeaderName>{name}</HeaderName>")).unwrap_or_default();
        format!(
            "{}<Error><Code>{}</Code><Message>{}\nRequestId:{}\nTime:{}</Message>{header}</Error>",
            xml::DECLARATION,
            self.code,
            xml::escape(&self.message),
            call.request_id,
            Timestamp::from_millis(now.saturating_mul(1000)).whole_seconds(),
        )
    }
}
