//! Stored access policies of a share or container, named by the `si` parameter of a SAS. At most five, kept among the
//! properties. Removing or changing a policy revokes or changes each SAS that names it. Pure.

use std::fmt::Write;

use corro_model::storage::{
    query_pairs,
    sas::{Policy, is_time},
};
use corro_shares::Properties;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::protocol::error::StorageError;
use crate::protocol::xml;

const MAX_POLICIES: usize = 5;
/// Azure's limit.
const MAX_ID_CHARS: usize = 64;

pub(crate) type Policies = Vec<(String, Policy)>;

/// Policy with that identifier.
pub(crate) fn find(properties: &Properties, id: &str) -> Option<Policy> {
    load(properties).into_iter().find(|(name, _)| name == id).map(|(_, policy)| policy)
}

/// Removes all policies. Snapshots have none: a SAS for a snapshot names a policy of the share.
pub(crate) fn clear(properties: &mut Properties) {
    properties.retain(|name| !name.starts_with(PROPERTY_PREFIX));
}

/// The policies are stored as `acl-1` to `acl-5`, each in the format of a query string.
const PROPERTY_PREFIX: &str = "acl-";

pub(crate) fn store(properties: &mut Properties, policies: &Policies) {
    clear(properties);
    for (number, (id, policy)) in policies.iter().enumerate() {
        let fields = [("id", id), ("st", &policy.start), ("se", &policy.expiry), ("sp", &policy.permissions)];
        let given = fields.iter().filter(|(_, value)| !value.is_empty());
        let text = given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        let stored = properties.set(&format!("{PROPERTY_PREFIX}{}", number + 1), &text.collect::<Vec<_>>().join("&"));
        debug_assert!(stored, "encoded text is printable");
    }
}

pub(crate) fn load(properties: &Properties) -> Policies {
    let stored = properties.iter().filter(|(name, _)| name.starts_with(PROPERTY_PREFIX));
    stored
        .map(|(_, text)| {
            let (mut id, mut policy) = (String::new(), Policy::default());
            for (name, value) in query_pairs(text) {
                let value = value.into_owned();
                match &*name {
                    "id" => id = value,
                    "st" => policy.start = value,
                    "se" => policy.expiry = value,
                    "sp" => policy.permissions = value,
                    _ => {}
                }
            }
            (id, policy)
        })
        .filter(|(id, _)| !id.is_empty())
        .collect()
}

pub(crate) fn document(policies: &Policies) -> String {
    let mut text = format!("{}<SignedIdentifiers>", xml::DECLARATION);
    for (id, policy) in policies {
        let _ = write!(text, "<SignedIdentifier><Id>{}</Id><AccessPolicy>", xml::escape(id));
        let fields = [("Start", &policy.start), ("Expiry", &policy.expiry), ("Permission", &policy.permissions)];
        for (element, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = write!(text, "<{element}>{}</{element}>", xml::escape(value));
        }
        text.push_str("</AccessPolicy></SignedIdentifier>");
    }
    text.push_str("</SignedIdentifiers>");
    text
}

/// Parses the body of a `comp=acl` request. An empty body means no policies.
pub(crate) fn parse(body: &[u8]) -> Result<Policies, StorageError> {
    if body.is_empty() {
        return Ok(Policies::new());
    }
    let root = std::str::from_utf8(body).ok().and_then(corro_model::xml::parse_small);
    let root = root.filter(|root| root.name == "SignedIdentifiers").ok_or(StorageError::new("InvalidXmlDocument"))?;
    let mut policies = Policies::new();
    for element in &root.children {
        if element.name != "SignedIdentifier" {
            return Err(StorageError::new("UnsupportedXmlNode")
                .with_message(format!("The element {} is not allowed in SignedIdentifiers.", element.name)));
        }
        let id = element.child_text("Id").to_owned();
        let field =
            |name: &str| element.child("AccessPolicy").map(|policy| policy.child_text(name)).unwrap_or_default();
        let policy = Policy {
            start: field("Start").to_owned(),
            expiry: field("Expiry").to_owned(),
            permissions: field("Permission").to_owned(),
        };
        check(&id, &policy, &policies)?;
        policies.push((id, policy));
    }
    match policies.len() > MAX_POLICIES {
        true => {
            Err(StorageError::new("InvalidXmlDocument")
                .with_message("A share can have at most 5 stored access policies."))
        }
        false => Ok(policies),
    }
}

fn check(id: &str, policy: &Policy, others: &Policies) -> Result<(), StorageError> {
    let wrong = |what: String| Err(StorageError::new("InvalidXmlNodeValue").with_message(what));
    if id.is_empty() || id.chars().count() > MAX_ID_CHARS || id.chars().any(char::is_control) {
        return wrong("The Id of an access policy has 1 to 64 characters.".to_owned());
    }
    if others.iter().any(|(other, _)| other == id) {
        return wrong(format!("Two access policies have the Id '{id}'."));
    }
    for (element, time) in [("Start", &policy.start), ("Expiry", &policy.expiry)] {
        if !time.is_empty() && !is_time(time) {
            return wrong(format!(
                "The {element} of the access policy '{id}' must be a time such as 2018-06-07T22:21:55Z."
            ));
        }
    }
    match policy.permissions.chars().all(|letter| "rcwdl".contains(letter)) {
        true => Ok(()),
        false => wrong(format!("The Permission of the access policy '{id}' has letters other than r, c, w, d and l.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_policies_are_loaded_unchanged() {
        let policy = |start: &str, expiry: &str, permissions: &str| Policy {
            start: start.to_owned(),
            expiry: expiry.to_owned(),
            permissions: permissions.to_owned(),
        };
        let policies = vec![
            ("a & <b>=é".to_owned(), policy("2018-06-07", "2018-06-08T00:00:00Z", "rl")),
            ("empty".to_owned(), Policy::default()),
        ];
        let mut properties = Properties::default();
        assert!(properties.set("x-ms-meta-a", "1") && properties.set("acl-5", "id=old"));
        store(&mut properties, &policies);
        assert_eq!(load(&properties), policies);
        assert_eq!(parse(document(&policies).as_bytes()), Ok(policies.clone()));
        assert_eq!(find(&properties, "empty"), Some(Policy::default()));
        assert_eq!(find(&properties, "old"), None);
        clear(&mut properties);
        assert_eq!(properties.iter().collect::<Vec<_>>(), [("x-ms-meta-a", "1")]);
    }
}
