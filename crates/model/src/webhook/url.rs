//! URL of a webhook: syntax, and the form in which it is shown. Chat services put the credential into the path, and others into
//! the query or before the host, so only scheme, host and port are ever shown.
//!
//! Stricter than RFC 3986, so that no two parsers can disagree about the host: ASCII only, no backslash, no fragment, and a
//! host that looks like a number must be an IPv4 address in its usual form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest URL, in bytes.
const MAX_URL_BYTES: usize = 2_048;
/// Stands for the rest of a URL that is not shown. No valid URL contains it.
pub const REDACTED_PATH: &str = "/***";

/// A valid URL.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WebhookUrl<'a> {
    scheme: &'a str,
    /// Host and port, without a user name and password.
    authority: &'a str,
    /// Without brackets, if it is an IPv6 address.
    host: &'a str,
    has_hidden_part: bool,
}

impl<'a> WebhookUrl<'a> {
    /// The error says what is wrong, and never repeats more than the scheme.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let refuse = |problem: &str| Err(problem.to_owned());
        if text.len() > MAX_URL_BYTES {
            return Err(format!("the URL has {} bytes: use at most {MAX_URL_BYTES}", text.len()));
        }
        if text.contains("***") {
            return refuse("the URL is shortened, because it can hold a credential: give the whole URL");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("this is not a URL: write https://HOST/PATH");
        };
        if !matches!(scheme, "https" | "http") {
            return refuse("the URL is neither https nor http: write https://HOST/PATH");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte)) {
            return refuse("the URL has a space, a '#' or a character that is not allowed in URLs: encode it with '%'");
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (before, after) = rest.split_at(end);
        let authority = before.rsplit_once('@').map_or(before, |(_, authority)| authority);
        let Some(host) = host_of(authority) else {
            return refuse("the URL has no valid host: write https://HOST/PATH or https://HOST:PORT/PATH");
        };
        let has_hidden_part = authority.len() < before.len() || !matches!(after, "" | "/");
        Ok(Self { scheme, authority, host, has_hidden_part })
    }

    pub fn host(&self) -> &'a str {
        self.host
    }

    /// The host, if it is an address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The URL as responses, logs and the history show it.
    pub fn redacted(&self) -> String {
        let rest = if self.has_hidden_part { REDACTED_PATH } else { "" };
        format!("{}://{}{rest}", self.scheme, self.authority)
    }
}

/// The host in `HOST[:PORT]`; `None` if either is not valid.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, port) = inner.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            (is_host_name(host) || host.parse::<Ipv4Addr>().is_ok()).then_some((host, port))?
        }
    };
    let is_port =
        |port: &str| port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|n| n > 0);
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

/// A DNS name. Names whose last label begins with a digit are addresses in unusual forms, such as `127.1` or `0x7f000001`.
fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    let labels = host.strip_suffix('.').unwrap_or(host);
    let last = labels.rsplit('.').next().unwrap_or_default();
    host.len() <= 253 && labels.split('.').all(is_label) && !last.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scheme_host_and_port_are_shown() {
        let check = |text: &str, expected: &str, host: &str| {
            let url = WebhookUrl::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!((url.redacted().as_str(), url.host()), (expected, host), "{text}");
        };
        check("https://hooks.example.com", "https://hooks.example.com", "hooks.example.com");
        check("https://hooks.example.com/", "https://hooks.example.com", "hooks.example.com");
        check("http://h:8080/T0/canary", "http://h:8080/***", "h");
        check("https://h.example?key=canary", "https://h.example/***", "h.example");
        check("https://user:canary@h.example", "https://h.example/***", "h.example");
        check("https://user:c@nary@h.example/", "https://h.example/***", "h.example");
        check("https://[2001:db8::1]:443/canary", "https://[2001:db8::1]:443/***", "2001:db8::1");
        check("http://127.0.0.1:80/", "http://127.0.0.1:80", "127.0.0.1");
        check("https://a_b-c.example./x", "https://a_b-c.example./***", "a_b-c.example.");
    }

    #[test]
    fn mistakes_and_ambiguous_urls_are_refused_without_repeating_them() {
        let check = |text: &str, part: &str| {
            let problem = WebhookUrl::parse(text).err().unwrap_or_else(|| panic!("{text} is accepted"));
            assert!(problem.contains(part) && !problem.contains("canary"), "{text}: {problem}");
        };
        check("hooks.example.com/canary", "this is not a URL");
        check("", "this is not a URL");
        check("ftp://h/canary", "neither https nor http");
        check("HTTPS://h/canary", "neither https nor http");
        check("file:///etc/canary", "neither https nor http");
        check("https://h.example/***", "the URL is shortened");
        check("https://", "no valid host");
        check("https:///canary", "no valid host");
        check("https://user:canary@/", "no valid host");
        for host in [
            "127.1",
            "0x7f.1",
            "2130706433",
            "1.2.3.4.5",
            "a..b",
            "h:",
            "h:0",
            "h:70000",
            "h:+8",
            "[::1",
            "[1.2.3.4]",
            "[fe80::1%25eth0]",
        ] {
            check(&format!("https://{host}/canary"), "no valid host");
        }
        for text in [
            "https://h/a b",
            "https://h\\@evil/canary",
            "https://h/#canary",
            "https://h/\u{e9}",
            "https://h/\n",
            "https://<h>",
        ] {
            check(text, "not allowed in URLs");
        }
        check(&format!("https://h/{}", "x".repeat(MAX_URL_BYTES)), "use at most 2048");
    }
}
