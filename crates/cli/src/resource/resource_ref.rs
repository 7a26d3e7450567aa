//! Reference to a resource, from names (`-g`, `-w`, `-n`) or from a full resource id (`--ids`). Missing names are reported as by `az`.

use corro_client::ClientError;
use corro_model::ops::{Operation, match_path};

use crate::error::{CliError, HintContext};
use crate::session::setting;

/// Values of the parameters of an operation's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRef(Vec<(&'static str, String)>);

/// A required name: parameter of the path, flag for the error message, and the given value.
pub type NameArg<'a> = (&'static str, &'static str, Option<&'a str>);

pub const GROUP_FLAG: &str = "--resource-group/-g";
pub const WORKSPACE_FLAG: &str = "--workspace/-w";
pub const EXPERIMENT_FLAG: &str = "--experiment/-e";
pub const NAME_FLAG: &str = "--name/-n";
pub const JOB_FLAG: &str = "--job/-j";
pub const CLUSTER_FLAG: &str = "--cluster/-c";

impl ResourceRef {
    /// The resource with these names. The group defaults to `AZURE_DEFAULTS_GROUP`.
    pub fn from_names(names: &[NameArg<'_>]) -> Result<ResourceRef, CliError> {
        let mut values = Vec::new();
        let mut missing = Vec::new();
        for (parameter, flag, given) in names {
            let default = || if *parameter == "group" { setting("defaults", "group") } else { None };
            match given.map(str::to_owned).or_else(default).filter(|value| !value.is_empty()) {
                Some(value) => values.push((*parameter, value)),
                None => missing.push(*flag),
            }
        }
        if missing.is_empty() {
            return Ok(ResourceRef(values));
        }
        missing.sort_unstable();
        let needed: Vec<_> = names.iter().map(|(_, flag, _)| *flag).collect();
        Err(CliError::missing_arguments(&missing, &needed))
    }

    /// The resources with these ids, or without ids the one with these names.
    pub fn from_ids_or_names<O: Operation>(
        ids: &[String],
        names: &[NameArg<'_>],
    ) -> Result<Vec<ResourceRef>, CliError> {
        if ids.is_empty() {
            return Ok(vec![ResourceRef::from_names(names)?]);
        }
        ids.iter().map(|id| ResourceRef::from_id::<O>("--ids", id)).collect()
    }

    /// The resource with this full id, which was given with `flag`.
    pub fn from_id<O: Operation>(flag: &str, id: &str) -> Result<ResourceRef, CliError> {
        match_path(O::PATH, id).map(ResourceRef).ok_or_else(|| {
            CliError::usage(format!("argument {flag}: '{id}' is not the id of such a resource"))
                .hint(format!("it looks like {}", O::PATH))
        })
    }

    /// Another resource in the same workspace.
    pub fn sibling(&self, parameter: &'static str, name: &str) -> ResourceRef {
        let parents = self.0.iter().filter(|(name, _)| ["subscription", "group", "workspace"].contains(name));
        ResourceRef(parents.cloned().chain([(parameter, name.to_owned())]).collect())
    }

    /// Parameters and values, for a request.
    pub fn values(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(parameter, value)| (*parameter, value.as_str())).collect()
    }

    /// The value of a parameter; empty if the path has none of that name.
    pub fn name(&self, parameter: &str) -> &str {
        self.value(parameter).unwrap_or_default()
    }

    /// The arguments that name the resource on a command line, for hints.
    pub fn arguments(&self) -> String {
        let argument = |(parameter, value): &(&str, String)| match *parameter {
            "subscription" => None,
            "group" => Some(format!("-g {value}")),
            "workspace" => Some(format!("-w {value}")),
            "experiment" => Some(format!("-e {value}")),
            _ => Some(format!("-n {value}")),
        };
        self.0.iter().filter_map(argument).collect::<Vec<_>>().join(" ")
    }

    /// The arguments that name what the resource is in.
    pub fn parent_arguments(&self) -> String {
        let argument = |(parameter, value): &(&str, String)| match *parameter {
            "group" => Some(format!("-g {value}")),
            "workspace" => Some(format!("-w {value}")),
            "experiment" => Some(format!("-e {value}")),
            "account" => Some(format!("--account-name {value}")),
            _ => None,
        };
        self.0.iter().filter_map(argument).collect::<Vec<_>>().join(" ")
    }

    fn value(&self, parameter: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == parameter).map(|(_, value)| value.as_str())
    }

    /// Converts the error of a request about this resource. The hint contains its names.
    pub fn request_error(&self, error: ClientError) -> CliError {
        let context = HintContext {
            group: self.value("group"),
            workspace: self.value("workspace"),
            experiment: self.value("experiment"),
        };
        CliError::for_request(context, error)
    }

    /// The same for `show`, which exits with 3 if the resource does not exist.
    pub fn show_error(&self, error: ClientError) -> CliError {
        let exit = if error.is_not_found() { 3 } else { 1 };
        CliError { exit, ..self.request_error(error) }
    }
}

/// Whether this is the full id of a resource inside a group.
pub fn is_resource_id(id: &str) -> bool {
    let parts: Vec<&str> = id.split('/').collect();
    let fixed = [(1, "subscriptions"), (3, "resourceGroups"), (5, "providers")];
    parts.len() >= 9
        && parts[0].is_empty()
        && !parts[1..].contains(&"")
        && fixed.iter().all(|(at, word)| parts[*at].eq_ignore_ascii_case(word))
}

/// Parses `k=v` pairs of `--tags`. A key alone has an empty value; empty arguments are ignored, so `''` clears.
pub fn parse_tags(pairs: &[String]) -> std::collections::BTreeMap<String, String> {
    pairs
        .iter()
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::ops::JobsGet;

    #[test]
    fn missing_names_are_listed_together() {
        let error = ResourceRef::from_names(&[
            ("workspace", WORKSPACE_FLAG, None),
            ("experiment", EXPERIMENT_FLAG, Some("e")),
            ("job", NAME_FLAG, None),
        ])
        .expect_err("two are missing");
        assert_eq!(
            (error.exit, error.message.as_str()),
            (2, "the following arguments are required: --name/-n, --workspace/-w")
        );
    }

    #[test]
    fn ids_replace_names() {
        let id = "/subscriptions/s/resourcegroups/g/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/j";
        let targets =
            ResourceRef::from_ids_or_names::<JobsGet>(&[id.to_owned()], &[("job", NAME_FLAG, None)]).expect("an id");
        assert_eq!((targets[0].name("group"), targets[0].name("job")), ("g", "j"));
        assert_eq!(targets[0].arguments(), "-g g -w w -e e -n j");
        let error =
            ResourceRef::from_ids_or_names::<JobsGet>(&["/subscriptions/s".to_owned()], &[]).expect_err("too short");
        assert_eq!(error.exit, 2);
    }
}
