//! Names of resources that no option gave: from the environment, from the project's `corro.toml`, then from the configuration file of `az`. Only the
//! short commands use all of these sources; the commands of `az` have the group's default alone.
//!
//! Reading order: this file, [`project_file`] (search and content of `corro.toml`), [`toml_table`] (typed reading with positions).

pub mod project_file;
pub mod resource_name;
mod submit_options;
mod toml_table;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::session::{az_config_file, env, file_setting, variable_name};
use crate::stdio::note;

pub use project_file::ProjectFile;
use resource_name::experiment_name;
#[allow(unused_imports)]
pub use submit_options::SubmitOptions;

/// A kind of name that has a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefaultName {
    Group,
    Workspace,
    Experiment,
    Cluster,
    Account,
    Share,
}

impl DefaultName {
    pub const ALL: [DefaultName; 6] = [
        DefaultName::Group,
        DefaultName::Workspace,
        DefaultName::Experiment,
        DefaultName::Cluster,
        DefaultName::Account,
        DefaultName::Share,
    ];

    /// Key in `[defaults]` of both files, and the end of the variable's name.
    pub fn key(self) -> &'static str {
        match self {
            DefaultName::Group => "group",
            DefaultName::Workspace => "workspace",
            DefaultName::Experiment => "experiment",
            DefaultName::Cluster => "cluster",
            DefaultName::Account => "account",
            DefaultName::Share => "share",
        }
    }
}

/// Where a default was found. Printed as `from …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An environment variable, by its name.
    Environment(String),
    /// `[defaults]` of the project file.
    ProjectFile(PathBuf),
    /// `[defaults]` of the configuration file of `az`.
    AzConfig(PathBuf),
}

impl Source {
    /// The variable or the file.
    pub fn place(&self) -> String {
        match self {
            Source::Environment(variable) => variable.clone(),
            Source::ProjectFile(path) | Source::AzConfig(path) => path.display().to_string(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", self.place())
    }
}

/// The defaults that apply in the current directory.
#[derive(Debug, Default)]
pub struct Defaults {
    /// One entry for each name that has a default.
    names: Vec<(DefaultName, String, Source)>,
    project: Option<ProjectFile>,
}

impl Defaults {
    /// Reads environment and files. A project file that other users could have written is ignored with a warning; one with a mistake is an error.
    pub fn load() -> Result<Defaults, CliError> {
        let project = match std::env::current_dir() {
            Ok(dir) => project_file::find(&dir, env("HOME").as_deref().map(Path::new))?,
            // The directory was deleted: there is no project.
            Err(_) => None,
        };
        Ok(Defaults::combine(env, project, file_setting, az_config_file()))
    }

    /// The same for shell completion, which never fails and prints nothing.
    pub fn load_silently() -> Defaults {
        let project = std::env::current_dir()
            .ok()
            .and_then(|dir| project_file::find_silently(&dir, env("HOME").as_deref().map(Path::new)));
        Defaults::combine(env, project, file_setting, az_config_file())
    }

    /// Pure: `variable` is the environment and `az_setting` the configuration file of `az`, which is at `az_path`.
    fn combine(
        variable: impl Fn(&str) -> Option<String>,
        project: Option<ProjectFile>,
        az_setting: impl Fn(&str, &str) -> Option<String>,
        az_path: Option<PathBuf>,
    ) -> Defaults {
        let find = |kind: DefaultName| {
            let name = variable_name("defaults", kind.key());
            let from_environment = || variable(&name).map(|value| (value, Source::Environment(name.clone())));
            let from_project = || {
                let project = project.as_ref()?;
                Some((project.default(kind)?.to_owned(), Source::ProjectFile(project.path.clone())))
            };
            let from_az = || {
                let value = az_setting("defaults", kind.key())?;
                Some((value, Source::AzConfig(az_path.clone().unwrap_or_default())))
            };
            let (value, source) = from_environment().or_else(from_project).or_else(from_az)?;
            Some((kind, value, source))
        };
        Defaults { names: DefaultName::ALL.into_iter().filter_map(find).collect(), project }
    }

    /// The default of a name, and where it was found.
    pub fn name(&self, kind: DefaultName) -> Option<(&str, Source)> {
        let found = self.names.iter().find(|(of, _, _)| *of == kind);
        found.map(|(_, value, source)| (value.as_str(), source.clone()))
    }

    /// The value of an option if it was given, else the default.
    pub fn or_given<'a>(&'a self, given: Option<&'a str>, kind: DefaultName) -> Option<&'a str> {
        given.or_else(|| self.name(kind).map(|(value, _)| value))
    }

    /// Name of the experiment for jobs of the current directory's project; `None` if the directory is deleted.
    pub fn project_experiment(&self) -> Option<String> {
        if let Some(project) = &self.project {
            return Some(experiment_name(&project.name));
        }
        let dir = std::env::current_dir().ok()?;
        Some(experiment_name(&dir.file_name()?.to_string_lossy()))
    }

    /// The project of the current directory.
    pub fn project(&self) -> Option<&ProjectFile> {
        self.project.as_ref()
    }
}

/// Prints why a project file has no effect.
fn warn_ignored(path: &Path, reason: &str) {
    note(format_args!("warning: {} is ignored: {reason}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_comes_before_the_project_and_the_project_before_az() {
        let project = || {
            let text = "name = \"p\"\n[defaults]\ngroup = \"of-project\"\nworkspace = \"of-project\"\n";
            project_file::parse(Path::new("/x/corro.toml"), text).expect("a project file")
        };
        let variable = |name: &str| (name == "AZURE_DEFAULTS_GROUP").then(|| "of-environment".to_owned());
        let az = |section: &str, option: &str| (section == "defaults" && option != "share").then(|| "of-az".to_owned());
        let check = |project: Option<ProjectFile>, kind: DefaultName, expected: Option<(&str, &str)>| {
            let defaults = Defaults::combine(variable, project, az, Some("/home/me/.azure/config".into()));
            let found = defaults.name(kind).map(|(value, source)| (value.to_owned(), source.to_string()));
            assert_eq!(found, expected.map(|(value, source)| (value.to_owned(), source.to_owned())), "{kind:?}");
        };
        let from_az = Some(("of-az", "from /home/me/.azure/config"));
        check(Some(project()), DefaultName::Group, Some(("of-environment", "from AZURE_DEFAULTS_GROUP")));
        check(Some(project()), DefaultName::Workspace, Some(("of-project", "from /x/corro.toml")));
        check(Some(project()), DefaultName::Cluster, from_az);
        check(None, DefaultName::Workspace, from_az);
        check(Some(project()), DefaultName::Share, None);
    }

    #[test]
    fn an_option_comes_before_every_default() {
        let variable = |name: &str| (name == "AZURE_DEFAULTS_CLUSTER").then(|| "c".to_owned());
        let defaults = Defaults::combine(variable, None, |_, _| None, None);
        assert_eq!(defaults.or_given(Some("given"), DefaultName::Cluster), Some("given"));
        assert_eq!(defaults.or_given(None, DefaultName::Cluster), Some("c"));
        assert_eq!(defaults.or_given(None, DefaultName::Group), None);
    }
}
