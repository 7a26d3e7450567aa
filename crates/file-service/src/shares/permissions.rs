//! Security descriptors (`comp=filepermission`), stored per share under a key that files refer to. They are returned as
//! they were set and not enforced: access is controlled by keys and SAS alone.

use axum::{body::Body, response::Response};
use corro_shares::{MAX_PERMISSION, Shares};
use http::{HeaderValue, header};
use sha2::{Digest, Sha256};

use crate::context::{Location, OperationContext};
use crate::limits::request_body;
use crate::protocol::error::StorageError;
use crate::protocol::response;
use crate::protocol::smb_properties::{DEFAULT_PERMISSION_KEY, PermissionSetting, SmbSettings};

/// Descriptor of files that were given none: full access for everyone who can use the share.
const DEFAULT_DESCRIPTOR: &str = "O:BAG:BAD:(A;OICI;FA;;;WD)";
const KEY: &str = "x-ms-file-permission-key";
/// Longer descriptors are sent as a body, and referred to by key.
const MAX_IN_HEADER: usize = 8 << 10;

pub(crate) async fn create(context: OperationContext<'_>, body: Body) -> Result<Response, StorageError> {
    let body = request_body::read_whole(context.request, body, MAX_PERMISSION as u64 * 2).await?;
    let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = parsed["permission"].as_str().filter(|text| is_descriptor(text, MAX_PERMISSION)).ok_or_else(|| {
        StorageError::new("InvalidInput").with_message(
            "The body is not {\"permission\": \"…\"} with a security descriptor in SDDL of 64 KiB at most.",
        )
    })?;
    let (key, text) = (descriptor_key(text), text.to_owned());
    let stored = key.clone();
    context
        .on_disk(move |shares, location| shares.store_permission(&location.account, &location.share, &stored, &text))
        .await?;
    let mut response = response::empty(201);
    response::set_header(response.headers_mut(), KEY, &key);
    Ok(response)
}

pub(crate) async fn get(context: OperationContext<'_>) -> Result<Response, StorageError> {
    let key = context.request.header(KEY).ok_or(StorageError::missing_header(KEY))?.trim().to_owned();
    let found = context.on_disk(move |shares, location| lookup(shares, location, &key)).await?;
    let text = found.ok_or_else(|| {
        StorageError::new("ResourceNotFound").with_message("The share has no permission with this key.")
    })?;
    let mut response = Response::new(Body::from(serde_json::json!({ "permission": text }).to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Stores a descriptor that a request sets on a file, or checks that the key it names exists.
pub(crate) fn resolve(smb: &mut SmbSettings, shares: &Shares, location: &Location) -> Result<(), StorageError> {
    match &smb.permission {
        PermissionSetting::Unset | PermissionSetting::Inherit => Ok(()),
        PermissionSetting::Key(key) if key == DEFAULT_PERMISSION_KEY => {
            smb.permission = PermissionSetting::Inherit;
            Ok(())
        }
        PermissionSetting::Key(key) => match lookup(shares, location, key)? {
            Some(_) => Ok(()),
            None => Err(StorageError::new("InvalidHeaderValue").with_message(
                "The share has no permission with the key in x-ms-file-permission-key. Create it first (comp=filepermission).",
            )),
        },
        PermissionSetting::Descriptor(text) => {
            if !is_descriptor(text, MAX_IN_HEADER) {
                return Err(StorageError::invalid_header("x-ms-file-permission"));
            }
            let key = descriptor_key(text);
            shares.store_permission(&location.account, &location.share, &key, text)?;
            smb.permission = PermissionSetting::Key(key);
            Ok(())
        }
    }
}

/// Copies a descriptor from another share.
pub(crate) fn copy_descriptor(
    shares: &Shares,
    from: (&str, &str),
    to: &Location,
    key: &str,
) -> Result<(), StorageError> {
    if let Some(text) = shares.permission(from.0, from.1, key)? {
        shares.store_permission(&to.account, &to.share, key, &text)?;
    }
    Ok(())
}

fn lookup(shares: &Shares, location: &Location, key: &str) -> Result<Option<String>, corro_shares::ShareError> {
    match key == DEFAULT_PERMISSION_KEY {
        true => Ok(Some(DEFAULT_DESCRIPTOR.to_owned())),
        false => shares.permission(&location.account, &location.share, key),
    }
}

/// Derived from the descriptor, so equal descriptors have the same key in every share.
fn descriptor_key(text: &str) -> String {
    let digest = Sha256::digest(text);
    let number = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{number}*1")
}

/// SDDL begins with an owner, a group or an access list.
fn is_descriptor(text: &str, max: usize) -> bool {
    let begins = ["O:", "G:", "D:", "S:"].iter().any(|start| text.starts_with(start));
    begins && text.len() <= max && !text.chars().any(char::is_control)
}
