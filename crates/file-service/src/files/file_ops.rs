//! Requests about files that move none of their bytes: making, properties, resizing, ranges,
//! deleting. Bytes in: `upload`. Bytes out: `download`.

use std::fmt::Write;

use axum::response::Response;
use corro_shares::{Difference, Kind, Properties, ShareError, Shares};

use crate::context::{Context, Place};
use crate::files::file_headers::{Described, parent_id, set_file};
use crate::preconditions::Guard;
use crate::preconditions::lease::Lease;
use crate::protocol::error::Refusal;
use crate::protocol::request::{self, Call};
use crate::protocol::smb_properties::{self, Shown, Smb};
use crate::protocol::xml::DECLARATION;
use crate::protocol::{metadata_headers, mount_headers, range, response};
use crate::shares::permissions;
use crate::shares::quota::reserve;

/// The service's largest file: 4 TiB.
pub(crate) const MAX_FILE: u64 = 1 << 42;

pub(crate) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    match call.header("x-ms-type") {
        None => return Err(Refusal::missing_header("x-ms-type")),
        Some(kind) if !kind.eq_ignore_ascii_case("file") => return Err(Refusal::header("x-ms-type")),
        Some(_) => {}
    }
    let len = wanted_length(call)?.ok_or(Refusal::missing_header("x-ms-content-length"))?;
    let making = Making::of(&context)?;
    let described = context.decide_on_disk(move |shares, place| making.perform(shares, place, len)).await?;
    Ok(changed(201, call, &described))
}

/// A file that is to be made.
pub(crate) struct Making {
    properties: Properties,
    smb: Smb,
    guard: Guard,
    exclusive: bool,
    may_replace: bool,
    tells_parent: bool,
}

impl Making {
    pub(crate) fn of(context: &Context<'_>) -> Result<Making, Refusal> {
        let call = context.call;
        let exclusive = mount_headers::is_exclusive(call)?;
        Ok(Making {
            properties: metadata_headers::of(call)?,
            smb: Smb::of(call, Kind::File)?,
            guard: Guard::of(call, (context.service.now)())?,
            exclusive,
            may_replace: context.may_replace && !exclusive,
            tells_parent: call.speaks_smb(),
        })
    }

    /// On the disk.
    pub(crate) fn perform(mut self, shares: &Shares, place: &Place, len: u64) -> Result<Described, Refusal> {
        let share = place.open(shares)?;
        self.guard.check_write(&share, &place.path)?;
        permissions::resolve(&mut self.smb, shares, place)?;
        reserve(&share, &place.path, len)?;
        let mut properties = self.properties;
        let made = share.create_file_as(&place.path, len, self.may_replace, |before, stat| {
            Lease::carry(before, &mut properties);
            self.smb.describe_new(&mut properties, stat);
            properties.clone()
        });
        let stat = made.map_err(|error| replaced(error, self.may_replace || self.exclusive))?;
        let parent = if self.tells_parent { parent_id(&share, &place.path) } else { 0 };
        Ok(Described { stat, properties, parent })
    }
}

/// Who may only make new files is not to know more of those that are there.
pub(crate) fn replaced(error: ShareError, may_replace: bool) -> Refusal {
    match error {
        ShareError::AlreadyExists(_) if !may_replace => Refusal::new("AuthorizationPermissionMismatch"),
        error => error.into(),
    }
}

/// The answer to a change of a file.
fn changed(status: u16, call: &Call, Described { stat, properties, parent }: &Described) -> Response {
    let mut response = response::empty(status);
    response::set_stat(response.headers_mut(), stat);
    response::set_smb(response.headers_mut(), call, (stat, properties), *parent);
    response::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}

