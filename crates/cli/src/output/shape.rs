//! Converts a response into the object that `az` prints. The attribute trees of the retired SDK are in [`attributes`]. Never fails: an attribute of an
//! unexpected type is passed through, so responses of newer servers stay readable.

mod attributes;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use attributes::UnknownField;
use attributes::{SHAPES, convert, find_unknown};

/// Resources that commands print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Workspace,
    Experiment,
    Cluster,
    Job,
    JobFile,
    RemoteLogin,
    FileServer,
    Usage,
    ResourceGroup,
    StorageAccount,
    StorageAccountKey,
    Share,
    ShareDirectory,
    ShareFile,
    Container,
    Blob,
}

impl Shape {
    /// The object that `az` prints for `wire`, or a list of them if `wire` is an array.
    pub fn apply(self, wire: &Value) -> Value {
        let shape = &SHAPES[self.name()];
        let mut printed = match wire {
            Value::Array(items) => items.iter().map(|item| convert(shape, item)).collect(),
            one => convert(shape, one),
        };
        add_resource_group(&mut printed);
        printed
    }

    /// Fields of `wire` that this resource does not have.
    pub fn unknown_fields(self, wire: &Value) -> Vec<UnknownField> {
        let mut unknown = Vec::new();
        find_unknown(&SHAPES[self.name()], wire, "", &mut unknown);
        unknown
    }

    const fn name(self) -> &'static str {
        match self {
            Shape::Workspace => "workspace",
            Shape::Experiment => "experiment",
            Shape::Cluster => "cluster",
            Shape::Job => "job",
            Shape::JobFile => "file",
            Shape::RemoteLogin => "remoteLoginInformation",
            Shape::FileServer => "fileServer",
            Shape::Usage => "usage",
            Shape::ResourceGroup => "resourceGroup",
            Shape::StorageAccount => "storageAccount",
            Shape::StorageAccountKey => "storageAccountKey",
            Shape::Share => "storageShare",
            Shape::ShareDirectory => "storageDirectory",
            Shape::ShareFile => "storageFile",
            Shape::Container => "storageContainer",
            Shape::Blob => "storageBlob",
        }
    }
}

/// Adds `resourceGroup` wherever `id` names a resource inside a group. A resource group's own id is shorter and so gets
/// none; the vault of a secret reference is skipped, as `az` does.
fn add_resource_group(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(add_resource_group),
        Value::Object(object) => {
            let group = object.get("id").and_then(Value::as_str).and_then(group_in_id).map(str::to_owned);
            if let Some(group) = group {
                object.entry("resourceGroup").or_insert(Value::String(group));
            }
            object.iter_mut().filter(|(key, _)| *key != "sourceVault").for_each(|(_, item)| add_resource_group(item));
        }
        _ => {}
    }
}

fn group_in_id(id: &str) -> Option<&str> {
    let parts: Vec<&str> = id.split('/').collect();
    (parts.len() > 8 && parts[3].eq_ignore_ascii_case("resourceGroups")).then(|| parts[4])
}
