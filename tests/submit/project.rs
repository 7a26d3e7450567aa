//! A project directory of a site, and its submissions.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{CommandOutput, Site};

/// A site with a project in the directory `cifar`.
pub struct ProjectSite {
    pub site: Site,
}

impl ProjectSite {
    pub fn new(files: &[(&str, &str)]) -> ProjectSite {
        let project = ProjectSite { site: Site::start() };
        std::fs::create_dir(project.dir()).expect("a directory");
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    pub fn dir(&self) -> PathBuf {
        self.site.path().join("cifar")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.dir().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file of the project");
    }

    pub fn read(&self, name: &str) -> String {
        let path = self.dir().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.site.command("corro");
        command.args(words).current_dir(self.dir());
        command
    }

    pub fn corro(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::from(self.command(words).output().expect("the command runs"))
    }

    /// Starts a command in the background, with its output in pipes.
    pub fn start(&self, words: &[&str]) -> Child {
        self.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
    }

    /// All jobs of the project's experiment.
    pub fn jobs(&self) -> Vec<Value> {
        let listed = self.site.corro("batchai job list -g default -w default -e cifar");
        if listed.code != 0 {
            return Vec::new();
        }
        listed.json().as_array().expect("a list").clone()
    }

    /// The directory of the experiment on the server's disk.
    pub fn experiment_directory(&self) -> PathBuf {
        self.site.data().join("shares/defaultprojects/projects/default/cifar")
    }

    /// Number of files below a directory of the experiment.
    pub fn files_on_share(&self, directory: &str) -> usize {
        fn count(dir: PathBuf) -> usize {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| if entry.path().is_dir() { count(entry.path()) } else { 1 }).sum()
        }
        count(self.experiment_directory().join(directory))
    }
}

/// Lines in a fixed order: ranks write theirs in any.
pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort();
    lines
}
