//! Signed requests for small files, as bytes. Pure: the date is an argument.

use anyhow::Result;
use corro_model::storage::{sas, shared_key};

use crate::fixture::{ACCOUNT, SHARE};

/// Protocol version of the newest SDK of its time, whose responses carry the most headers.
const VERSION: &str = "2023-11-03";
const LINK_LIFETIME_SECONDS: i64 = 3600;

/// A GET signed with the account key, as an SDK does.
pub fn signed_with_key(address: &str, path: &str, key: &[u8], date: &str) -> Vec<u8> {
    let raw = format!("/{ACCOUNT}/{SHARE}/{path}");
    let headers = [("x-ms-date", date), ("x-ms-version", VERSION)];
    let request = shared_key::Request { method: "GET", path: &raw, query: "", account: ACCOUNT };
    let signed = shared_key::authorization(request, headers, key);
    let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    format!("GET {raw} HTTP/1.1\r\nHost: {address}\r\n{headers}Authorization: {signed}\r\n\r\n").into_bytes()
}

/// A GET with a SAS link, as `job file stream` and browsers do.
pub fn with_sas_link(address: &str, path: &str, key: &[u8], now: i64) -> Result<Vec<u8>> {
    let query = sas::read_link_query(key, ACCOUNT, SHARE, path, now + LINK_LIFETIME_SECONDS)?;
    Ok(unsigned(address, &format!("/{ACCOUNT}/{SHARE}/{path}?{query}")))
}

/// A GET without signature, for a server without authentication.
pub fn unsigned(address: &str, target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes()
}
