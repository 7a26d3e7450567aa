//! Which resource a command is about: by names (`-g`, `-w`, `-n` …) or by full ids (`--ids`). Entered by every command
//! before its first request; says what is missing the way `az` does.

use corro_model::ops::{Operation, match_path};

use crate::failure::Failure;
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
        Err(Failure::usage(format!("the following arguments are required: {}", missing.join(", "))))
    }

    /// The resources with these full ids, or the one with these names.
    pub fn all<O: Operation>(ids: &[String], names: &[Name<'_>]) -> Result<Vec<Target>, Failure> {
        if ids.is_empty() {
            return Ok(vec![Target::named(names)?]);
        }
        ids.iter()
            .map(|id| match match_path(O::PATH, id) {
                Some(values) => Ok(Target(values)),
                None => Err(Failure::usage(format!("argument --ids: '{id}' is not the id of such a resource"))
                    .hint(format!("it looks like {}", O::PATH))),
            })
            .collect()
    }

    pub fn values(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(parameter, value)| (*parameter, value.as_str())).collect()
    }

    pub fn name(&self, parameter: &str) -> &str {
        self.0.iter().find(|(name, _)| *name == parameter).map_or("", |(_, value)| value)
    }
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
        let error = Target::all::<JobsGet>(&["/subscriptions/s".to_owned()], &[]).expect_err("too short");
        assert_eq!(error.exit, 2);
    }
}
