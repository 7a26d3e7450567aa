//! Requests about whole shares: list, create, properties, statistics, snapshots, deletion. Their responses never have
//! `x-ms-file-*` headers.

use axum::response::Response;
use corro_model::warnings;
use corro_shares::{Properties, Removal, Share, ShareError, SharePath, Stat, TreeEntry};
use http::{HeaderValue, header};

use crate::auth::stored_policies;
use crate::context::OperationContext;
use crate::preconditions::lease::Lease;
use crate::preconditions::{Preconditions, lease_headers};
use crate::protocol::error::StorageError;
use crate::protocol::request::StorageRequest;
use crate::protocol::time_format::http_date_of;
use crate::protocol::xml::DECLARATION;
use crate::protocol::{metadata_headers, response};
use crate::shares::listing::{ListedShare, SharePage, select_page, shares_document};
use crate::shares::quota::{MAX_QUOTA_GIB, QUOTA, quota_gib};

/// Stored and returned; all shares are on the same disk.
const TIER: &str = "x-ms-access-tier";
const TIERS: [&str; 4] = ["TransactionOptimized", "Hot", "Cool", "Premium"];
const TIER_CHANGED: &str = "x-ms-access-tier-change-time";

pub(crate) async fn list(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let include = context.request.parameter("include").to_ascii_lowercase();
    let wants = |what| include.split(',').any(|word| word.trim() == what);
    let with_snapshots = wants("snapshots");
    let listed = context
        .on_disk(move |shares, location| {
            let mut listed = Vec::new();
            for share in shares.list_shares(&location.account)? {
                if with_snapshots {
                    for id in shares.list_snapshots(&location.account, &share.name)? {
                        // Deleted meanwhile: not listed.
                        let Ok(snapshot) = shares.snapshot(&location.account, &share.name, &id) else { continue };
                        let (stat, properties) = snapshot.describe(&SharePath::ROOT)?;
                        let Stat { modified, etag, .. } = stat;
                        let share = TreeEntry { name: share.name.clone(), modified, etag, properties };
                        listed.push(ListedShare { snapshot: Some(id), share });
                    }
                }
                listed.push(ListedShare { snapshot: None, share });
            }
            Ok(listed)
        })
        .await?;
    let SharePage { params, entries, next } = select_page(context.request, listed, |listed| &listed.share.name)?;
    let (now, leased) = ((context.state.now)(), lease_headers::reports_share_leases(context.request));
    let describe = |properties: &Properties| xml_properties(properties, leased.then_some(now));
    Ok(response::xml_document(shares_document(&params, &entries, describe, wants("metadata"), next.as_deref())))
}

/// Properties of a share in a listing, except ETag and time. The lease is included if `now` is given.
fn xml_properties(properties: &Properties, now: Option<i64>) -> String {
    let mut text = format!("<Quota>{}</Quota>", quota_gib(properties));
    if let Some(tier) = properties.get(TIER) {
        text.push_str(&format!("<AccessTier>{tier}</AccessTier>"));
    }
    if let Some(changed) = properties.get(TIER_CHANGED) {
        text.push_str(&format!("<AccessTierChangeTime>{changed}</AccessTierChangeTime>"));
    }
    if let Some(now) = now {
        let lease = Lease::load(properties, now);
        let (status, state) = (lease.status(), lease.state());
        text.push_str(&format!("<LeaseStatus>{status}</LeaseStatus><LeaseState>{state}</LeaseState>"));
        if let Some(duration) = lease.duration() {
            text.push_str(&format!("<LeaseDuration>{duration}</LeaseDuration>"));
        }
    }
    text
}

