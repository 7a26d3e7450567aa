//! Which resource a command is about: by names (`-g`, `-w`, `-n` …) or by full ids (`--ids`). Entered by every command
//! before its first request; says what is missing the way `az` does.

use corro_client::ClientError;
use corro_model::ops::{Operation, match_path};

use crate::failure::{Failure, Place};
use crate::session::setting;

/// Values for the parameters of an operation's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Vec<(&'static str, String)>);

/// A name that a command needs: the path's parameter, the flag to ask for, and what was given.
pub type Name<'a> = (&'static str, &'static str, Option<&'a str>);

pub const GROUP_FLAG: &str = "--resource-group/-g";
pub const WORKSPACE_FLAG: &str = "--workspace/-w";
pub const EXPERIMENT_FLAG: &str = "--experiment/-e";
pub const NAME_FLAG: &str = "--name/-n";
pub const JOB_FLAG: &str = "--job/-j";
pub const CLUSTER_FLAG: &str = "--cluster/-c";

impl Target {
    /// The resource with these names. The group may come from `AZURE_DEFAULTS_GROUP`.
    pub fn named(names: &[Name<'_>]) -> Result<Target, Failure> {
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
            return Ok(Target(values));
        }
        missing.sort_unstable();
        let needed: Vec<_> = names.iter().map(|(_, flag, _)| *flag).collect();
        Err(Failure::missing(&missing, &needed))
    }

    /// The resources with these full ids, or the one with these names.
    pub fn all<O: Operation>(ids: &[String], names: &[Name<'_>]) -> Result<Vec<Target>, Failure> {
        if ids.is_empty() {
            return Ok(vec![Target::named(names)?]);
        }
        ids.iter().map(|id| Target::of_id::<O>("--ids", id)).collect()
    }

    /// The resource with this full id, which was given with `flag`.
    pub fn of_id<O: Operation>(flag: &str, id: &str) -> Result<Target, Failure> {
        match_path(O::PATH, id).map(Target).ok_or_else(|| {
            Failure::usage(format!("argument {flag}: '{id}' is not the id of such a resource"))
                .hint(format!("it looks like {}", O::PATH))
        })
    }

    /// Something else in the same workspace.
    pub fn sibling(&self, parameter: &'static str, name: &str) -> Target {
        let parents = self.0.iter().filter(|(name, _)| ["subscription", "group", "workspace"].contains(name));
        Target(parents.cloned().chain([(parameter, name.to_owned())]).collect())
    }

    pub fn values(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(parameter, value)| (*parameter, value.as_str())).collect()
    }

    pub fn name(&self, parameter: &str) -> &str {
        self.given(parameter).unwrap_or_default()
    }

    /// The arguments that name it in a command line, for something to copy.
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

    fn given(&self, parameter: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == parameter).map(|(_, value)| value.as_str())
    }

    /// The failure of a request about this; its hint repeats the names.
    pub fn failure(&self, error: ClientError) -> Failure {
        let place = Place {
            group: self.given("group"),
            workspace: self.given("workspace"),
            experiment: self.given("experiment"),
        };
        Failure::at(place, error)
    }

    /// `show` has its own exit code for what is not there.
    pub fn failure_of_show(&self, error: ClientError) -> Failure {
        let exit = if error.is_not_found() { 3 } else { 1 };
        Failure { exit, ..self.failure(error) }
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

/// `k=v` pairs of `--tags`; a key alone has an empty value, `''` clears.
pub fn tags(pairs: &[String]) -> std::collections::BTreeMap<String, String> {
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
    fn names_that_are_missing_are_listed_together() {
        let error = Target::named(&[
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
        let targets = Target::all::<JobsGet>(&[id.to_owned()], &[("job", NAME_FLAG, None)]).expect("an id");
        assert_eq!((targets[0].name("group"), targets[0].name("job")), ("g", "j"));
        assert_eq!(targets[0].arguments(), "-g g -w w -e e -n j");
        let error = Target::all::<JobsGet>(&["/subscriptions/s".to_owned()], &[]).expect_err("too short");
        assert_eq!(error.exit, 2);
    }
}
