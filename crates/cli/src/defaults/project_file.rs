//! The project file `corro.toml`: the nearest one from the current directory upwards. It names the project's resources and the options of its
//! submissions. Because its values decide where code and data go, a file that other users could have written is ignored.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::submit_options::SubmitOptions;
use super::toml_table::{self, TableReader, TomlProblem};
use super::{DefaultName, warn_ignored};
use crate::error::CliError;

pub const FILE_NAME: &str = "corro.toml";

/// A project file is a page of text; a larger one is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A parsed project file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFile {
    pub path: PathBuf,
    /// Name of the project; without one in the file, that of its directory.
    pub name: String,
    /// The table `[submit]`.
    pub submit: SubmitOptions,
    defaults: Vec<(DefaultName, String)>,
}

impl ProjectFile {
    /// The directory of the file.
    pub fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// A name in the table `[defaults]`.
    pub fn default(&self, kind: DefaultName) -> Option<&str> {
        self.defaults.iter().find(|(of, _)| *of == kind).map(|(_, value)| value.as_str())
    }
}

/// The project file of `dir`. One that others could have written is ignored with a warning.
pub fn find(dir: &Path, home: Option<&Path>) -> Result<Option<ProjectFile>, CliError> {
    for path in candidates(dir, home) {
        match read_trusted(&path) {
            Ok(None) => {}
            Ok(Some(text)) => return parse(&path, &text).map(Some),
            Err(ReadError::Untrusted(reason)) => {
                warn_ignored(&path, &reason);
                return Ok(None);
            }
            Err(ReadError::Io(error)) => {
                return Err(CliError::new(format!("cannot read the project file {}", path.display())).cause(error));
            }
        }
    }
    Ok(None)
}

/// The same without messages: a file that cannot be used counts as none.
pub fn find_silently(dir: &Path, home: Option<&Path>) -> Option<ProjectFile> {
    for path in candidates(dir, home) {
        match read_trusted(&path) {
            Ok(None) => {}
            Ok(Some(text)) => return parse(&path, &text).ok(),
            Err(_) => return None,
        }
    }
    None
}

/// Parses the text of a project file. Pure; `path` appears in messages and gives the project its name.
pub fn parse(path: &Path, text: &str) -> Result<ProjectFile, CliError> {
    let dir_name = || {
        let dir = path.parent().and_then(Path::file_name);
        dir.map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned())
    };
    let content = toml_table::parse(text.trim_start_matches('\u{feff}'), |mut root| {
        let name = root.text("name")?;
        let defaults = root.table("defaults", read_defaults)?;
        let submit = root.table("submit", SubmitOptions::read)?;
        root.finish()?;
        Ok((name, defaults, submit))
    });
    let (name, defaults, submit) = content.map_err(|problem| {
        CliError::new(format!("cannot use the project file {}: {}", path.display(), problem.describe(text)))
            .hint("correct the file and try again")
            .docs("project-file")
    })?;
    Ok(ProjectFile { path: path.to_owned(), name: name.unwrap_or_else(dir_name), submit, defaults })
}

fn read_defaults(mut table: TableReader<'_>) -> Result<Vec<(DefaultName, String)>, TomlProblem> {
    let mut defaults = Vec::new();
    for kind in DefaultName::ALL {
        defaults.extend(table.text(kind.key())?.map(|value| (kind, value)));
    }
    table.finish()?;
    Ok(defaults)
}

/// Paths where the file may be, nearest first. Directories above the home directory belong to others.
fn candidates(dir: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let limit = home.and_then(Path::parent).filter(|_| home.is_some_and(|home| home != Path::new("/")));
    let dirs = dir.ancestors().take_while(|dir| Some(*dir) != limit);
    dirs.map(|dir| dir.join(FILE_NAME)).collect()
}

enum ReadError {
    Untrusted(String),
    Io(io::Error),
}

