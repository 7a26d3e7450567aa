//! What the storage commands print: the objects of the retired SDK, made from what the file service told. Entered by
//! the share, directory and file commands.

use corro_client::files::{ContentSettings, Copy, Download, Entry, FileProperties, Properties, Share, ShareProperties};
use serde_json::{Value, json};

use crate::output::Shape;

pub fn share(share: &Share) -> Value {
    share_with(&share.name, share.snapshot.as_deref(), &share.about)
}

pub fn share_with(name: &str, snapshot: Option<&str>, about: &ShareProperties) -> Value {
    let ShareProperties { properties, quota_gib } = about;
    Shape::Share.apply(&json!({"name": name, "snapshot": snapshot, "metadata": properties.metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "quota": quota_gib
    }}))
}

/// One share or directory was asked for with an answer without a body, of which the retired SDK tells the length.
fn with_length_of_nothing(mut shown: Value) -> Value {
    shown["properties"]["contentLength"] = json!(0);
    shown
}

/// The share object that `az` prints when it is asked for one.
pub fn shown_share(name: &str, snapshot: Option<&str>, about: &ShareProperties) -> Value {
    with_length_of_nothing(share_with(name, snapshot, about))
}

pub fn directory(path: &str, properties: &Properties) -> Value {
    let shown = Shape::ShareDirectory.apply(&json!({"name": path, "metadata": properties.metadata, "properties": {
        "etag": properties.etag, "lastModified": properties.last_modified, "serverEncrypted": true
    }}));
    with_length_of_nothing(without(shown, "type"))
}

/// Its content was not asked for, which the retired SDK shows as an empty one.
pub fn file(path: &str, about: &FileProperties) -> Value {
    let mut shown = without(Shape::ShareFile.apply(&file_object(path, about, None)), "type");
    shown["content"] = json!("");
    shown
}

/// The file object that `az` prints after a download, which tells of a digest only if the file has one.
pub fn downloaded(path: &str, download: &Download) -> Value {
    let object = file_object(path, &download.properties, download.content_range.as_deref());
    let mut shown = without(Shape::ShareFile.apply(&object), "type");
    if let Some(settings) = shown["properties"]["contentSettings"].as_object_mut() {
        settings.retain(|name, value| name != "contentMd5" || !value.is_null());
    }
    shown
}

/// A line of a listing, which tells directories from files by `type` and has no content.
pub fn entry(entry: &Entry) -> Value {
    match entry {
        Entry::Directory { name } => {
            Shape::ShareDirectory.apply(&json!({"name": name, "properties": {}, "type": "dir"}))
        }
        Entry::File { name, length } => {
            let shown = Shape::ShareFile.apply(&json!({"name": name, "type": "file",
                "properties": {"contentLength": length, "contentSettings": {}, "copy": {}}}));
            without(shown, "content")
        }
        // `az` knows no links: a file, with one more property.
        Entry::Link { name, length, link } => {
            let mut shown = self::entry(&Entry::File { name: name.clone(), length: *length });
            shown["linkText"] = json!(link.text);
            shown
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

fn without(mut shown: Value, key: &str) -> Value {
    if let Some(object) = shown.as_object_mut() {
        object.remove(key);
    }
    shown
}
