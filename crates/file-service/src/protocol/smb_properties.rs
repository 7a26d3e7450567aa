//! What SMB knows of a file or directory besides its content: attributes, times, the key of its permission. Said by
//! newer clients when they make, change, copy or rename one; kept with it, and told again. Pure.
//!
//! The time of the last write is the disk's own until a client says another. That one is kept together with the disk's
//! time at that moment, and counts as long as the disk's is the same: whoever writes to the file later, a job too,
//! has written last.

use std::time::{Duration, SystemTime};

use corro_model::Timestamp;
use corro_shares::{Kind, Properties, Stat};

use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::time_format::smb_time;

const ATTRIBUTES: &str = "smb-attributes";
const CREATED: &str = "smb-created";
const WRITTEN: &str = "smb-written";
const CHANGED: &str = "smb-changed";
const PERMISSION: &str = "smb-permission";
/// The key of the descriptor that all things have which were given none.
pub(crate) const DEFAULT_PERMISSION_KEY: &str = "0*0";

/// Attributes a client may give, as the service spells them.
const NAMES: [&str; 9] = [
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

/// What a request says; nothing, for most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Smb {
    /// Spelled as the service does; empty for the usual ones.
    attributes: Option<String>,
    created: When,
    written: When,
    changed: When,
    pub permission: Permission,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum When {
    /// Also `preserve` and `source`: as it is, or as the usual is.
    #[default]
    Unsaid,
    Now,
    At(String),
}

/// `x-ms-file-permission` and `x-ms-file-permission-key`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Permission {
    #[default]
    Unsaid,
    /// That of things which were given none.
    Inherit,
    Descriptor(String),
    Key(String),
}

impl Smb {
    pub fn of(call: &Call, kind: Kind) -> Result<Self, Refusal> {
        if !call.speaks_smb() {
            return Ok(Smb::default());
        }
        Ok(Smb {
            attributes: attributes_in(call, kind)?,
            created: when(call, "x-ms-file-creation-time")?,
            written: when(call, "x-ms-file-last-write-time")?,
            changed: when(call, "x-ms-file-change-time")?,
            permission: permission_in(call)?,
        })
    }

    /// Says it about a thing that was just made, or copied with what was said about its source.
    pub fn describe_new(&self, properties: &mut Properties, stat: &Stat) {
        for (name, when) in [(WRITTEN, &self.written), (CHANGED, &self.changed)] {
            match when {
                When::At(time) => keep_at(properties, name, time, stat.modified),
                When::Now => properties.remove(name),
                // Of the source, which had another time on the disk.
                When::Unsaid => {
                    let kept = properties.get(name).and_then(|text| text.split_once(' '));
                    if let Some(time) = kept.map(|(time, _)| time.to_owned()) {
                        keep_at(properties, name, &time, stat.modified);
                    }
                }
            }
        }
        self.describe(properties);
    }

    /// Says it about a thing that was `before`, and is modified now without being written to.
    pub fn change(&self, properties: &mut Properties, before: &Stat, at: SystemTime) {
        let written = Shown::of(before, properties).written;
        match &self.written {
            When::At(time) => keep_at(properties, WRITTEN, time, at),
            When::Now => properties.remove(WRITTEN),
            When::Unsaid => keep_at(properties, WRITTEN, &written, at),
        }
        match &self.changed {
            When::At(time) => keep_at(properties, CHANGED, time, at),
            When::Now | When::Unsaid => properties.remove(CHANGED),
        }
        self.describe(properties);
    }

    fn describe(&self, properties: &mut Properties) {
        match &self.attributes {
            Some(attributes) if attributes.is_empty() => properties.remove(ATTRIBUTES),
            Some(attributes) => set(properties, ATTRIBUTES, attributes),
            None => {}
        }
        match &self.created {
            When::At(time) => set(properties, CREATED, time),
            When::Now => properties.remove(CREATED),
            When::Unsaid => {}
        }
        match &self.permission {
            Permission::Key(key) => set(properties, PERMISSION, key),
            Permission::Inherit => properties.remove(PERMISSION),
            Permission::Unsaid | Permission::Descriptor(_) => {}
        }
    }
}

/// What is told about a thing.
pub(crate) struct Shown {
    pub attributes: String,
    pub created: String,
    pub written: String,
    pub changed: String,
    pub permission_key: String,
}

impl Shown {
    pub fn of(stat: &Stat, properties: &Properties) -> Self {
        let attributes = match (stat.kind, properties.get(ATTRIBUTES)) {
            (Kind::File | Kind::Link, None) => "Archive".to_owned(),
            (Kind::File | Kind::Link, Some(attributes)) => attributes.to_owned(),
            (Kind::Directory, None) => "Directory".to_owned(),
            (Kind::Directory, Some(attributes)) => format!("{attributes} | Directory"),
        };
        let text = |name| properties.get(name).map(str::to_owned);
        let modified = smb_time(stat.modified);
        Shown {
            attributes,
            created: text(CREATED).unwrap_or_else(|| smb_time(stat.created)),
            written: kept_at(properties, WRITTEN, stat.modified).unwrap_or_else(|| modified.clone()),
            changed: kept_at(properties, CHANGED, stat.modified).unwrap_or(modified),
            permission_key: text(PERMISSION).unwrap_or_else(|| DEFAULT_PERMISSION_KEY.to_owned()),
        }
    }
}

