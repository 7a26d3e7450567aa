//! Requests about directories.

use axum::response::Response;
use corro_shares::{Kind, PageRequest, Properties, ShareError, Stat};

use crate::context::Context;
use crate::files::directory_listing::{self, Details, Directory};
use crate::files::file_headers::parent_id;
use crate::protocol::error::Refusal;
use crate::protocol::listing::{Asked, marked, page_limit};
use crate::protocol::request::Call;
use crate::protocol::smb_properties::Smb;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;

pub(crate) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let mut properties = metadata_headers::metadata(context.call)?;
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

pub(crate) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
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
    metadata_headers::set(response.headers_mut(), &properties);
    response::set(response.headers_mut(), "x-ms-server-encrypted", "true");
    Ok(response)
}

/// `comp=metadata` replaces the metadata, `comp=properties` what SMB knows of the directory.
pub(crate) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = metadata_headers::metadata(context.call)?;
    let only_metadata = context.call.parameter("comp").eq_ignore_ascii_case("metadata");
    let mut smb = if only_metadata { Smb::default() } else { Smb::of(context.call, Kind::Directory)? };
    let changed = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            share.stat_dir(&place.path)?;
            permissions::resolve(&mut smb, shares, place)?;
            share.change_properties_at(&place.path, |kept, before, at| {
                if only_metadata {
                    metadata_headers::replace_metadata(kept, &metadata);
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

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let call = context.call;
    let limit = page_limit(call)?;
    let marker = call.parameter("marker");
    let (from, prefix) = marked(marker);
    let prefix = prefix.unwrap_or_else(|| call.parameter("prefix").to_owned());
    let asked_prefix = prefix.clone();
    let details = Details::of(call.parameter("include"), call.flag("x-ms-file-extended-info")?);
    let described = details.is_kept_beside();
    let (page, stat) = context
        .on_disk(move |shares, place| {
            let share = place.open(shares)?;
            let request = PageRequest { prefix: &prefix, from: &from, limit: limit.effective, described };
            let page = share.list_page(&place.path, request)?;
            Ok((page, share.stat_dir(&place.path)?))
        })
        .await?;
    let asked = Asked {
        endpoint: call.endpoint(),
        prefix: &asked_prefix,
        marker,
        limit: limit.asked,
        encodes: call.encodes_names(),
    };
    let place = Directory { share: &context.share, path: context.path.as_str(), stat: &stat };
    let xml = directory_listing::document(&asked, place, &page, details);
    let mut response = response::document(xml);
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    context.on_disk(|shares, place| place.open(shares)?.delete_dir(&place.path)).await?;
    Ok(response::empty(202))
}

fn described(call: &Call, status: u16, about: (&Stat, &Properties), parent: u64) -> Response {
    let mut response = response::empty(status);
    response::set_stat(response.headers_mut(), about.0);
    response::set_smb(response.headers_mut(), call, about, parent);
    response::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    response
}
