//! Shared access signatures of the file service: a link that carries its own permission. Made
//! for download links of job output; checked by the file service, also for links that the SDKs
//! made. The signature is judged before anything else is said about a link, so that a forger
//! learns nothing. Never reads a clock: `now` is an argument.

use std::net::IpAddr;

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{hmac_base64, hmac_matches, query_pairs};

/// The version the service wrote into its own download links.
const MADE_VERSION: &str = "2016-05-31";

/// Query of a link that lets its holder read one file until `expires` (unix seconds). `path` is
/// decoded, without a leading slash.
pub fn read_link_query(
    key: &[u8],
    account: &str,
    share: &str,
    path: &str,
    expires: i64,
) -> Result<String, ExpiryOutOfRange> {
    link_query(Resource::File, key, account, share, path, expires)
}

/// The same for a file in a blob container.
pub fn read_blob_query(
    key: &[u8],
    account: &str,
    container: &str,
    path: &str,
    expires: i64,
) -> Result<String, ExpiryOutOfRange> {
    link_query(Resource::Blob, key, account, container, path, expires)
}

fn link_query(
    resource: Resource,
    key: &[u8],
    account: &str,
    share: &str,
    path: &str,
    expires: i64,
) -> Result<String, ExpiryOutOfRange> {
    let expires = Timestamp::from_second(expires).map_err(|_| ExpiryOutOfRange { expires })?;
    let sas = Sas {
        version: MADE_VERSION.to_owned(),
        resource,
        permissions: "rl".to_owned(),
        expiry: expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        ..Sas::default()
    };
    let signature = hmac_base64(key, &sas.string_to_sign(account, share, path));
    let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    Ok(format!(
        "sv={MADE_VERSION}&sr={}&sig={}&se={}&sp=rl",
        resource.letter(),
        encode(&signature),
        // Dashes stay as the service wrote them.
        sas.expiry.replace(':', "%3A"),
    ))
}

#[derive(Debug, thiserror::Error)]
#[error("the link's expiry, {expires} seconds after 1970, is no time of the calendar")]
pub struct ExpiryOutOfRange {
    expires: i64,
}

/// What a link gives access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resource {
    #[default]
    File,
    Share,
    /// A file in a container.
    Blob,
}

impl Resource {
    fn letter(self) -> &'static str {
        match self {
            Resource::File => "f",
            Resource::Share => "s",
            Resource::Blob => "b",
        }
    }
}

/// One letter of `sp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    Read,
    Create,
    Write,
    Delete,
    List,
}

/// A link's parameters as they stood in the query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sas {
    pub version: String,
    pub resource: Resource,
    pub permissions: String,
    pub start: String,
    pub expiry: String,
    pub identifier: String,
    pub addresses: String,
    pub protocols: String,
    pub overrides: Overrides,
    /// Empty in one that is yet to be signed.
    pub signature: String,
}

/// Response headers that the link's maker chose; empty ones are not set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    pub cache_control: String,
    pub content_disposition: String,
    pub content_encoding: String,
    pub content_language: String,
    pub content_type: String,
}

/// Who holds the link out, as far as the connection tells.
#[derive(Debug, Clone, Copy)]
pub struct Bearer {
    /// None when unknown; a link limited to addresses is then refused.
    pub address: Option<IpAddr>,
    pub over_tls: bool,
}

/// Why a link does not open the door. Only `Signature` is ever said to someone whose signature
/// is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the parameters of the shared access signature are incomplete or malformed")]
    Malformed,
    #[error("the signature does not match this resource and these parameters")]
    Signature,
    #[error("stored access policies are not supported")]
    StoredPolicy,
    #[error("the shared access signature is not valid yet")]
    NotYet,
    #[error("the shared access signature has expired")]
    Expired,
    #[error("the shared access signature is limited to other addresses")]
    Address,
    #[error("the shared access signature is limited to https")]
    Protocol,
}

impl Sas {
    /// None when the query carries no signature at all.
    pub fn from_query(query: &str) -> Option<Result<Self, Refused>> {
        let mut sas = Sas::default();
        let mut resource = String::new();
        let mut malformed = false;
        for (name, value) in query_pairs(query) {
            let slot = match name.as_str() {
                "sv" => &mut sas.version,
                "sr" => &mut resource,
                "sp" => &mut sas.permissions,
                "st" => &mut sas.start,
                "se" => &mut sas.expiry,
                "si" => &mut sas.identifier,
                "sip" => &mut sas.addresses,
                "spr" => &mut sas.protocols,
                "sig" => &mut sas.signature,
                "rscc" => &mut sas.overrides.cache_control,
                "rscd" => &mut sas.overrides.content_disposition,
                "rsce" => &mut sas.overrides.content_encoding,
                "rscl" => &mut sas.overrides.content_language,
                "rsct" => &mut sas.overrides.content_type,
                _ => continue,
            };
            // A repeated parameter could be signed in one reading and obeyed in another; a line
            // break could move a value into its neighbour's line of the string to sign.
            malformed |= !slot.is_empty() || value.chars().any(char::is_control);
            *slot = value;
        }
        if sas.signature.is_empty() {
            return None;
        }
        sas.resource = match resource.as_str() {
            "f" => Resource::File,
            "s" => Resource::Share,
            "b" => Resource::Blob,
            _ => return Some(Err(Refused::Malformed)),
        };
        if malformed || sas.version.is_empty() {
            return Some(Err(Refused::Malformed));
        }
        Some(Ok(sas))
    }

