//! SMB properties of files and directories: attributes, times, permission key. Clients of newer API versions set them
//! on create, change, copy and rename. Stored among the properties and returned; the server does not speak SMB. Pure.
//!
//! The last write time is the file's mtime unless a client sets another. That one is stored together with the mtime,
//! and is valid as long as the mtime is the same: any later write, also by a job, invalidates it.

use std::time::{Duration, SystemTime};

use corro_model::Timestamp;
use corro_shares::{Kind, Properties, Stat};

use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::time_format::smb_time;

const ATTRIBUTES_PROPERTY: &str = "smb-attributes";
const CREATED_PROPERTY: &str = "smb-created";
const WRITTEN_PROPERTY: &str = "smb-written";
const CHANGED_PROPERTY: &str = "smb-changed";
const PERMISSION_PROPERTY: &str = "smb-permission";
/// Key of the default security descriptor.
pub(crate) const DEFAULT_PERMISSION_KEY: &str = "0*0";

/// Attributes that a client can set, in Azure's spelling.
const ATTRIBUTE_NAMES: [&str; 9] = [
    "ReadOnly",
    "Hidden",
    "System",
    "Directory",
    "Archive",
    "Temporary",
    "Offline",
    "NotContentIndexed",
    "NoScrubData",
];

/// SMB properties that a request sets; for most requests none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SmbSettings {
    /// In Azure's spelling; empty for the default.
    attributes: Option<String>,
    created: TimeSetting,
    written: TimeSetting,
    changed: TimeSetting,
    pub permission: PermissionSetting,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum TimeSetting {
    /// Also `preserve` and `source`: keep the value, or use the default.
    #[default]
    Unset,
    Now,
    At(String),
}

/// `x-ms-file-permission` and `x-ms-file-permission-key`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum PermissionSetting {
    #[default]
    Unset,
    /// The default descriptor.
    Inherit,
    Descriptor(String),
    Key(String),
}

impl SmbSettings {
    pub fn parse(request: &StorageRequest, kind: Kind) -> Result<Self, StorageError> {
        if !request.supports_smb_headers() {
            return Ok(SmbSettings::default());
        }
        Ok(SmbSettings {
            attributes: parse_attributes(request, kind)?,
            created: parse_time_setting(request, "x-ms-file-creation-time")?,
            written: parse_time_setting(request, "x-ms-file-last-write-time")?,
            changed: parse_time_setting(request, "x-ms-file-change-time")?,
            permission: parse_permission(request)?,
        })
    }

    /// Applies the settings to a new file, or to a copy that has the properties of its source.
    pub fn apply_to_new(&self, properties: &mut Properties, stat: &Stat) {
        for (name, setting) in [(WRITTEN_PROPERTY, &self.written), (CHANGED_PROPERTY, &self.changed)] {
            match setting {
                TimeSetting::At(time) => set_time(properties, name, time, stat.modified),
                TimeSetting::Now => properties.remove(name),
                // Copied from the source of a copy, which had another mtime.
                TimeSetting::Unset => {
                    let stored = properties.get(name).and_then(|text| text.split_once(' '));
                    if let Some(time) = stored.map(|(time, _)| time.to_owned()) {
                        set_time(properties, name, &time, stat.modified);
                    }
                }
            }
        }
        self.apply_common(properties);
    }

    /// Applies the settings to an existing file whose properties, but not content, change at `at`.
    pub fn apply_to_existing(&self, properties: &mut Properties, before: &Stat, at: SystemTime) {
        let written = SmbProperties::load(before, properties).written;
        match &self.written {
            TimeSetting::At(time) => set_time(properties, WRITTEN_PROPERTY, time, at),
            TimeSetting::Now => properties.remove(WRITTEN_PROPERTY),
            TimeSetting::Unset => set_time(properties, WRITTEN_PROPERTY, &written, at),
        }
        match &self.changed {
            TimeSetting::At(time) => set_time(properties, CHANGED_PROPERTY, time, at),
            TimeSetting::Now | TimeSetting::Unset => properties.remove(CHANGED_PROPERTY),
        }
        self.apply_common(properties);
    }

