//! Output objects of the blob and container commands, as in the Azure SDK.

use corro_client::files::{Blob, BlobEntry, Container, ContentSettings, Download, FileProperties};
use serde_json::{Value, json};

use crate::commands::storage::file_objects::{content_object, copy};
use crate::output::Shape;

/// One container. The Azure SDK adds the content length of the response, which is 0.
pub fn container(container: &Container) -> Value {
    let Container { name, properties, lease_status, lease_state } = container;
    let mut shown = Shape::Container.apply(&json!({"name": name, "metadata": properties.metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "publicAccess": null,
        "hasImmutabilityPolicy": false, "hasLegalHold": false,
        "lease": {"duration": null, "state": lease_state, "status": lease_status}
    }}));
    shown["properties"]["contentLength"] = json!(0);
    shown
}

/// A container of a listing, where the lease is in other fields and flags are strings.
pub fn listed_container(container: &Container, with_metadata: bool) -> Value {
    let Container { name, properties, lease_status, lease_state } = container;
    let metadata = with_metadata.then(|| json!(properties.metadata));
    let mut shown = Shape::Container.apply(&json!({"name": name, "metadata": metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "publicAccess": null,
        "hasImmutabilityPolicy": "false", "hasLegalHold": "false",
        "lease": {"duration": null, "state": null, "status": null}
    }}));
    shown["properties"]["leaseDuration"] = Value::Null;
    shown["properties"]["leaseState"] = json!(lease_state);
    shown["properties"]["leaseStatus"] = json!(lease_status);
    shown
}

pub fn blob(name: &str, about: &FileProperties) -> Value {
    let mut shown = Shape::Blob.apply(&blob_object(name, about, None));
    // The Azure SDK shows content that was not downloaded as empty.
    shown["content"] = json!("");
    shown["properties"]["pageRanges"] = Value::Null;
    shown
}

/// The blob object that `az` prints after a download. It has a digest only if the blob has one.
pub fn downloaded(name: &str, download: &Download) -> Value {
    let object = blob_object(name, &download.properties, download.content_range.as_deref());
    let mut shown = Shape::Blob.apply(&object);
    if let Some(settings) = shown["properties"]["contentSettings"].as_object_mut() {
        settings.retain(|name, value| name != "contentMd5" || !value.is_null());
    }
    shown
}

/// The object that `az` prints after an upload.
pub fn uploaded(about: &FileProperties) -> Value {
    let shown = Shape::Blob.apply(&blob_object("", about, None));
    json!({"etag": shown["properties"]["etag"], "lastModified": shown["properties"]["lastModified"]})
}

pub fn entry(entry: &BlobEntry, with_metadata: bool) -> Value {
    let blob = match entry {
        BlobEntry::Prefix(name) => return json!({ "name": name }),
        BlobEntry::Blob(blob) => blob,
    };
    let Blob { name, properties, length, content, created, .. } = &**blob;
    let metadata = with_metadata.then(|| json!(properties.metadata));
    Shape::Blob.apply(&json!({"name": name, "metadata": metadata, "deleted": false, "properties": {
        "blobTierInferred": false, "etag": properties.etag, "lastModified": properties.last_modified, "contentLength": length,
        "contentSettings": content_object(content), "creationTime": created, "blobType": "BlockBlob",
        "lease": {"duration": null, "state": "available", "status": "unlocked"}, "copy": {}, "serverEncrypted": true
    }}))
}

fn blob_object(name: &str, about: &FileProperties, content_range: Option<&str>) -> Value {
    let FileProperties { properties, length, content, copy: copied, server_encrypted, created } = about;
    let content: &ContentSettings = content;
    json!({"name": name, "metadata": properties.metadata, "deleted": false, "properties": {
        "blobTierInferred": false, "contentLength": length, "contentRange": content_range, "etag": properties.etag,
        "lastModified": properties.last_modified, "contentSettings": content_object(content),
        "copy": copy(copied), "serverEncrypted": server_encrypted, "creationTime": created, "blobType": "BlockBlob",
        "lease": {"duration": null, "state": "available", "status": "unlocked"}
    }})
}
