//! Shared Key: an HMAC over the request line and headers, as every storage client sends it; and its older form, Shared
//! Key Lite, which covers fewer headers and query parameters. Never normalises the path: the signature covers the path
//! exactly as on the request line.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{hmac_base64, hmac_signer, query_pairs};

/// Parts of a request that a signature covers, besides its headers.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Raw, still percent-encoded. In path style it begins with the account, which is then signed twice.
    pub path: &'a str,
    /// Raw, without the question mark; empty when there is none.
    pub query: &'a str,
    pub account: &'a str,
}

/// Signature scheme: Shared Key or Shared Key Lite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Full,
    Lite,
}

/// Parsed `Authorization` header: `SharedKey {account}:{signature}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a> {
    pub scheme: Scheme,
    pub account: &'a str,
    pub signature: &'a str,
}

impl<'a> Credential<'a> {
    /// Parses the header; `None` for another scheme (a bearer token).
    pub fn parse(authorization: &'a str) -> Option<Self> {
        let (scheme, rest) = authorization.trim().split_once(' ')?;
        let (account, signature) = rest.trim().split_once(':')?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "sharedkey" => Scheme::Full,
            "sharedkeylite" => Scheme::Lite,
            _ => return None,
        };
        Some(Credential { scheme, account, signature })
    }
}

/// Value of the `Authorization` header for a request with these headers.
pub fn authorization<'h>(
    request: Request<'_>,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    key: &[u8],
) -> String {
    let signature = hmac_base64(key, &string_to_sign(request, headers));
    format!("SharedKey {}:{signature}", request.account)
}

/// Index of the key in `keys` that made the credential's signature of this request. Constant-time.
pub fn verify<'h, K: AsRef<[u8]>>(
    request: Request<'_>,
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    keys: &[K],
    credential: Credential<'_>,
) -> Option<usize> {
    let text = match credential.scheme {
        Scheme::Full => string_to_sign(request, headers),
        Scheme::Lite => lite_string_to_sign(request, headers),
    };
    hmac_signer(keys, &text, credential.signature)
}

/// Initial capacity of the string to sign; enough for most requests.
const TYPICAL_BYTES: usize = 512;

/// Standard headers of the string to sign, in order.
const SIGNED_HEADERS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// String to sign of Shared Key. Header names may be in any case and order; repeated headers are joined with commas.
pub fn string_to_sign<'h>(request: Request<'_>, headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> String {
    let headers = Signed::of(headers);
    let mut text = String::with_capacity(TYPICAL_BYTES);
    text.extend(request.method.chars().map(|letter| letter.to_ascii_uppercase()));
    for value in &headers.standard {
        text.push('\n');
        text.push_str(value);
    }
    headers.push_service(&mut text);
    push_resource(&mut text, request);
    for (name, values) in sorted_parameters(request.query) {
        text.push('\n');
        text.push_str(&name);
        text.push(':');
        text.push_str(&values.join(","));
    }
    text
}

/// String to sign of Shared Key Lite: three of the standard headers, and only `comp` of the query.
pub fn lite_string_to_sign<'h>(request: Request<'_>, headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> String {
    let headers = Signed::of(headers);
    let mut text = request.method.to_ascii_uppercase();
    for name in ["content-md5", "content-type", "date"] {
        text.push('\n');
        text.push_str(headers.get(name));
    }
    headers.push_service(&mut text);
    push_resource(&mut text, request);
    if let Some(comp) = sorted_parameters(request.query).get("comp") {
        text.push_str(&format!("?comp={}", comp.join(",")));
    }
    text
}

/// Signed headers of a request.
struct Signed<'h> {
    standard: [Cow<'h, str>; SIGNED_HEADERS.len()],
    /// Headers whose names begin with `x-ms-`, sorted by name.
    service: Vec<(Cow<'h, str>, Cow<'h, str>)>,
}