    fn apply_common(&self, properties: &mut Properties) {
        match &self.attributes {
            Some(attributes) if attributes.is_empty() => properties.remove(ATTRIBUTES_PROPERTY),
            Some(attributes) => set(properties, ATTRIBUTES_PROPERTY, attributes),
            None => {}
        }
        match &self.created {
            TimeSetting::At(time) => set(properties, CREATED_PROPERTY, time),
            TimeSetting::Now => properties.remove(CREATED_PROPERTY),
            TimeSetting::Unset => {}
        }
        match &self.permission {
            PermissionSetting::Key(key) => set(properties, PERMISSION_PROPERTY, key),
            PermissionSetting::Inherit => properties.remove(PERMISSION_PROPERTY),
            PermissionSetting::Unset | PermissionSetting::Descriptor(_) => {}
        }
    }
}

/// SMB properties as responses report them.
pub(crate) struct SmbProperties {
    pub attributes: String,
    pub created: String,
    pub written: String,
    pub changed: String,
    pub permission_key: String,
}

impl SmbProperties {
    pub fn load(stat: &Stat, properties: &Properties) -> Self {
        let attributes = match (stat.kind, properties.get(ATTRIBUTES_PROPERTY)) {
            (Kind::File | Kind::Link, None) => "Archive".to_owned(),
            (Kind::File | Kind::Link, Some(attributes)) => attributes.to_owned(),
            (Kind::Directory, None) => "Directory".to_owned(),
            (Kind::Directory, Some(attributes)) => format!("{attributes} | Directory"),
        };
        let text = |name| properties.get(name).map(str::to_owned);
        let modified = smb_time(stat.modified);
        SmbProperties {
            attributes,
            created: text(CREATED_PROPERTY).unwrap_or_else(|| smb_time(stat.created)),
            written: time_if_unchanged(properties, WRITTEN_PROPERTY, stat.modified).unwrap_or_else(|| modified.clone()),
            changed: time_if_unchanged(properties, CHANGED_PROPERTY, stat.modified).unwrap_or(modified),
            permission_key: text(PERMISSION_PROPERTY).unwrap_or_else(|| DEFAULT_PERMISSION_KEY.to_owned()),
        }
    }
}

/// After a write that must not change the last write time.
pub(crate) fn keep_last_write_time(properties: &mut Properties, before: &str, stat: &Stat) {
    set_time(properties, WRITTEN_PROPERTY, before, stat.modified);
}

/// Whether a file may not be written to.
pub(crate) fn is_read_only(properties: &Properties) -> bool {
    properties.get(ATTRIBUTES_PROPERTY).is_some_and(|names| names.split(" | ").any(|name| name == "ReadOnly"))
}

/// Key of the security descriptor that was set.
pub(crate) fn permission_key(properties: &Properties) -> Option<&str> {
    properties.get(PERMISSION_PROPERTY)
}

pub(crate) fn add_archive(properties: &mut Properties) {
    let names = properties.get(ATTRIBUTES_PROPERTY).map(str::to_owned);
    if let Some(names) = names.filter(|names| !names.contains("Archive")) {
        set(properties, ATTRIBUTES_PROPERTY, &format!("{names} | Archive"));
    }
}

