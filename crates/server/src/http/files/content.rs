//! Requests about files that move none of their bytes: making, properties, resizing, ranges,
//! deleting. Bytes in: `upload`. Bytes out: `download`.

use axum::response::Response;
use corro_shares::{Properties, Stat};
use http::HeaderMap;

use super::{
    Context, about, call::Call, conditions, directories::parent_id, refusal::Refusal, reply, shares::reserve, xml,
};

/// The service's largest file: 4 TiB.
const MAX_FILE: u64 = 1 << 42;

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    match call.header("x-ms-type") {
        None => return Err(Refusal::missing_header("x-ms-type")),
        Some(kind) if !kind.eq_ignore_ascii_case("file") => return Err(Refusal::header("x-ms-type")),
        Some(_) => {}
    }
    let len = wanted_length(call)?.ok_or(Refusal::missing_header("x-ms-content-length"))?;
    let properties = about::of(call)?;
    let (stat, parent) = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            reserve(&share, &place.path, len)?;
            let stat = share.create_file_with(&place.path, len, &properties)?;
            Ok((stat, parent_id(&share, &place.path)))
        })
        .await?;
    let mut response = reply::empty(201);
    reply::set_stat(response.headers_mut(), &stat);
    reply::set_smb(response.headers_mut(), call, &stat, parent);
    reply::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    Ok(response)
}

pub(super) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let found = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            share.stat_file(&place.path)?;
            let (stat, properties) = share.describe(&place.path)?;
            Ok(Described { stat, properties, parent: parent_id(&share, &place.path) })
        })
        .await;
    let mut described = found.map_err(Refusal::kind_as_missing)?;
    conditions::check(context.call, &described.stat)?;
    context.service.copies.settle(&mut described.properties);
    let stat = &described.stat;
    let mut response = reply::empty(200);
    set_file(response.headers_mut(), context.call, &described);
    if context.call.method == http::Method::HEAD {
        reply::set(response.headers_mut(), "content-length", &stat.len.to_string());
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata. `comp=properties` resizes if a length is given, and replaces all content
/// settings unless the length is all it says.
pub(super) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let only_metadata = call.parameter("comp").eq_ignore_ascii_case("metadata");
    let len = match only_metadata {
        true => None,
        false => wanted_length(call)?,
    };
    let said = about::of(call)?;
    let only_length = len.is_some() && !about::says_content(call);
    let (stat, parent) = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let mut stat = share.stat_file(&place.path)?;
            if let Some(len) = len {
                reserve(&share, &place.path, len)?;
                stat = share.resize(&place.path, len)?;
            }
            if !only_length {
                stat = share.change_properties(&place.path, |kept| match only_metadata {
                    true => about::replace_metadata(kept, &said),
                    false => about::replace_content(kept, &said),
                })?;
            }
            Ok((stat, parent_id(&share, &place.path)))
        })
        .await
        .map_err(Refusal::kind_as_missing)?;
    let mut response = reply::empty(200);
    reply::set_stat(response.headers_mut(), &stat);
    reply::set_smb(response.headers_mut(), call, &stat, parent);
    reply::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    Ok(response)
}

pub(super) async fn ranges(context: Context<'_>) -> Result<Response, Refusal> {
    let asked = super::range::of_read(context.call)?;
    let (mut ranges, stat) = context
        .on_disk(|shares, place| place.open(shares)?.data_ranges(&place.path))
        .await
        .map_err(Refusal::kind_as_missing)?;
    if let Some(asked) = asked {
        let part = asked.within(stat.len).ok_or(Refusal::range_beyond(stat.len))?;
        ranges.retain(|(first, last)| *first < part.end && *last >= part.start);
        for (first, last) in &mut ranges {
            (*first, *last) = ((*first).max(part.start), (*last).min(part.end - 1));
        }
    }
    let mut response = reply::document(xml::ranges(&ranges));
    reply::set_stat(response.headers_mut(), &stat);
    reply::set(response.headers_mut(), "x-ms-content-length", &stat.len.to_string());
    Ok(response)
}

pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    context
        .on_disk(|shares, place| place.open(shares)?.delete_file(&place.path))
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
pub(super) fn set_file(headers: &mut HeaderMap, call: &Call, described: &Described) {
    let Described { stat, properties, parent } = described;
    reply::set_stat(headers, stat);
    reply::set_smb(headers, call, stat, *parent);
    reply::set(headers, "content-type", "application/octet-stream");
    about::set(headers, properties);
    reply::set(headers, "accept-ranges", "bytes");
    reply::set(headers, "x-ms-type", "File");
    reply::set(headers, "x-ms-server-encrypted", "true");
}

fn wanted_length(call: &Call) -> Result<Option<u64>, Refusal> {
    match call.number("x-ms-content-length")? {
        Some(len) if len > MAX_FILE => Err(Refusal::header("x-ms-content-length")),
        len => Ok(len),
    }
}