impl<'h> Signed<'h> {
    fn of(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Self {
        let mut standard: [Cow<'h, str>; SIGNED_HEADERS.len()] = Default::default();
        let mut service: Vec<(Cow<'h, str>, Cow<'h, str>)> = Vec::with_capacity(8);
        for (name, value) in headers {
            let name = lower_case(name);
            if let Some(idx) = slot_of(&name) {
                append(&mut standard[idx], value.trim());
            } else if name.starts_with("x-ms-") {
                match service.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, values)) => append(values, value.trim()),
                    None => service.push((name, Cow::Borrowed(value.trim()))),
                }
            }
        }
        service.sort_unstable();
        if let Some(length) = slot_of("content-length").filter(|idx| standard[*idx] == "0") {
            standard[length] = Cow::Borrowed(""); // since version 2015-02-21 a length of 0 is signed as nothing
        }
        if let Some(date) = slot_of("date").filter(|_| service.iter().any(|(name, _)| name == "x-ms-date")) {
            standard[date] = Cow::Borrowed("");
        }
        Signed { standard, service }
    }

    fn get(&self, name: &str) -> &str {
        slot_of(name).map(|idx| &*self.standard[idx]).unwrap_or_default()
    }

    fn push_service(&self, text: &mut String) {
        text.push('\n');
        for (name, value) in &self.service {
            text.push_str(name);
            text.push(':');
            text.push_str(value);
            text.push('\n');
        }
    }
}

/// Lower-cases a header name. Most are in lower case already and are borrowed.
fn lower_case(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// Appends the value of a repeated header.
fn append<'h>(values: &mut Cow<'h, str>, value: &'h str) {
    match values.is_empty() {
        true => *values = Cow::Borrowed(value),
        false => {
            let values = values.to_mut();
            values.push(',');
            values.push_str(value);
        }
    }
}

fn slot_of(name: &str) -> Option<usize> {
    SIGNED_HEADERS.iter().position(|signed| *signed == name)
}

fn push_resource(text: &mut String, request: Request<'_>) {
    text.push('/');
    text.push_str(request.account);
    text.push_str(request.path);
}

