//! Requests about whole shares. Their answers never carry `x-ms-file-*` headers.

use axum::response::Response;
use corro_model::warnings;
use corro_shares::{Properties, Removed, Share, ShareError, SharePath, Stat, TreeEntry};
use http::{HeaderValue, header};

use crate::auth::stored_policies;
use crate::context::Context;
use crate::preconditions::lease::Lease;
use crate::preconditions::{Guard, lease_headers};
use crate::protocol::error::Refusal;
use crate::protocol::request::Call;
use crate::protocol::time_format::http_date_of;
use crate::protocol::xml::DECLARATION;
use crate::protocol::{metadata_headers, response};
use crate::shares::listing::{Listed, TreePage, page, shares_document};
use crate::shares::quota::{MAX_QUOTA_GIB, QUOTA, quota_of};

/// Kept and told; all shares lie on the same disk.
const TIER: &str = "x-ms-access-tier";
const TIERS: [&str; 4] = ["TransactionOptimized", "Hot", "Cool", "Premium"];
const TIER_CHANGED: &str = "x-ms-access-tier-change-time";

pub(crate) async fn list(context: Context<'_>) -> Result<Response, Refusal> {
    let include = context.call.parameter("include").to_ascii_lowercase();
    let wants = |what| include.split(',').any(|word| word.trim() == what);
    let with_snapshots = wants("snapshots");
    let listed = context
        .on_disk(move |shares, place| {
            let mut listed = Vec::new();
            for share in shares.list_shares(&place.account)? {
                if with_snapshots {
                    for id in shares.list_snapshots(&place.account, &share.name)? {
                        // Deleted since: not listed.
                        let Ok(snapshot) = shares.snapshot(&place.account, &share.name, &id) else { continue };
                        let (stat, properties) = snapshot.describe(&SharePath::ROOT)?;
                        let Stat { modified, etag, .. } = stat;
                        let share = TreeEntry { name: share.name.clone(), modified, etag, properties };
                        listed.push(Listed { snapshot: Some(id), share });
                    }
                }
                listed.push(Listed { snapshot: None, share });
            }
            Ok(listed)
        })
        .await?;
    let TreePage { asked, trees, next } = page(context.call, listed, |listed| &listed.share.name)?;
    let (now, leased) = ((context.service.now)(), lease_headers::are_told_of_shares(context.call));
    let describe = |properties: &Properties| xml_properties(properties, leased.then_some(now));
    Ok(response::document(shares_document(&asked, &trees, describe, wants("metadata"), next.as_deref())))
}

/// What a listing says of a share besides its time and ETag; of its lease only if there is a time to look at it.
fn xml_properties(properties: &Properties, now: Option<i64>) -> String {
    let mut text = format!("<Quota>{}</Quota>", quota_of(properties));
    if let Some(tier) = properties.get(TIER) {
        text.push_str(&format!("<AccessTier>{tier}</AccessTier>"));
    }
    if let Some(changed) = properties.get(TIER_CHANGED) {
        text.push_str(&format!("<AccessTierChangeTime>{changed}</AccessTierChangeTime>"));
    }
    if let Some(now) = now {
        let lease = Lease::of(properties, now);
        let (status, state) = (lease.status(), lease.state());
        text.push_str(&format!("<LeaseStatus>{status}</LeaseStatus><LeaseState>{state}</LeaseState>"));
        if let Some(duration) = lease.duration() {
            text.push_str(&format!("<LeaseDuration>{duration}</LeaseDuration>"));
        }
    }
    text
}

