//! Renames files and directories within a share (`comp=rename`). The request URL is the new name; a header has the URL
//! of the source.

use axum::response::Response;
use corro_model::storage::sas;
use corro_shares::{Kind, Properties};

use crate::auth::Grant;
use crate::context::OperationContext;
use crate::files::copy_source::{self, Source};
use crate::files::file_headers::parent_id;
use crate::preconditions::Preconditions;
use crate::protocol::error::StorageError;
use crate::protocol::smb_properties::SmbSettings;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;

const SOURCE: &str = "x-ms-file-rename-source";

pub(crate) async fn rename(context: OperationContext<'_>, grant: &Grant, kind: Kind) -> Result<Response, StorageError> {
    let request = context.request;
    let source = copy_source::resolve(&context, grant, SOURCE, sas::Permission::Write).await?;
    let Source { account, target: from, snapshot, .. } = source;
    if (account.as_str(), from.share.as_str(), snapshot) != (request.account.as_str(), context.share.as_str(), None) {
        return Err(StorageError::invalid_header(SOURCE)
            .with_message("A file or directory can only be renamed within its share."));
    }
    let replace = request.flag("x-ms-file-rename-replace-if-exists")?;
    // Extension for mounts: rename like a local disk, without touching the properties.
    let plain = request.flag("x-corro-plain")?;
    let ignore_read_only = request.flag("x-ms-file-rename-ignore-readonly")?;
    if replace && !grant.may_replace() {
        return Err(StorageError::new("AuthorizationPermissionMismatch"));
    }
    let now = (context.state.now)();
    let parse_source_range =
        Preconditions::parse_with_lease_header(request, "x-ms-source-lease-id", now)?.without_conditions();
    let parse_source_range = parse_source_range.ignoring_read_only(ignore_read_only);
    let of_target = Preconditions::parse_with_lease_header(request, "x-ms-destination-lease-id", now)?
        .ignoring_read_only(ignore_read_only);
    let (metadata, content) =
        (metadata_headers::parse_metadata(request)?, metadata_headers::parse_properties(request)?);
    let mut smb = SmbSettings::parse(request, kind)?;
    let (stat, properties, parent) = context
        .try_on_disk(move |shares, location| {
            permissions::resolve(&mut smb, shares, location)?;
            let share = location.open(shares)?;
            if kind == Kind::File {
                share.lstat(&from.path)?;
                parse_source_range.check_entry(&share, &from.path)?;
                of_target.check_entry(&share, &location.path)?;
            }
            let moved = share.rename(&from.path, &location.path, kind, replace)?;
            // A symbolic link has no properties, and those of its target do not belong to this request.
            if plain || moved.kind == Kind::Link {
                return Ok((moved, Properties::default(), 0));
            }
            let stat = share.change_properties_with(&location.path, |stored, before, at| {
                if !metadata.is_empty() {
                    metadata_headers::replace_metadata(stored, &metadata);
                }
                if let Some(content_type) = content.get("content-type") {
                    let stored = stored.set("content-type", content_type);
                    debug_assert!(stored, "it is a valid property");
                }
                smb.apply_to_existing(stored, before, at);
            })?;
            let (_, properties) = share.describe(&location.path)?;
            Ok((stat, properties, parent_id(&share, &location.path)))
        })
        .await?;
    let mut response = response::empty(200);
    response::set_etag_and_modified(response.headers_mut(), &stat);
    response::set_smb_headers(response.headers_mut(), request, (&stat, &properties), parent);
    response::set_header(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    Ok(response)
}
