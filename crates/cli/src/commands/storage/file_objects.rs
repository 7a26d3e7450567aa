//! Output objects of the share, directory and file commands, as in the Azure SDK.

use corro_client::files::{ContentSettings, Copy, Download, Entry, FileProperties, Properties, Share, ShareProperties};
use serde_json::{Value, json};

use crate::output::Shape;

pub fn share(share: &Share) -> Value {
    share_object(&share.name, share.snapshot.as_deref(), &share.about)
}

pub fn share_object(name: &str, snapshot: Option<&str>, about: &ShareProperties) -> Value {
    let ShareProperties { properties, quota_gib } = about;
    Shape::Share.apply(&json!({"name": name, "snapshot": snapshot, "metadata": properties.metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "quota": quota_gib
    }}))
}

/// Adds the content length of the response to a share or directory, as the Azure SDK does; it is 0.
fn with_zero_length(mut object: Value) -> Value {
    object["properties"]["contentLength"] = json!(0);
    object
}

/// The share object that `az share show` prints.
pub fn share_show(name: &str, snapshot: Option<&str>, about: &ShareProperties) -> Value {
    with_zero_length(share_object(name, snapshot, about))
}

pub fn directory(path: &str, properties: &Properties) -> Value {
    let object = Shape::ShareDirectory.apply(&json!({"name": path, "metadata": properties.metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "serverEncrypted": true
    }}));
    with_zero_length(without(object, "type"))
}

/// A file without its content, which the Azure SDK shows as empty.
pub fn file(path: &str, about: &FileProperties) -> Value {
    let mut object = without(Shape::ShareFile.apply(&file_object(path, about, None)), "type");
    object["content"] = json!("");
    object
}

/// The file object that `az` prints after a download. It has a digest only if the file has one.
pub fn downloaded(path: &str, download: &Download) -> Value {
    let object = file_object(path, &download.properties, download.content_range.as_deref());
    let mut object = without(Shape::ShareFile.apply(&object), "type");
    if let Some(settings) = object["properties"]["contentSettings"].as_object_mut() {
        settings.retain(|name, value| name != "contentMd5" || !value.is_null());
    }
    object
}

/// An entry of a listing, without content; `type` tells directories from files.
pub fn entry(entry: &Entry) -> Value {
    match entry {
        Entry::Directory { name } => {
            Shape::ShareDirectory.apply(&json!({"name": name, "properties": {}, "type": "dir"}))
        }
        Entry::File { name, length } => {
            let object = Shape::ShareFile.apply(&json!({"name": name, "type": "file",
                "properties": {"contentLength": length, "contentSettings": {}, "copy": {}}}));
            without(object, "content")
        }
        // `az` has no symbolic links: printed as a file with one more property.
        Entry::Link { name, length, link } => {
            let mut object = self::entry(&Entry::File { name: name.clone(), length: *length });
            object["linkText"] = json!(link.text);
            object
        }
    }
}

pub fn copy(copy: &Copy) -> Value {
    json!({"completionTime": copy.completed, "id": copy.id, "progress": copy.progress, "source": copy.source,
           "status": copy.status, "statusDescription": copy.description})
}

fn file_object(path: &str, about: &FileProperties, content_range: Option<&str>) -> Value {
    let FileProperties { properties, length, content, copy: copied, server_encrypted, .. } = about;
    json!({"name": path.trim_end_matches('/').rsplit('/').next(), "metadata": properties.metadata, "properties": {
        "contentLength": length, "contentRange": content_range, "etag": properties.etag,
        "lastModified": properties.last_modified, "contentSettings": content_object(content),
        "copy": copy(copied), "serverEncrypted": server_encrypted
    }})
}

pub fn content_object(content: &ContentSettings) -> Value {
    json!({"cacheControl": content.cache_control, "contentDisposition": content.disposition,
           "contentEncoding": content.encoding, "contentLanguage": content.language, "contentMd5": content.md5,
           "contentType": content.content_type})
}

fn without(mut object: Value, key: &str) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove(key);
    }
    object
}
