//! Name rules of all resources. A name is returned as it was created and looked up without regard to case.

use crate::error::ApiError;

/// Maximum length of the name of a workspace, cluster, file server, experiment or job.
pub const MAX_NAME: usize = 64;

/// Words that cannot be storage account names, since they share the first segment of path-style file URLs.
#[rustfmt::skip]
const RESERVED_ACCOUNTS: [&str; 15] = [
    "subscriptions", "providers", "tenants", "metadata", "adfs", "common", "organizations", "oauth2", "corro",
    "events", "metrics", "healthz", "readyz", FILE_SERVERS, JOB_SHARED,
];

/// Internal account names for trees that belong to no storage account: the directories of file servers, and those that
/// the nodes of a job share. Only nodes reach them, with a mount token for one tree.
pub const FILE_SERVERS: &str = "fileservers";
pub const JOB_SHARED: &str = "jobshared";

/// Kind of a name; determines the pattern and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Group,
    Workspace,
    Cluster,
    FileServer,
    Experiment,
    Job,
    StorageAccount,
    Share,
}

impl NameKind {
    fn noun(self) -> &'static str {
        match self {
            NameKind::Group => "resource group",
            NameKind::Workspace => "workspace",
            NameKind::Cluster => "cluster",
            NameKind::FileServer => "file server",
            NameKind::Experiment => "experiment",
            NameKind::Job => "job",
            NameKind::StorageAccount => "storage account",
            NameKind::Share => "share",
        }
    }

    /// The pattern in words, for error messages.
    fn rule(self) -> &'static str {
        match self {
            NameKind::Group => "1 to 90 letters, digits, '-', '_' or '.', not ending in '.'",
            NameKind::StorageAccount => "3 to 24 lower-case letters and digits",
            NameKind::Share => {
                "3 to 63 lower-case letters, digits and single '-', starting and ending with a letter or digit"
            }
            _ => "1 to 64 letters, digits, '-' or '_'",
        }
    }

    fn allows(self, name: &str) -> bool {
        let len = name.chars().count();
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        match self {
            NameKind::Group => {
                (1..=90).contains(&len) && name.chars().all(|c| word(c) || c == '.') && !name.ends_with('.')
            }
            NameKind::StorageAccount => {
                (3..=24).contains(&len) && name.chars().all(lower) && !RESERVED_ACCOUNTS.contains(&name)
            }
            NameKind::Share => {
                (3..=63).contains(&len)
                    && name.chars().all(|c| lower(c) || c == '-')
                    && !name.starts_with('-')
                    && !name.ends_with('-')
                    && !name.contains("--")
            }
            _ => (1..=MAX_NAME).contains(&len) && name.chars().all(word),
        }
    }
}

/// Checks a name against its pattern; the error states the pattern.
pub fn check_name(kind: NameKind, name: &str) -> Result<(), ApiError> {
    if kind.allows(name) {
        return Ok(());
    }
    let (noun, rule) = (kind.noun(), kind.rule());
    if kind == NameKind::StorageAccount && RESERVED_ACCOUNTS.contains(&name) {
        return Err(ApiError::invalid(noun, format!("'{name}' is reserved and cannot be the name of a {noun}")));
    }
    Err(ApiError::invalid(noun, format!("'{name}' is not a valid {noun} name: use {rule}")))
}

/// Maximum length of a region's name.
const MAX_LOCATION: usize = 64;

/// Normalizes a region's name: `East US` and `eastus` are the same region.
pub fn region(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase()
}

/// Checks the region of a request and returns its normalized form.
pub fn check_location(location: &str) -> Result<String, ApiError> {
    let region = region(location);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if region.is_empty() {
        return Err(ApiError::invalid("location", "the location is empty: give one, such as eastus"));
    }
    if region.len() > MAX_LOCATION || !region.chars().all(allowed) || !region.contains(char::is_alphanumeric) {
        let shown: String = region.chars().take(MAX_LOCATION).collect();
        let message = format!(
            "'{}' cannot be a location: use at most {MAX_LOCATION} letters, digits, '-', '_' or '.', such as eastus",
            shown.escape_debug()
        );
        return Err(ApiError::invalid("location", message));
    }
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_service() {
        let check = |kind, name: &str, ok| assert_eq!(check_name(kind, name).is_ok(), ok, "{kind:?} {name:?}");
        check(NameKind::Group, "batchai.horovod", true);
        check(NameKind::Group, "a/b", false);
        check(NameKind::Group, "..", false);
        check(NameKind::Workspace, "batchaidev", true);
        check(NameKind::Workspace, "has.dot", false);
        check(NameKind::Job, "cifar_distributed-2", true);
        check(NameKind::Job, "", false);
        check(NameKind::Job, &"x".repeat(64), true);
        check(NameKind::Job, &"x".repeat(65), false);
        check(NameKind::Cluster, "no spaces", false);
        check(NameKind::StorageAccount, "mystorageaccount", true);
        check(NameKind::StorageAccount, "My", false);
        check(NameKind::StorageAccount, "subscriptions", false);
        check(NameKind::Share, "myshare", true);
        check(NameKind::Share, "my--share", false);
    }

    #[test]
    fn locations_are_names_of_regions() {
        for (given, region) in [("East US", "eastus"), ("eastus", "eastus"), ("my-place_1.b", "my-place_1.b")] {
            assert_eq!(check_location(given).expect(given), region);
        }
        for bad in ["", " ", "a\0b", "../x", "..", "a/b", "é", "a'b", &"x".repeat(65), &"x".repeat(5000)] {
            let error = check_location(bad).expect_err(bad);
            assert_eq!((error.status, error.target.as_deref()), (400, Some("location")));
            assert!(error.message.len() < 200, "{}", error.message);
        }
    }

    #[test]
    fn a_refusal_names_the_thing_and_the_rule() {
        let error = check_name(NameKind::Job, "a b").expect_err("a space is not allowed");
        assert_eq!(error.message, "'a b' is not a valid job name: use 1 to 64 letters, digits, '-' or '_'");
    }
}
