//! Terms of every kind of SAS: start, expiry, client addresses and protocols. Pure: `now` is an argument.

use std::net::IpAddr;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use super::SasError;

/// Client that presents a SAS, as known from the connection.
#[derive(Debug, Clone, Copy)]
pub struct Bearer {
    /// `None` when unknown; a SAS with an address range is then refused.
    pub address: Option<IpAddr>,
    pub over_tls: bool,
}

/// Terms of a SAS as in its query. An empty one is no restriction, except for `expiry`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    pub start: &'a str,
    pub expiry: &'a str,
    pub addresses: &'a str,
    pub protocols: &'a str,
}

impl Terms<'_> {
    pub fn check(self, bearer: Bearer, now: i64) -> Result<(), SasError> {
        if !self.start.is_empty() && now < seconds(self.start).ok_or(SasError::Malformed)? {
            return Err(SasError::NotYet);
        }
        if now >= seconds(self.expiry).ok_or(SasError::Malformed)? {
            return Err(SasError::Expired);
        }
        if !self.addresses.is_empty() && !address_allowed(self.addresses, bearer.address)? {
            return Err(SasError::Address);
        }
        match self.protocols {
            "" | "https,http" | "http,https" => Ok(()),
            "https" if bearer.over_tls => Ok(()),
            "https" => Err(SasError::Protocol),
            _ => Err(SasError::Malformed),
        }
    }
}

/// Whether `text` has one of the time formats of a SAS.
pub fn is_time(text: &str) -> bool {
    seconds(text).is_some()
}

/// Parses the three formats that Azure documents: a date, a minute, a second (also with a fraction), all in UTC.
pub(super) fn seconds(text: &str) -> Option<i64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_second());
    }
    if let Some(minute) = text.strip_suffix('Z') {
        return format!("{minute}:00Z").parse::<Timestamp>().ok().map(Timestamp::as_second);
    }
    let midnight = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_second())
}

/// Checks an address against `sip`, which is one address or `first-last`.
fn address_allowed(allowed: &str, address: Option<IpAddr>) -> Result<bool, SasError> {
    let (first, last) = allowed.split_once('-').unwrap_or((allowed, allowed));
    let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| SasError::Malformed);
    let range = parse(first)?..=parse(last)?;
    Ok(address.is_some_and(|address| {
        let address = address.to_canonical();
        address.is_ipv4() == range.start().is_ipv4() && range.contains(&address)
    }))
}
