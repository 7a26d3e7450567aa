//! Refuses ambiguous request heads (request smuggling): missing or repeated `Host`, a `Host` that differs from an absolute target, a
//! repeated single-valued header, two ways to determine the body's length. A proxy in front of the server, or a signature, may
//! have used the other value.

use corro_model::ApiError;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Uri, Version};

/// Headers that may appear once, sorted. All `x-ms-` and `x-corro-` headers are single-valued too.
const SINGLE_VALUED: &[&str] = &[
    "authorization",
    "client-request-id",
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "expect",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "metadata",
    "origin",
    "proxy-authorization",
    "range",
    "referer",
    "sec-websocket-key",
    "sec-websocket-version",
    "secret",
    "traceparent",
    "transfer-encoding",
    "user-agent",
    "x-identity-header",
];

/// Checks a request head; ambiguous ones get 400.
pub fn check_head(version: Version, target: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    for name in headers.keys() {
        let is_service_header = name.as_str().starts_with("x-ms-") || name.as_str().starts_with("x-corro-");
        let is_single = is_service_header || SINGLE_VALUED.binary_search(&name.as_str()).is_ok();
        if is_single && headers.get_all(name).iter().nth(1).is_some() {
            return Err(invalid_header(name.as_str(), "is given more than once: send it once"));
        }
    }
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        return Err(invalid_header("transfer-encoding", "is given together with 'content-length': send one of them"));
    }
    let Some(host) = headers.get(HOST) else {
        return match version {
            Version::HTTP_11 => Err(invalid_header("host", "is missing: HTTP/1.1 requires it")),
            _ => Ok(()),
        };
    };
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]%~".contains(byte);
    if host.is_empty() || !host.as_bytes().iter().all(is_host) {
        return Err(invalid_header("host", "is not the name of a host with or without a port"));
    }
    match target.authority() {
        Some(authority) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
            Err(invalid_header("host", "names another host than the request's target: send the same one"))
        }
        _ => Ok(()),
    }
}

fn invalid_header(name: &str, why: &str) -> ApiError {
    ApiError::new(400, "InvalidHeaderValue", format!("The request's header '{name}' {why}")).about(name)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn check(target: &str, headers: &[(&str, &str)]) -> Result<(), String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).expect("a name");
            map.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let checked = check_head(Version::HTTP_11, &target.parse().expect("a target"), &map);
        checked.map_err(|error| error.target.unwrap_or_default())
    }

    #[test]
    fn exactly_one_host_that_matches_the_target() {
        let refused = Err("host".to_owned());
        for host in ["localhost", "a.example:8470", "[::1]:80", "acc.file.core.windows.net"] {
            assert_eq!(check("/", &[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(check("/", &[]), refused);
        assert_eq!(check("/", &[("host", "a"), ("host", "b")]), refused);
        assert_eq!(check("/", &[("host", "a"), ("Host", "a")]), refused);
        for host in ["", "a b", "a,b", "a/b", "u@a", "a?b"] {
            assert_eq!(check("/", &[("host", host)]), refused, "{host}");
        }
        assert_eq!(check("http://A.example:1/x", &[("host", "a.example:1")]), Ok(()));
        assert_eq!(check("http://b.example:1/x", &[("host", "a.example:1")]), refused);
        assert!(check_head(Version::HTTP_10, &Uri::from_static("/"), &HeaderMap::new()).is_ok());
    }

    #[test]
    fn single_valued_headers_appear_once() {
        assert!(SINGLE_VALUED.is_sorted());
        let host = ("host", "a");
        for name in ["authorization", "x-ms-date", "x-ms-meta-a", "range", "content-length", "content-type", "if-match"]
        {
            assert_eq!(check("/", &[host, (name, "1"), (name, "1")]), Err(name.to_owned()));
            assert_eq!(check("/", &[host, (name, "1")]), Ok(()));
        }
        for name in ["accept", "cookie", "x-forwarded-for", "cache-control", "accept-encoding"] {
            assert_eq!(check("/", &[host, (name, "1"), (name, "2")]), Ok(()), "{name}");
        }
        let both = [host, ("content-length", "1"), ("transfer-encoding", "chunked")];
        assert_eq!(check("/", &both), Err("transfer-encoding".to_owned()));
    }
}