fn sorted_parameters(query: &str) -> BTreeMap<String, Vec<Cow<'_, str>>> {
    let mut parameters: BTreeMap<String, Vec<Cow<'_, str>>> = BTreeMap::new();
    for (name, value) in query_pairs(query) {
        parameters.entry(name.to_lowercase()).or_default().push(value);
    }
    parameters.values_mut().for_each(|values| values.sort());
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Thu, 07 Jun 2018 22:21:55 GMT";

    fn key() -> Vec<u8> {
        (0..64).collect()
    }

    /// Checks string to sign and signature. The signatures were computed with another implementation of HMAC.
    fn check(request: Request<'_>, headers: &[(&str, &str)], text: &str, signature: &str) {
        assert_eq!(string_to_sign(request, headers.iter().copied()), text);
        assert_eq!(
            authorization(request, headers.iter().copied(), &key()),
            format!("SharedKey {}:{signature}", request.account)
        );
        let keys = [vec![1, 2, 3], key()];
        let full = Credential { scheme: Scheme::Full, account: request.account, signature };
        assert_eq!(verify(request, headers.iter().copied(), &keys, full), Some(1));
        assert_eq!(verify(request, headers.iter().copied(), &keys[..1], full), None);
        let other = Request { method: "DELETE", ..request };
        assert_eq!(verify(other, headers.iter().copied(), &keys, full), None);
        let lite = Credential { scheme: Scheme::Lite, ..full };
        assert_eq!(
            verify(request, headers.iter().copied(), &keys, lite),
            None,
            "a signature is for one of the two texts"
        );
    }

    #[test]
    fn path_style_signs_the_account_twice_and_the_path_raw() {
        check(
            Request { method: "PUT", path: "/acc/myshare/d%2Fsub/a%20b", query: "comp=range", account: "acc" },
            &[
                ("X-MS-Write", "update"),
                ("x-ms-version", " 2018-03-28 "),
                ("x-ms-range", "bytes=0-4194303"),
                ("Date", "ignored because of x-ms-date"),
                ("x-ms-date", DATE),
                ("Content-Length", "4194304"),
                ("Content-Type", "application/octet-stream"),
                ("User-Agent", "not signed"),
            ],
            "PUT\n\n\n4194304\n\napplication/octet-stream\n\n\n\n\n\n\n\
             x-ms-date:Thu, 07 Jun 2018 22:21:55 GMT\nx-ms-range:bytes=0-4194303\n\
             x-ms-version:2018-03-28\nx-ms-write:update\n\
             /acc/acc/myshare/d%2Fsub/a%20b\ncomp:range",
            "a7uCVJbazT5ztKgTOufvrbTLorxkpJfdHCFdxAcL9rI=",
        );
    }

    #[test]
    fn host_style_with_an_empty_parameter_and_a_zero_length() {
        check(
            Request { method: "get", path: "/", query: "include=&comp=list", account: "acc" },
            &[("content-length", "0"), ("x-ms-date", DATE), ("x-ms-version", "2023-11-03")],
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Thu, 07 Jun 2018 22:21:55 GMT\n\
             x-ms-version:2023-11-03\n/acc/\ncomp:list\ninclude:",
            "217Bamft7wOJrsNy9rbDr5MZ/a9ZJH67p0DASkGOpuk=",
        );
    }

    #[test]
    fn plain_date_and_range_are_signed_without_service_headers() {
        check(
            Request { method: "GET", path: "/myshare/f", query: "", account: "acc" },
            &[("Range", "bytes=0-4"), ("Date", DATE)],
            "GET\n\n\n\n\n\nThu, 07 Jun 2018 22:21:55 GMT\n\n\n\n\nbytes=0-4\n/acc/myshare/f",
            "PzTKtT07ZLwdvKEk69T5bZpb+p4KewPzd6NtuOQOvRg=",
        );
    }

    /// Follows the example in the service's documentation, except for path and query.
    #[test]
    fn lite_signs_three_headers_and_one_parameter() {
        let request = Request {
            method: "PUT",
            path: "/testaccount1/mycontainer/hello%20w.txt",
            query: "restype=share&COMP=metadata&timeout=20",
            account: "testaccount1",
        };
        let headers = [
            ("Content-Type", "text/plain; charset=UTF-8"),
            ("Content-Length", "11"),
            ("Date", "not this one"),
            ("x-ms-meta-m2", "v2"),
            ("x-ms-date", "Sun, 20 Sep 2009 20:36:40 GMT"),
            ("x-ms-meta-m1", "v1"),
            ("If-Match", "*"),
        ];
        let text = lite_string_to_sign(request, headers);
        assert_eq!(
            text,
            "PUT\n\ntext/plain; charset=UTF-8\n\nx-ms-date:Sun, 20 Sep 2009 20:36:40 GMT\nx-ms-meta-m1:v1\n\
             x-ms-meta-m2:v2\n/testaccount1/testaccount1/mycontainer/hello%20w.txt?comp=metadata"
        );
        let signature = hmac_base64(&key(), &text);
        let lite = Credential { scheme: Scheme::Lite, account: "testaccount1", signature: &signature };
        assert_eq!(verify(request, headers, &[key()], lite), Some(0));
        assert_eq!(verify(request, headers, &[key()], Credential { scheme: Scheme::Full, ..lite }), None);
        assert_eq!(verify(Request { query: "comp=acl", ..request }, headers, &[key()], lite), None);
        assert_eq!(
            lite_string_to_sign(Request { query: "", ..request }, []),
            format!("PUT\n\n\n\n/testaccount1{}", request.path)
        );
    }

    #[test]
    fn parameters_are_sorted_decoded_and_repeated_ones_joined() {
        let request = Request {
            method: "GET",
            path: "/s",
            query: "Prefix=a%20b&comp=list&include=snapshots&include=metadata",
            account: "acc",
        };
        let text = string_to_sign(request, []);
        assert!(text.ends_with("/acc/s\ncomp:list\ninclude:metadata,snapshots\nprefix:a b"));
    }

    #[test]
    fn only_the_shared_key_schemes_are_credentials() {
        let check = |header: &str, expected: Option<(Scheme, &str, &str)>| {
            let found = Credential::parse(header).map(|c| (c.scheme, c.account, c.signature));
            assert_eq!(found, expected, "{header}");
        };
        check("SharedKey acc:c2ln", Some((Scheme::Full, "acc", "c2ln")));
        check("sharedkey  acc:a=b:c", Some((Scheme::Full, "acc", "a=b:c")));
        check("SharedKeyLite acc:c2ln", Some((Scheme::Lite, "acc", "c2ln")));
        check("SharedKeyLight acc:c2ln", None);
        check("Bearer eyJ0", None);
        check("SharedKey acc", None);
        check("", None);
    }
}
