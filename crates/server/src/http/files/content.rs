//! Requests about files that move none of their bytes: making, properties, resizing, ranges,
//! deleting. Bytes in: `upload`. Bytes out: `download`.

use axum::response::Response;
use corro_shares::{Kind, Properties, ShareError, Shares, Stat};
use http::{HeaderMap, HeaderValue, header};

use super::{
    Context, Place, about,
    call::{self, Call},
    directories::parent_id,
    guard::Guard,
    lease::Lease,
    leases, mounted, permissions,
    refusal::Refusal,
    reply::{self, name},
    shares::reserve,
    smb::{self, Shown, Smb},
    xml,
};

/// The service's largest file: 4 TiB.
pub(super) const MAX_FILE: u64 = 1 << 42;

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
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
pub(super) struct Making {
    properties: Properties,
    smb: Smb,
    guard: Guard,
    exclusive: bool,
    may_replace: bool,
    tells_parent: bool,
}

impl Making {
    pub(super) fn of(context: &Context<'_>) -> Result<Making, Refusal> {
        let call = context.call;
        let exclusive = mounted::is_exclusive(call)?;
        Ok(Making {
            properties: about::of(call)?,
            smb: Smb::of(call, Kind::File)?,
            guard: Guard::of(call, (context.service.now)())?,
            exclusive,
            may_replace: context.may_replace && !exclusive,
            tells_parent: call.speaks_smb(),
        })
    }

    /// On the disk.
    pub(super) fn perform(mut self, shares: &Shares, place: &Place, len: u64) -> Result<Described, Refusal> {
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
pub(super) fn replaced(error: ShareError, may_replace: bool) -> Refusal {
    match error {
        ShareError::AlreadyExists(_) if !may_replace => Refusal::new("AuthorizationPermissionMismatch"),
        error => error.into(),
    }
}

/// The answer to a change of a file.
fn changed(status: u16, call: &Call, Described { stat, properties, parent }: &Described) -> Response {
    let mut response = reply::empty(status);
    reply::set_stat(response.headers_mut(), stat);
    reply::set_smb(response.headers_mut(), call, (stat, properties), *parent);
    reply::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}

pub(super) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
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
    let mut response = reply::empty(200);
    set_file(response.headers_mut(), context.call, &described, now);
    if context.call.method == http::Method::HEAD {
        reply::set(response.headers_mut(), "content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata. `comp=properties` resizes if a length is given, says what SMB knows of the
/// file, and replaces all content settings unless the length is all it says.
pub(super) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let only_metadata = call.parameter("comp").eq_ignore_ascii_case("metadata");
    let len = match only_metadata {
        true => None,
        false => wanted_length(call)?,
    };
    let said = about::of(call)?;
    let only_length = len.is_some() && !about::says_content(call);
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
                        smb::preserve_written(kept, &written, stat);
                        Ok::<_, Refusal>(())
                    })?;
                }
            }
            if !only_length || smb != Smb::default() {
                share.change_properties_at(&place.path, |kept, before, at| {
                    match (only_metadata, only_length) {
                        (true, _) => about::replace_metadata(kept, &said),
                        (false, false) => about::replace_content(kept, &said),
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
pub(super) async fn ranges(context: Context<'_>) -> Result<Response, Refusal> {
    let asked = super::range::of_read(context.call)?;
    let since = call::snapshot_named(&context.call.raw_query, "prevsharesnapshot")?;
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
    let mut response = reply::document(xml::ranges(&difference));
    reply::set_stat(response.headers_mut(), &stat);
    reply::set(response.headers_mut(), "x-ms-content-length", &stat.len.to_string());
    Ok(response)
}

pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let guard = Guard::of(context.call, (context.service.now)())?;
    context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_entry(&share, &place.path)?;
            Ok(share.delete_file(&place.path)?)
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    Ok(reply::empty(202))
}

/// What an answer says about a file.
pub(super) struct Described {
    pub stat: Stat,
    pub properties: Properties,
    pub parent: u64,
}

/// The headers that describe a file, for HEAD and GET.
pub(super) fn set_file(headers: &mut HeaderMap, call: &Call, described: &Described, now: i64) {
    let Described { stat, properties, parent } = described;
    // Growing step by step costs more than all that is put in.
    headers.reserve(MANY_HEADERS);
    reply::set_stat(headers, stat);
    reply::set_smb(headers, call, (stat, properties), *parent);
    if call.of_blobs || leases::are_told_of_files(call) {
        leases::describe(headers, &Lease::of(properties, now));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    about::set(headers, properties);
    if stat.kind == Kind::Link {
        // As shares with links of their own (NFS) say it in later versions of the service: the content is the text of the link.
        headers.insert(name!("x-ms-file-file-type"), HeaderValue::from_static("SymLink"));
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    match call.of_blobs {
        false => headers.insert(name!("x-ms-type"), HeaderValue::from_static("File")),
        true => {
            reply::set_text(headers, name!("x-ms-creation-time"), reply::http_date(stat.created));
            headers.insert(name!("x-ms-blob-type"), HeaderValue::from_static("BlockBlob"))
        }
    };
    headers.insert(name!("x-ms-server-encrypted"), HeaderValue::from_static("true"));
}

/// On an answer about a file, with those that all answers have.
const MANY_HEADERS: usize = 24;

fn wanted_length(call: &Call) -> Result<Option<u64>, Refusal> {
    match call.number("x-ms-content-length")? {
        Some(len) if len > MAX_FILE => Err(Refusal::header("x-ms-content-length")),
        len => Ok(len),
    }
}