fn parse_attributes(request: &StorageRequest, kind: Kind) -> Result<Option<String>, StorageError> {
    const HEADER: &str = "x-ms-file-attributes";
    if !request.headers.contains_key(HEADER) {
        return Ok(None);
    }
    let text = request.header(HEADER).ok_or(StorageError::invalid_header(HEADER))?.trim();
    if ["preserve", "source"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    let mut names = Vec::new();
    for word in text.split('|').map(str::trim).filter(|word| !word.eq_ignore_ascii_case("none")) {
        let name = ATTRIBUTE_NAMES
            .into_iter()
            .find(|name| name.eq_ignore_ascii_case(word))
            .ok_or(StorageError::invalid_header(HEADER))?;
        match (kind, name) {
            (Kind::Directory, "Directory") => {}
            (Kind::File | Kind::Link, "Directory") => return Err(StorageError::invalid_header(HEADER)),
            _ if names.contains(&name) => {}
            _ => names.push(name),
        }
    }
    // `Archive` alone is the default of a file.
    if names == ["Archive"] && kind == Kind::File {
        names.clear();
    }
    Ok(Some(names.join(" | ")))
}

fn parse_time_setting(request: &StorageRequest, header: &'static str) -> Result<TimeSetting, StorageError> {
    if !request.headers.contains_key(header) {
        return Ok(TimeSetting::Unset);
    }
    let text = request.header(header).ok_or(StorageError::invalid_header(header))?.trim();
    match text.to_ascii_lowercase().as_str() {
        "preserve" | "source" => Ok(TimeSetting::Unset),
        "now" => Ok(TimeSetting::Now),
        _ => parse_time(text).map(TimeSetting::At).ok_or(StorageError::invalid_header(header)),
    }
}

fn parse_permission(request: &StorageRequest) -> Result<PermissionSetting, StorageError> {
    let text = |header| match request.headers.contains_key(header) {
        true => request.header(header).map(|text| Some(text.trim())).ok_or(StorageError::invalid_header(header)),
        false => Ok(None),
    };
    match (text("x-ms-file-permission")?, text("x-ms-file-permission-key")?) {
        (None | Some(""), None | Some("")) => Ok(PermissionSetting::Unset),
        (None | Some(""), Some(key)) if key.eq_ignore_ascii_case("source") => Ok(PermissionSetting::Unset),
        (None | Some(""), Some(key)) => Ok(PermissionSetting::Key(key.to_owned())),
        (Some(text), None) => match text.to_ascii_lowercase().as_str() {
            "inherit" => Ok(PermissionSetting::Inherit),
            "preserve" | "source" => Ok(PermissionSetting::Unset),
            _ => Ok(PermissionSetting::Descriptor(text.to_owned())),
        },
        (Some(_), Some(_)) => Err(StorageError::new("InvalidHeaderValue").with_message(
            "x-ms-file-permission and x-ms-file-permission-key are mutually exclusive: send one of them.",
        )),
    }
}

/// Parses a UTC time into the canonical form with 100 ns: `2018-06-07T22:21:55.1234567Z`.
fn parse_time(text: &str) -> Option<String> {
    let (whole, fraction) = match text.strip_suffix('Z')?.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text.strip_suffix('Z')?, "0"),
    };
    if !(1..=9).contains(&fraction.len()) || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = Timestamp::parse(&format!("{whole}Z"))?.whole_seconds();
    Some(format!("{}.{:0<7.7}Z", seconds.trim_end_matches('Z'), fraction))
}

fn set_time(properties: &mut Properties, name: &str, time: &str, at: SystemTime) {
    set(properties, name, &format!("{time} {}", nanoseconds(at)));
}

/// The stored time, if the mtime is still the one it was stored with.
fn time_if_unchanged(properties: &Properties, name: &str, at: SystemTime) -> Option<String> {
    let (time, with) = properties.get(name)?.split_once(' ')?;
    (with == nanoseconds(at).to_string()).then(|| time.to_owned())
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos()
}

fn set(properties: &mut Properties, name: &str, value: &str) {
    // A value from a header can be unprintable; it is not stored.
    let _ = properties.set(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_normalized() {
        for (text, expected) in [
            ("2018-06-07T22:21:55.1234567Z", Some("2018-06-07T22:21:55.1234567Z")),
            ("2018-06-07T22:21:55Z", Some("2018-06-07T22:21:55.0000000Z")),
            ("2018-06-07T22:21:55.5Z", Some("2018-06-07T22:21:55.5000000Z")),
            ("2018-06-07T22:21:55.123456789Z", Some("2018-06-07T22:21:55.1234567Z")),
            ("2018-06-07T22:21:55", None),
            ("2018-06-07T22:21:55.Z", None),
            ("2018-06-07T22:21:55.-1Z", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_stored_time_is_valid_until_the_mtime_changes() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut properties = Properties::default();
        set_time(&mut properties, WRITTEN_PROPERTY, "2001-01-01T00:00:00.0000000Z", at(5));
        assert_eq!(
            time_if_unchanged(&properties, WRITTEN_PROPERTY, at(5)).as_deref(),
            Some("2001-01-01T00:00:00.0000000Z")
        );
        assert_eq!(time_if_unchanged(&properties, WRITTEN_PROPERTY, at(6)), None);
        assert_eq!(time_if_unchanged(&properties, CHANGED_PROPERTY, at(5)), None);
    }
}