pub(crate) async fn create(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let properties = parse_properties(context.request, (context.state.now)())?;
    let stat = context
        .on_disk(move |shares, location| {
            let share = shares.create_share(&location.account, &location.share)?;
            store_properties(&share, properties)
        })
        .await?;
    let mut response = response::empty(201);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

/// Stores the properties of a share or container that was just created.
pub(crate) fn store_properties(share: &Share, properties: Properties) -> Result<Stat, ShareError> {
    match properties.is_empty() {
        true => share.stat(&SharePath::ROOT),
        false => share.change_properties(&SharePath::ROOT, |stored| *stored = properties),
    }
}

pub(crate) async fn properties(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let (stat, properties) =
        context.on_disk(|shares, location| location.open(shares)?.describe(&SharePath::ROOT)).await?;
    let now = (context.state.now)();
    Preconditions::parse(context.request, now)?.check_share(&properties, false)?;
    let mut response = response::empty(200);
    let headers = response.headers_mut();
    response::set_etag_and_modified(headers, &stat);
    metadata_headers::set_headers(headers, &properties);
    response::set_header(headers, QUOTA, &quota_gib(&properties).to_string());
    for name in [TIER, TIER_CHANGED] {
        if let Some(value) = properties.get(name) {
            response::set_header(headers, name, value);
        }
    }
    if lease_headers::reports_share_leases(context.request) {
        lease_headers::set_lease_headers(headers, &Lease::load(&properties, now));
        response::set_header(headers, "x-ms-enabled-protocols", "SMB");
    }
    Ok(response)
}

/// `comp=metadata` replaces the metadata; `comp=properties` sets quota and tier if given.
pub(crate) async fn set(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let now = (context.state.now)();
    let (requested, preconditions) =
        (parse_properties(context.request, now)?, Preconditions::parse(context.request, now)?);
    let metadata = metadata_headers::parse_metadata(context.request)?;
    let only_metadata = context.request.parameter("comp").eq_ignore_ascii_case("metadata");
    let stat = context
        .try_on_disk(move |shares, location| {
            let share = location.open(shares)?;
            preconditions.check_share(&share.describe(&SharePath::ROOT)?.1, false)?;
            Ok(share.change_properties(&SharePath::ROOT, |stored| {
                if only_metadata {
                    return metadata_headers::replace_metadata(stored, &metadata);
                }
                for name in [QUOTA, TIER, TIER_CHANGED] {
                    if let Some(value) = requested.get(name) {
                        assert!(stored.set(name, value), "it is a valid property");
                    }
                }
            })?)
        })
        .await?;
    let mut response = response::empty(200);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

pub(crate) async fn stats(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let (bytes, stat) = context
        .on_disk(|shares, location| {
            let share = location.open(shares)?;
            Ok((share.usage()?, share.stat(&SharePath::ROOT)?))
        })
        .await?;
    let mut response = response::xml_document(stats_document(bytes));
    response::set_etag_and_modified(response.headers_mut(), &stat);
    Ok(response)
}

/// The snapshot has the share's metadata unless the request has its own.
pub(crate) async fn snapshot(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let metadata = metadata_headers::parse_metadata(context.request)?;
    let now = (context.state.now)();
    let (id, stat) = context
        .on_disk(move |shares, location| {
            let (_, mut properties) = location.open(shares)?.describe(&SharePath::ROOT)?;
            stored_policies::clear(&mut properties);
            Lease::Available.store(&mut properties);
            if !metadata.is_empty() {
                metadata_headers::replace_metadata(&mut properties, &metadata);
            }
            let id = shares.create_snapshot(&location.account, &location.share, &properties, now)?;
            let stat = shares.snapshot(&location.account, &location.share, &id)?.stat(&SharePath::ROOT)?;
            Ok((id, stat))
        })
        .await?;
    let mut response = response::empty(201);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    response::set_header(response.headers_mut(), "x-ms-snapshot", id.as_str());
    Ok(response)
}

/// A share with snapshots is deleted only together with them, and only if the request asks for it.
pub(crate) async fn delete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let include = match context.request.header("x-ms-delete-snapshots") {
        None => false,
        Some(value) if value.eq_ignore_ascii_case("include") => true,
        // Snapshots cannot be leased here.
        Some(value) if value.eq_ignore_ascii_case("include-leased") => true,
        Some(_) => return Err(StorageError::invalid_header("x-ms-delete-snapshots")),
    };
    let preconditions = Preconditions::parse(context.request, (context.state.now)())?;
    let removed = context
        .try_on_disk(move |shares, location| {
            if let Some(id) = &location.snapshot {
                return Ok(Some(vec![shares.delete_snapshot(&location.account, &location.share, id)?]));
            }
            let share = shares.share(&location.account, &location.share)?;
            preconditions.check_share(&share.describe(&SharePath::ROOT)?.1, true)?;
            if !include && !shares.list_snapshots(&location.account, &location.share)?.is_empty() {
                return Ok(None);
            }
            let share = shares.delete_share(&location.account, &location.share)?;
            Ok(Some(vec![share, shares.delete_snapshots(&location.account, &location.share)?]))
        })
        .await?;
    let removed = removed.ok_or(StorageError::new("ShareHasSnapshots"))?;
    removed.into_iter().for_each(|removed| log_leftovers(&context, removed));
    let mut response = response::empty(202);
    if context.snapshot.is_none() {
        let in_use = context.state.keys.share_users(&context.request.account, &context.share);
        let warning = in_use.and_then(|text| HeaderValue::from_bytes(warnings::encode(&text).as_bytes()).ok());
        if let Some(warning) = warning {
            response.headers_mut().append(header::WARNING, warning);
        }
    }
    Ok(response)
}

/// Restore of a deleted share. Always fails, because deleted shares are not kept.
pub(crate) async fn undelete(context: OperationContext<'_>) -> Result<Response, StorageError> {
    context.request.header("x-ms-deleted-share-name").ok_or(StorageError::missing_header("x-ms-deleted-share-name"))?;
    Err(StorageError::new("ShareNotFound").with_message("Deleted shares cannot be restored on this server."))
}

/// Logs a tree that could not be removed completely. It is already renamed, so clients no longer see it.
pub(crate) fn log_leftovers(context: &OperationContext<'_>, removed: Removal) {
    if let Some(error) = removed.leftover {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(account = context.request.account, share = context.share, "{error}: {cause}");
    }
}

/// Metadata, quota and tier of the request. NFS settings are rejected.
fn parse_properties(request: &StorageRequest, now: i64) -> Result<Properties, StorageError> {
    let mut properties = metadata_headers::parse_metadata(request)?;
    if request.headers.contains_key(TIER) {
        let requested = request.header(TIER).map(str::trim);
        let tier = TIERS.iter().find(|tier| requested.is_some_and(|requested| requested.eq_ignore_ascii_case(tier)));
        assert!(properties.set(TIER, tier.ok_or(StorageError::invalid_header(TIER))?), "a word is a valid property");
        assert!(properties.set(TIER_CHANGED, &http_date_of(now)), "a date is a valid property");
    }
    if request.header("x-ms-enabled-protocols").is_some_and(|protocols| !protocols.trim().eq_ignore_ascii_case("smb")) {
        return Err(
            StorageError::invalid_header("x-ms-enabled-protocols").with_message("Shares are not served over NFS here.")
        );
    }
    if request.headers.contains_key("x-ms-root-squash") {
        return Err(StorageError::invalid_header("x-ms-root-squash")
            .with_message("Only shares served over NFS have a root squash."));
    }
    match request.number(QUOTA)? {
        None => {}
        Some(quota @ 1..=MAX_QUOTA_GIB) => {
            assert!(properties.set(QUOTA, &quota.to_string()), "a number is a valid property")
        }
        Some(_) => return Err(StorageError::invalid_header(QUOTA)),
    }
    Ok(properties)
}

/// Azure reports whole GiB; newer clients read bytes.
fn stats_document(bytes: u64) -> String {
    let gib = bytes.div_ceil(1 << 30);
    format!(
        "{DECLARATION}<ShareStats><ShareUsage>{gib}</ShareUsage><ShareUsageBytes>{bytes}</ShareUsageBytes></ShareStats>"
    )
}