/// After a write that shall leave the time of the last write as it was before.
pub(crate) fn preserve_written(properties: &mut Properties, before: &str, stat: &Stat) {
    keep_at(properties, WRITTEN, before, stat.modified);
}

/// Whether a file may not be written to.
pub(crate) fn is_read_only(properties: &Properties) -> bool {
    properties.get(ATTRIBUTES).is_some_and(|names| names.split(" | ").any(|name| name == "ReadOnly"))
}

/// The key of the permission that a thing was given.
pub(crate) fn permission_key(properties: &Properties) -> Option<&str> {
    properties.get(PERMISSION)
}

pub(crate) fn add_archive(properties: &mut Properties) {
    let names = properties.get(ATTRIBUTES).map(str::to_owned);
    if let Some(names) = names.filter(|names| !names.contains("Archive")) {
        set(properties, ATTRIBUTES, &format!("{names} | Archive"));
    }
}

fn attributes_in(call: &Call, kind: Kind) -> Result<Option<String>, Refusal> {
    const HEADER: &str = "x-ms-file-attributes";
    if !call.headers.contains_key(HEADER) {
        return Ok(None);
    }
    let text = call.header(HEADER).ok_or(Refusal::header(HEADER))?.trim();
    if ["preserve", "source"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    let mut names = Vec::new();
    for word in text.split('|').map(str::trim).filter(|word| !word.eq_ignore_ascii_case("none")) {
        let name = NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(word)).ok_or(Refusal::header(HEADER))?;
        match (kind, name) {
            (Kind::Directory, "Directory") => {}
            (Kind::File | Kind::Link, "Directory") => return Err(Refusal::header(HEADER)),
            _ if names.contains(&name) => {}
            _ => names.push(name),
        }
    }
    // A file has this one if it has no other.
    if names == ["Archive"] && kind == Kind::File {
        names.clear();
    }
    Ok(Some(names.join(" | ")))
}

fn when(call: &Call, header: &'static str) -> Result<When, Refusal> {
    if !call.headers.contains_key(header) {
        return Ok(When::Unsaid);
    }
    let text = call.header(header).ok_or(Refusal::header(header))?.trim();
    match text.to_ascii_lowercase().as_str() {
        "preserve" | "source" => Ok(When::Unsaid),
        "now" => Ok(When::Now),
        _ => time(text).map(When::At).ok_or(Refusal::header(header)),
    }
}

fn permission_in(call: &Call) -> Result<Permission, Refusal> {
    let text = |header| match call.headers.contains_key(header) {
        true => call.header(header).map(|text| Some(text.trim())).ok_or(Refusal::header(header)),
        false => Ok(None),
    };
    match (text("x-ms-file-permission")?, text("x-ms-file-permission-key")?) {
        (None | Some(""), None | Some("")) => Ok(Permission::Unsaid),
        (None | Some(""), Some(key)) if key.eq_ignore_ascii_case("source") => Ok(Permission::Unsaid),
        (None | Some(""), Some(key)) => Ok(Permission::Key(key.to_owned())),
        (Some(text), None) => match text.to_ascii_lowercase().as_str() {
            "inherit" => Ok(Permission::Inherit),
            "preserve" | "source" => Ok(Permission::Unsaid),
            _ => Ok(Permission::Descriptor(text.to_owned())),
        },
        (Some(_), Some(_)) => Err(Refusal::new("InvalidHeaderValue")
            .saying("x-ms-file-permission and x-ms-file-permission-key say the same thing: send one of them.")),
    }
}

/// A time in UTC, to 100 ns, in one spelling: `2018-06-07T22:21:55.1234567Z`.
fn time(text: &str) -> Option<String> {
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

fn keep_at(properties: &mut Properties, name: &str, time: &str, at: SystemTime) {
    set(properties, name, &format!("{time} {}", nanoseconds(at)));
}

/// What was kept, if the disk's time is still the one it was kept with.
fn kept_at(properties: &Properties, name: &str, at: SystemTime) -> Option<String> {
    let (time, with) = properties.get(name)?.split_once(' ')?;
    (with == nanoseconds(at).to_string()).then(|| time.to_owned())
}

fn nanoseconds(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos()
}

fn set(properties: &mut Properties, name: &str, value: &str) {
    // From a header or made here; a key that is not printable was found nowhere.
    let _ = properties.set(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_spelling() {
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
            assert_eq!(time(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_kept_time_counts_until_the_disk_has_another() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut properties = Properties::default();
        keep_at(&mut properties, WRITTEN, "2001-01-01T00:00:00.0000000Z", at(5));
        assert_eq!(kept_at(&properties, WRITTEN, at(5)).as_deref(), Some("2001-01-01T00:00:00.0000000Z"));
        assert_eq!(kept_at(&properties, WRITTEN, at(6)), None);
        assert_eq!(kept_at(&properties, CHANGED, at(5)), None);
    }
}
