//! Renaming files and directories within a share (`comp=rename`). The request is for the new name; a header has the
//! URL of what is to be renamed.

use axum::response::Response;
use corro_model::storage::sas;
use corro_shares::{Kind, Properties};

use crate::auth::Access;
use crate::context::Context;
use crate::files::copy_source::{self, Source};
use crate::files::file_headers::parent_id;
use crate::preconditions::Guard;
use crate::protocol::error::Refusal;
use crate::protocol::smb_properties::Smb;
use crate::protocol::{metadata_headers, response};
use crate::shares::permissions;

const SOURCE: &str = "x-ms-file-rename-source";

pub(crate) async fn rename(context: Context<'_>, access: &Access, kind: Kind) -> Result<Response, Refusal> {
    let call = context.call;
    let source = copy_source::find(&context, access, SOURCE, sas::Permission::Write).await?;
    let Source { account, target: from, snapshot, .. } = source;
    if (account.as_str(), from.share.as_str(), snapshot) != (call.account.as_str(), context.share.as_str(), None) {
        return Err(Refusal::header(SOURCE).saying("A file or directory can only be renamed within its share."));
    }
    let replace = call.flag("x-ms-file-rename-replace-if-exists")?;
    // Ours: as a disk renames, which is no change of the thing.
    let plain = call.flag("x-corro-plain")?;
    let ignore_read_only = call.flag("x-ms-file-rename-ignore-readonly")?;
    if replace && !access.may_replace() {
        return Err(Refusal::new("AuthorizationPermissionMismatch"));
    }
    let now = (context.service.now)();
    let of_source = Guard::with_lease(call, "x-ms-source-lease-id", now)?.unconditional();
    let of_source = of_source.ignoring_read_only(ignore_read_only);
    let of_target = Guard::with_lease(call, "x-ms-destination-lease-id", now)?.ignoring_read_only(ignore_read_only);
    let (metadata, content) = (metadata_headers::metadata(call)?, metadata_headers::of(call)?);
    let mut smb = Smb::of(call, kind)?;
    let (stat, properties, parent) = context
        .decide_on_disk(move |shares, place| {
            permissions::resolve(&mut smb, shares, place)?;
            let share = place.open(shares)?;
            if kind == Kind::File {
                share.lstat(&from.path)?;
                of_source.check_entry(&share, &from.path)?;
                of_target.check_entry(&share, &place.path)?;
            }
            let moved = share.rename(&from.path, &place.path, kind, replace)?;
            // A link has no properties that could be set, and those of what it leads to are none of this request's.
            if plain || moved.kind == Kind::Link {
                return Ok((moved, Properties::default(), 0));
            }
            let stat = share.change_properties_at(&place.path, |kept, before, at| {
                if !metadata.is_empty() {
                    metadata_headers::replace_metadata(kept, &metadata);
                }
                if let Some(content_type) = content.get("content-type") {
                    let kept = kept.set("content-type", content_type);
                    debug_assert!(kept, "it was kept before");
                }
                smb.change(kept, before, at);
            })?;
            let (_, properties) = share.describe(&place.path)?;
            Ok((stat, properties, parent_id(&share, &place.path)))
        })
        .await?;
    let mut response = response::empty(200);
    response::set_stat(response.headers_mut(), &stat);
    response::set_smb(response.headers_mut(), call, (&stat, &properties), parent);
    response::set(response.headers_mut(), "x-ms-request-server-encrypted", "true");
    Ok(response)
}