    /// Whether this link was made with one of `keys` for this path (decoded, no leading slash)
    /// and is good at `now`. What it permits is asked with [`Sas::permits`].
    pub fn check<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        account: &str,
        share: &str,
        path: &str,
        bearer: Bearer,
        now: i64,
    ) -> Result<(), Refused> {
        let text = self.string_to_sign(account, share, path);
        if !hmac_matches(keys, &text, &self.signature) {
            return Err(Refused::Signature);
        }
        if !self.identifier.is_empty() {
            return Err(Refused::StoredPolicy);
        }
        if !self.start.is_empty() && now < seconds(&self.start).ok_or(Refused::Malformed)? {
            return Err(Refused::NotYet);
        }
        if now >= seconds(&self.expiry).ok_or(Refused::Malformed)? {
            return Err(Refused::Expired);
        }
        if !self.addresses.is_empty() && !address_allowed(&self.addresses, bearer.address)? {
            return Err(Refused::Address);
        }
        match self.protocols.as_str() {
            "" | "https,http" | "http,https" => Ok(()),
            "https" if bearer.over_tls => Ok(()),
            "https" => Err(Refused::Protocol),
            _ => Err(Refused::Malformed),
        }
    }

    /// The query of a link with these parameters, in the order the SDKs write it. `path` is decoded, without a leading
    /// slash, and empty for a whole share.
    pub fn signed_query(&self, key: &[u8], account: &str, share: &str, path: &str) -> String {
        let resource = self.resource.letter();
        let signature = hmac_base64(key, &self.string_to_sign(account, share, path));
        let parameters = [
            ("st", self.start.as_str()),
            ("se", &self.expiry),
            ("sp", &self.permissions),
            ("sip", &self.addresses),
            ("spr", &self.protocols),
            ("sv", &self.version),
            ("sr", resource),
            ("si", &self.identifier),
            ("rscc", &self.overrides.cache_control),
            ("rscd", &self.overrides.content_disposition),
            ("rsce", &self.overrides.content_encoding),
            ("rscl", &self.overrides.content_language),
            ("rsct", &self.overrides.content_type),
            ("sig", &signature),
        ];
        // Those of the SDKs: letters, digits and these stay as they are.
        const KEPT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');
        let given = parameters.iter().filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, &KEPT))).collect::<Vec<_>>().join("&")
    }

    pub fn permits(&self, permission: Permission) -> bool {
        self.permissions.contains(match permission {
            Permission::Read => 'r',
            Permission::Create => 'c',
            Permission::Write => 'w',
            Permission::Delete => 'd',
            Permission::List => 'l',
        })
    }

    fn string_to_sign(&self, account: &str, share: &str, path: &str) -> String {
        let resource = match self.resource {
            Resource::File => format!("/file/{account}/{share}/{path}"),
            Resource::Share => format!("/file/{account}/{share}"),
            Resource::Blob => format!("/blob/{account}/{share}/{path}"),
        };
        [
            self.permissions.as_str(),
            &self.start,
            &self.expiry,
            &resource,
            &self.identifier,
            &self.addresses,
            &self.protocols,
            &self.version,
            &self.overrides.cache_control,
            &self.overrides.content_disposition,
            &self.overrides.content_encoding,
            &self.overrides.content_language,
            &self.overrides.content_type,
        ]
        .join("\n")
    }
}

/// Whether a time is written in one of the forms that a link takes.
pub fn is_time(text: &str) -> bool {
    seconds(text).is_some()
}

/// The three forms that Azure documents: a date, a minute, a second, all in UTC.
fn seconds(text: &str) -> Option<i64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_second());
    }
    if let Some(minute) = text.strip_suffix('Z') {
        return format!("{minute}:00Z").parse::<Timestamp>().ok().map(Timestamp::as_second);
    }
    let midnight = text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_second())
}

/// `sip` is one address or `first-last`.
fn address_allowed(allowed: &str, address: Option<IpAddr>) -> Result<bool, Refused> {
    let (first, last) = allowed.split_once('-').unwrap_or((allowed, allowed));
    let parse = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| Refused::Malformed);
    let range = parse(first)?..=parse(last)?;
    Ok(address.is_some_and(|address| {
        let address = address.to_canonical();
        address.is_ipv4() == range.start().is_ipv4() && range.contains(&address)
    }))
}

#[cfg(test)]
mod tests;
