//! Requests about directories.

use axum::response::Response;
use corro_shares::{Kind, PageRequest, Properties, Share, ShareError, SharePath, Stat};

use super::{Context, about, call::Call, permissions, refusal::Refusal, renames::flag, reply, smb::Smb, xml};

pub(super) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let mut properties = about::metadata(context.call)?;
    let mut smb = Smb::of(context.call, Kind::Directory)?;
    let (stat, properties, parent) = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            permissions::resolve(&mut smb, shares, place)?;
            let stat = share.create_dir(&place.path)?;
            smb.describe_new(&mut properties, &stat);
            if !properties.is_empty() {
                share.note_properties(&place.path, |kept, _| {
                    kept.clone_from(&properties);
                    Ok::<_, ShareError>(())
                })?;
            }
            Ok((stat, properties, parent_id(&share, &place.path)))
        })
        .await?;
    Ok(described(context.call, 201, (&stat, &properties), parent))
}

pub(super) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let found = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            share.stat_dir(&place.path)?;
            let (stat, properties) = share.describe(&place.path)?;
            Ok((stat, properties, parent_id(&share, &place.path)))
        })
        .await;
    let (stat, properties, parent) = found.map_err(Refusal::kind_as_missing)?;
    let mut response = described(context.call, 200, (&stat, &properties), parent);
    about::set(response.headers_mut(), &properties);
    reply::set(response.headers_mut(), "x-ms-server-encrypted", "true");
    Ok(response)
}

/// `comp=metadata` replaces the metadata, `comp=properties` what SMB knows of the directory.
pub(super) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = about::metadata(context.call)?;
    let only_metadata = context.call.parameter("comp").eq_ignore_ascii_case("metadata");
    let mut smb = if only_metadata { Smb::default() } else { Smb::of(context.call, Kind::Directory)? };
    let changed = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            share.stat_dir(&place.path)?;
            permissions::resolve(&mut smb, shares, place)?;
            share.change_properties_at(&place.path, |kept, before, at| {
                if only_metadata {
                    about::replace_metadata(kept, &metadata);
                }
                smb.change(kept, before, at);
            })?;
            let (stat, properties) = share.describe(&place.path)?;
            Ok((stat, properties, parent_id(&share, &place.path)))
        })
        .await;
    let (stat, properties, parent) = changed.map_err(Refusal::kind_as_missing)?;
    Ok(described(context.call, 200, (&stat, &properties), parent))
}

pub(super) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let limit = page_limit(call)?;
    let marker = call.parameter("marker");
    let (from, prefix) = xml::marked(marker);
    let prefix = prefix.unwrap_or_else(|| call.parameter("prefix").to_owned());
    let asked_prefix = prefix.clone();
    let details = xml::Details::of(call.parameter("include"), flag(call, "x-ms-file-extended-info")?);
    let described = details.is_kept_beside();
    let (page, stat) = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let request = PageRequest { prefix: &prefix, from: &from, limit: limit.effective, described };
            let page = share.list_page(&place.path, request)?;
            Ok((page, share.stat_dir(&place.path)?))
        })
        .await?;
    let asked = xml::Asked {
        endpoint: call.endpoint(),
        prefix: &asked_prefix,
        marker,
        limit: limit.asked,
        encodes: call.encodes_names(),
    };
    let place = xml::Directory { share: &context.share, path: context.path.as_str(), stat: &stat };
    let xml = xml::directory(&asked, place, &page, details);
    let mut response = reply::document(xml);
    reply::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(super) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    context.on_disk(|shares, place| place.open(shares)?.delete_dir(&place.path)).await?;
    Ok(reply::empty(202))
}

/// How many entries a listing may have: as asked, and as we do.
#[derive(Clone, Copy)]
pub(super) struct PageLimit {
    pub asked: Option<usize>,
    pub effective: usize,
}

/// The service's own limit and default.
const MAX_PAGE: usize = 5000;

pub(super) fn page_limit(call: &Call) -> Result<PageLimit, Refusal> {
    let text = call.parameter("maxresults");
    if text.is_empty() {
        return Ok(PageLimit { asked: None, effective: MAX_PAGE });
    }
    match text.parse::<usize>() {
        Ok(asked @ 1..) => Ok(PageLimit { asked: Some(asked), effective: asked.min(MAX_PAGE) }),
        _ => Err(Refusal::new("OutOfRangeQueryParameterValue")),
    }
}

/// The id of the directory that holds `path`; 0 for the root, as the service has it, and for one
/// that has just gone.
pub(super) fn parent_id(share: &Share, path: &SharePath) -> u64 {
    let parent = path.split().map(|(parent, _)| share.stat(&parent));
    parent.and_then(Result::<Stat, ShareError>::ok).map(|stat| stat.id).unwrap_or_default()
}

fn described(call: &Call, status: u16, about: (&Stat, &Properties), parent: u64) -> Response {
    let mut response = reply::empty(status);
    reply::set_stat(response.headers_mut(), about.0);
    reply::set_smb(response.headers_mut(), call, about, parent);
    reply::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}