pub(crate) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let found = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            let (stat, properties) = share.describe_content(&place.path)?;
            Ok(Described { stat, properties, parent: parent_id(&share, &place.path) })
        })
        .await;
    let mut described = found.map_err(Refusal::kind_as_missing)?;
    let now = (context.service.now)();
    Guard::of(context.call, now)?.check_read(&described.stat, &described.properties)?;
    context.service.copies.settle(&mut described.properties);
    let stat = &described.stat;
    let mut response = response::empty(200);
    set_file(response.headers_mut(), context.call, &described, now);
    if context.call.method == http::Method::HEAD {
        response::set(response.headers_mut(), "content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata. `comp=properties` resizes if a length is given, says what SMB knows of the
/// file, and replaces all content settings unless the length is all it says.
pub(crate) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let only_metadata = call.parameter("comp").eq_ignore_ascii_case("metadata");
    let len = match only_metadata {
        true => None,
        false => wanted_length(call)?,
    };
    let said = metadata_headers::of(call)?;
    let only_length = len.is_some() && !metadata_headers::says_content(call);
    let mut smb = if only_metadata { Smb::default() } else { Smb::of(call, Kind::File)? };
    let preserves = call.header("x-ms-file-last-write-time").is_some_and(|word| word.eq_ignore_ascii_case("preserve"));
    // Who takes the read-only attribute away may not be kept from it by it.
    let guard = Guard::of(call, (context.service.now)())?.ignoring_read_only(len.is_none());
    let described = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            share.stat_file(&place.path)?;
            guard.check_write(&share, &place.path)?;
            permissions::resolve(&mut smb, shares, place)?;
            if let Some(len) = len {
                reserve(&share, &place.path, len)?;
                let (before, kept) = share.describe(&place.path)?;
                share.resize(&place.path, len)?;
                if preserves {
                    let written = Shown::of(&before, &kept).written;
                    share.note_properties(&place.path, |kept, stat| {
                        smb_properties::preserve_written(kept, &written, stat);
                        Ok::<_, Refusal>(())
                    })?;
                }
            }
            if !only_length || smb != Smb::default() {
                share.change_properties_at(&place.path, |kept, before, at| {
                    match (only_metadata, only_length) {
                        (true, _) => metadata_headers::replace_metadata(kept, &said),
                        (false, false) => metadata_headers::replace_content(kept, &said),
                        (false, true) => {}
                    }
                    smb.change(kept, before, at);
                })?;
            }
            let (stat, properties) = share.describe(&place.path)?;
            Ok(Described { stat, properties, parent: parent_id(&share, &place.path) })
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    Ok(changed(200, call, &described))
}

/// Where the file has data; with `prevsharesnapshot`, what is different from that snapshot.
pub(crate) async fn ranges(context: Context<'_>) -> Result<Response, Refusal> {
    let asked = range::of_read(context.call)?;
    let since = request::snapshot_named(&context.call.raw_query, "prevsharesnapshot")?;
    let guard = Guard::of(context.call, (context.service.now)())?;
    let (mut difference, stat) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let (stat, properties) = share.describe_content(&place.path)?;
            guard.check_read(&stat, &properties)?;
            Ok(match since {
                None => {
                    let (written, stat) = share.data_ranges(&place.path)?;
                    (corro_shares::Difference { written, cleared: Vec::new() }, stat)
                }
                Some(id) => {
                    let earlier = shares.snapshot(&place.account, &place.share, &id)?;
                    share.changes_since(&place.path, &earlier)?
                }
            })
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    if let Some(asked) = asked {
        let part = asked.within(stat.len).ok_or(Refusal::range_beyond(stat.len))?;
        for ranges in [&mut difference.written, &mut difference.cleared] {
            ranges.retain(|(first, last)| *first < part.end && *last >= part.start);
            for (first, last) in ranges {
                (*first, *last) = ((*first).max(part.start), (*last).min(part.end - 1));
            }
        }
    }
    let mut response = response::document(ranges_document(&difference));
    response::set_stat(response.headers_mut(), &stat);
    response::set(response.headers_mut(), "x-ms-content-length", &stat.len.to_string());
    Ok(response)
}

pub(crate) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let guard = Guard::of(context.call, (context.service.now)())?;
    context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_entry(&share, &place.path)?;
            Ok(share.delete_file(&place.path)?)
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    Ok(response::empty(202))
}

fn wanted_length(call: &Call) -> Result<Option<u64>, Refusal> {
    match call.number("x-ms-content-length")? {
        Some(len) if len > MAX_FILE => Err(Refusal::header("x-ms-content-length")),
        len => Ok(len),
    }
}

fn ranges_document(difference: &Difference) -> String {
    let written = difference.written.iter().map(|range| ("Range", range));
    let mut all: Vec<_> = written.chain(difference.cleared.iter().map(|range| ("ClearRange", range))).collect();
    all.sort_by_key(|(_, range)| **range);
    let mut xml = format!("{DECLARATION}<Ranges>");
    for (element, (start, end)) in all {
        let _ = write!(xml, "<{element}><Start>{start}</Start><End>{end}</End></{element}>");
    }
    xml.push_str("</Ranges>");
    xml
}