/// The text of a file that only this user and root can have written; `None` if there is none.
fn read_trusted(path: &Path) -> Result<Option<String>, ReadError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        // A directory above may be closed to this user, and its file is none of theirs.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(ReadError::Untrusted("it cannot be read by this user".to_owned()));
        }
        Err(error) => return Err(ReadError::Io(error)),
    };
    // Of the open file, so that it cannot be exchanged in between.
    let meta = file.metadata().map_err(ReadError::Io)?;
    if !meta.is_file() {
        return Err(ReadError::Untrusted("it is not a file".to_owned()));
    }
    if let Some(reason) = distrust(meta.uid(), meta.mode(), rustix::process::geteuid().as_raw()) {
        return Err(ReadError::Untrusted(reason));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(ReadError::Io)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::Io(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB")));
    }
    Ok(Some(text))
}

/// Why a file of this owner and mode is not used. Pure.
fn distrust(owner: u32, mode: u32, user: u32) -> Option<String> {
    if owner != user && owner != 0 {
        return Some(format!("it belongs to another user (uid {owner})"));
    }
    (mode & 0o002 != 0).then(|| "every user can write to it; change that with 'chmod o-w'".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::batchai::Priority;

    #[test]
    fn every_key_is_read() {
        let text = r#"
            name = "cifar"
            [defaults]
            group = "g"
            share = "s"
            [submit]
            nodes = 4
            processes = 0x10
            kind = "horovod"
            dir = "src"
            image = "pytorch/pytorch"
            gpus = 0
            cores = 8
            memory = "16GiB"
            env = { A = "1", B = "" }
            pip = ["numpy", "torch==2.4"]
            venv = ".venv"
            conda_file = "environment.yml"
            priority = "high"
            retry = 2
            time = "2h"
            mount = "data"
            webhook = "HOOK"
            webhook_on = ["failed", "stopped"]
            webhook_secret = "HOOK_KEY"
        "#;
        let file = parse(Path::new("/x/y/corro.toml"), text).expect("a project file");
        assert_eq!((file.name.as_str(), file.dir()), ("cifar", Path::new("/x/y")));
        assert_eq!((file.default(DefaultName::Group), file.default(DefaultName::Share)), (Some("g"), Some("s")));
        assert_eq!(file.default(DefaultName::Cluster), None);
        let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())];
        let own = |text: &str| Some(text.to_owned());
        let expected = SubmitOptions {
            nodes: Some(4),
            processes: Some(16),
            kind: own("horovod"),
            dir: own("src"),
            image: own("pytorch/pytorch"),
            gpus: Some(0),
            cores: Some(8),
            memory: own("16GiB"),
            env: env.into_iter().collect(),
            pip: vec!["numpy".to_owned(), "torch==2.4".to_owned()],
            venv: own(".venv"),
            conda_file: own("environment.yml"),
            priority: Some(Priority::High),
            retry: Some(2),
            time: own("2h"),
            mount: vec!["data".to_owned()],
            webhook: own("HOOK"),
            webhook_on: vec!["failed".to_owned(), "stopped".to_owned()],
            webhook_secret: own("HOOK_KEY"),
        };
        assert_eq!(file.submit, expected);
    }

    #[test]
    fn an_empty_file_has_the_name_of_its_directory() {
        let file = parse(Path::new("/home/me/cifar10/corro.toml"), "").expect("a project file");
        assert_eq!((file.name.as_str(), &file.submit), ("cifar10", &SubmitOptions::default()));
        assert_eq!(parse(Path::new("/corro.toml"), "").expect("a project file").name, "project");
    }

    #[test]
    fn a_mistake_is_named_with_line_and_key() {
        let check = |text: &str, expected: &str| {
            let error = parse(Path::new("/x/corro.toml"), text).expect_err(text);
            let message = error.message.strip_prefix("cannot use the project file /x/corro.toml: ");
            assert_eq!(message, Some(expected), "{text}");
        };
        check("[submit]\nnode = 4\n", "line 2, column 1, key 'submit.node': no such key; did you mean 'nodes'?");
        check(
            "[submit]\n\n  nodes = 'four'",
            "line 3, column 11, key 'submit.nodes': expected a whole number, found a text",
        );
        check(
            "[submit]\nnodes = 0",
            "line 2, column 9, key 'submit.nodes': 0 is out of range: use a whole number from 1 to 4294967295",
        );
        check(
            "[submit]\nnodes = 99999999999999999999",
            "line 2, column 9, key 'submit.nodes': 99999999999999999999 is out of range: use a whole number from 1 to \
             4294967295",
        );
        check(
            "[submit.env]\nA = 1",
            "line 2, column 5, key 'submit.env.A': expected a text, found a whole number: write it in quotes",
        );
        check("[submit]\nenv = []", "line 2, column 7, key 'submit.env': expected a table, found a list");
        check(
            "[submit]\npriority = 'urgent'",
            "line 2, column 12, key 'submit.priority': 'urgent' is none of 'low', 'normal', 'high'",
        );
        check(
            "[submit]\npip = ['a', 1]",
            "line 2, column 13, key 'submit.pip': expected a text, found a whole number: write it in quotes",
        );
        check("[default]\ngroup = 'g'", "line 1, column 2, key 'default': no such key; did you mean 'defaults'?");
        check(
            "[defaults]\ngroup = ''",
            "line 2, column 9, key 'defaults.group': the text is empty: give a value, or remove the key",
        );
        check(
            "[defaults]\nregion = 'x'",
            "line 2, column 1, key 'defaults.region': no such key: use group, workspace, experiment, cluster, account, share",
        );
        let error = parse(Path::new("/x/corro.toml"), "a = ").expect_err("no value");
        assert!(error.message.contains("line 1, column 5: not valid TOML"), "{}", error.message);
    }

    #[test]
    fn the_search_ends_at_the_home_directory() {
        let check = |dir: &str, home: Option<&str>, expected: &[&str]| {
            let found = candidates(Path::new(dir), home.map(Path::new));
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{dir}");
        };
        check("/home/me/a", Some("/home/me"), &["/home/me/a/corro.toml", "/home/me/corro.toml"]);
        check("/data/a", Some("/home/me"), &["/data/a/corro.toml", "/data/corro.toml", "/corro.toml"]);
        check("/a", None, &["/a/corro.toml", "/corro.toml"]);
        check("/root/a", Some("/root"), &["/root/a/corro.toml", "/root/corro.toml"]);
        check("/a", Some("/"), &["/a/corro.toml", "/corro.toml"]);
    }

    #[test]
    fn a_file_that_others_could_have_written_is_not_trusted() {
        assert_eq!(distrust(1000, 0o100664, 1000), None);
        assert_eq!(distrust(0, 0o100644, 1000), None);
        assert!(distrust(1001, 0o100600, 1000).is_some_and(|reason| reason.contains("uid 1001")));
        assert!(distrust(1000, 0o100666, 1000).is_some_and(|reason| reason.contains("chmod o-w")));
    }

    #[test]
    fn the_nearest_file_is_used_unless_everyone_can_write_to_it() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().expect("a directory");
        let inner = home.path().join("p/q");
        std::fs::create_dir_all(&inner).expect("directories");
        let (near, far) = (home.path().join("p").join(FILE_NAME), home.path().join(FILE_NAME));
        let find = || find(&inner, Some(home.path())).expect("no mistake").map(|file| file.name);
        assert_eq!(find(), None);
        std::fs::write(&far, "name = 'far'").expect("written");
        assert_eq!(find().as_deref(), Some("far"));
        std::fs::write(&near, "name = 'near'").expect("written");
        assert_eq!(find().as_deref(), Some("near"));
        std::fs::set_permissions(&near, std::fs::Permissions::from_mode(0o666)).expect("changed");
        assert_eq!(find(), None);
    }
}