pub(crate) async fn create(context: Context<'_>) -> Result<Response, Refusal> {
    let properties = properties_in(context.call, (context.service.now)())?;
    let stat = context
        .on_disk(move |shares, place| {
            let share = shares.create_share(&place.account, &place.share)?;
            describe_new(&share, properties)
        })
        .await?;
    let mut response = response::empty(201);
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

/// Keeps what was said about a tree that was just made.
pub(crate) fn describe_new(share: &Share, properties: Properties) -> Result<Stat, ShareError> {
    match properties.is_empty() {
        true => share.stat(&SharePath::ROOT),
        false => share.change_properties(&SharePath::ROOT, |kept| *kept = properties),
    }
}

pub(crate) async fn properties(context: Context<'_>) -> Result<Response, Refusal> {
    let (stat, properties) = context.on_disk(|shares, place| place.open(shares)?.describe(&SharePath::ROOT)).await?;
    let now = (context.service.now)();
    Guard::of(context.call, now)?.check_share(&properties, false)?;
    let mut response = response::empty(200);
    let headers = response.headers_mut();
    response::set_stat(headers, &stat);
    metadata_headers::set(headers, &properties);
    response::set(headers, QUOTA, &quota_of(&properties).to_string());
    for name in [TIER, TIER_CHANGED] {
        if let Some(value) = properties.get(name) {
            response::set(headers, name, value);
        }
    }
    if lease_headers::are_told_of_shares(context.call) {
        lease_headers::describe(headers, &Lease::of(&properties, now));
        response::set(headers, "x-ms-enabled-protocols", "SMB");
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata, `comp=properties` quota and tier as far as it says them.
pub(crate) async fn set(context: Context<'_>) -> Result<Response, Refusal> {
    let now = (context.service.now)();
    let (said, guard) = (properties_in(context.call, now)?, Guard::of(context.call, now)?);
    let metadata = metadata_headers::metadata(context.call)?;
    let only_metadata = context.call.parameter("comp").eq_ignore_ascii_case("metadata");
    let stat = context
        .decide_on_disk(move |shares, place| {
            let share = place.open(shares)?;
            guard.check_share(&share.describe(&SharePath::ROOT)?.1, false)?;
            Ok(share.change_properties(&SharePath::ROOT, |kept| {
                if only_metadata {
                    return metadata_headers::replace_metadata(kept, &metadata);
                }
                for name in [QUOTA, TIER, TIER_CHANGED] {
                    if let Some(value) = said.get(name) {
                        assert!(kept.set(name, value), "it was kept before");
                    }
                }
            })?)
        })
        .await?;
    let mut response = response::empty(200);
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn stats(context: Context<'_>) -> Result<Response, Refusal> {
    let (bytes, stat) = context
        .on_disk(|shares, place| {
            let share = place.open(shares)?;
            Ok((share.usage()?, share.stat(&SharePath::ROOT)?))
        })
        .await?;
    let mut response = response::document(stats_document(bytes));
    response::set_stat(response.headers_mut(), &stat);
    Ok(response)
}

/// A snapshot has the share's metadata, or what the request says instead.
pub(crate) async fn snapshot(context: Context<'_>) -> Result<Response, Refusal> {
    let metadata = metadata_headers::metadata(context.call)?;
    let now = (context.service.now)();
    let (id, stat) = context
        .on_disk(move |shares, place| {
            let (_, mut properties) = place.open(shares)?.describe(&SharePath::ROOT)?;
            stored_policies::forget(&mut properties);
            Lease::Available.keep(&mut properties);
            if !metadata.is_empty() {
                metadata_headers::replace_metadata(&mut properties, &metadata);
            }
            let id = shares.create_snapshot(&place.account, &place.share, &properties, now)?;
            let stat = shares.snapshot(&place.account, &place.share, &id)?.stat(&SharePath::ROOT)?;
            Ok((id, stat))
        })
        .await?;
    let mut response = response::empty(201);
    response::set_stat(response.headers_mut(), &stat);
    response::set(response.headers_mut(), "x-ms-snapshot", id.as_str());
    Ok(response)
}

/// A share with snapshots goes only together with them, and only when the request says so.
pub(crate) async fn delete(context: Context<'_>) -> Result<Response, Refusal> {
    let include = match context.call.header("x-ms-delete-snapshots") {
        None => false,
        Some(value) if value.eq_ignore_ascii_case("include") => true,
        // Snapshots cannot be leased here.
        Some(value) if value.eq_ignore_ascii_case("include-leased") => true,
        Some(_) => return Err(Refusal::header("x-ms-delete-snapshots")),
    };
    let guard = Guard::of(context.call, (context.service.now)())?;
    let removed = context
        .decide_on_disk(move |shares, place| {
            if let Some(id) = &place.snapshot {
                return Ok(Some(vec![shares.delete_snapshot(&place.account, &place.share, id)?]));
            }
            let share = shares.share(&place.account, &place.share)?;
            guard.check_share(&share.describe(&SharePath::ROOT)?.1, true)?;
            if !include && !shares.list_snapshots(&place.account, &place.share)?.is_empty() {
                return Ok(None);
            }
            let share = shares.delete_share(&place.account, &place.share)?;
            Ok(Some(vec![share, shares.delete_snapshots(&place.account, &place.share)?]))
        })
        .await?;
    let removed = removed.ok_or(Refusal::new("ShareHasSnapshots"))?;
    removed.into_iter().for_each(|removed| report(&context, removed));
    let mut response = response::empty(202);
    if context.snapshot.is_none() {
        let in_use = context.service.keys.share_users(&context.call.account, &context.share);
        let warning = in_use.and_then(|text| HeaderValue::from_bytes(warnings::encode(&text).as_bytes()).ok());
        if let Some(warning) = warning {
            response.headers_mut().append(header::WARNING, warning);
        }
    }
    Ok(response)
}

/// Brings a deleted share back, which nobody can: they are not kept.
pub(crate) async fn undelete(context: Context<'_>) -> Result<Response, Refusal> {
    context.call.header("x-ms-deleted-share-name").ok_or(Refusal::missing_header("x-ms-deleted-share-name"))?;
    Err(Refusal::new("ShareNotFound").saying("There is no such deleted share: shares are gone when they are deleted."))
}

/// A tree is gone for its users as soon as it is renamed; that its bytes are not is the operator's to know.
pub(crate) fn report(context: &Context<'_>, removed: Removed) {
    if let Some(error) = removed.left_behind {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(account = context.call.account, share = context.share, "{error}: {cause}");
    }
}

/// Metadata, quota and tier, as the request says them. What only NFS has is refused.
fn properties_in(call: &Call, now: i64) -> Result<Properties, Refusal> {
    let mut properties = metadata_headers::metadata(call)?;
    if call.headers.contains_key(TIER) {
        let said = call.header(TIER).map(str::trim);
        let tier = TIERS.iter().find(|tier| said.is_some_and(|said| said.eq_ignore_ascii_case(tier)));
        assert!(properties.set(TIER, tier.ok_or(Refusal::header(TIER))?), "a word can be kept");
        assert!(properties.set(TIER_CHANGED, &http_date_of(now)), "a date can be kept");
    }
    if call.header("x-ms-enabled-protocols").is_some_and(|protocols| !protocols.trim().eq_ignore_ascii_case("smb")) {
        return Err(Refusal::header("x-ms-enabled-protocols").saying("Shares are not served over NFS here."));
    }
    if call.headers.contains_key("x-ms-root-squash") {
        return Err(Refusal::header("x-ms-root-squash").saying("Only shares served over NFS have a root squash."));
    }
    match call.number(QUOTA)? {
        None => {}
        Some(quota @ 1..=MAX_QUOTA_GIB) => assert!(properties.set(QUOTA, &quota.to_string()), "a number can be kept"),
        Some(_) => return Err(Refusal::header(QUOTA)),
    }
    Ok(properties)
}

/// The service counts whole GiB; newer clients read bytes.
fn stats_document(bytes: u64) -> String {
    let gib = bytes.div_ceil(1 << 30);
    format!(
        "{DECLARATION}<ShareStats><ShareUsage>{gib}</ShareUsage><ShareUsageBytes>{bytes}</ShareUsageBytes></ShareStats>"
    )
}
