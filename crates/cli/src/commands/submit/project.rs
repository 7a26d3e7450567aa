//! The project that `corro submit` sends: its directory, its name, and where below it the processes start. Reads the file system, changes nothing.

use std::path::{Path, PathBuf};

use super::job_spec::Program;
use crate::defaults::ProjectFile;
use crate::error::CliError;

/// A project directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Absolute, without links.
    pub dir: PathBuf,
    pub name: String,
    /// The caller's directory below `dir`; empty if it is `dir` itself or lies elsewhere.
    pub subdirectory: String,
}

impl Project {
    /// Finds the project: `--dir`, else the project file's directory, else the current directory.
    pub fn locate(
        current: &Path,
        given: Option<&Path>,
        file: Option<&ProjectFile>,
        home: Option<&Path>,
    ) -> Result<Project, CliError> {
        let of_file = file.map(|file| match &file.submit.dir {
            Some(dir) => file.dir().join(dir),
            None => file.dir().to_owned(),
        });
        let chosen = given.map(|dir| current.join(dir)).or(of_file).unwrap_or_else(|| current.to_owned());
        let resolve = |dir: &Path| {
            let resolved = dir.canonicalize();
            resolved.map_err(|error| CliError::new(format!("cannot use the directory {}", dir.display())).cause(error))
        };
        let (dir, current) = (resolve(&chosen)?, resolve(current)?);
        if !dir.is_dir() {
            return Err(CliError::usage(format!("argument --dir: {} is not a directory", dir.display())));
        }
        if dir == Path::new("/")
            || home.and_then(|home| home.canonicalize().ok()).is_some_and(|home| home.starts_with(&dir))
        {
            return Err(CliError::new(format!("{} is not a project: everything in it would be sent", dir.display()))
                .hint("go to the directory of your script, or name it with --dir"));
        }
        let subdirectory = match current.strip_prefix(&dir) {
            Ok(below) => {
                below.to_str().ok_or_else(|| CliError::new("the current directory has a name that is not UTF-8"))?
            }
            Err(_) => "",
        };
        let dir_name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = file.map_or(dir_name, |file| file.name.clone());
        Ok(Project { name, subdirectory: subdirectory.to_owned(), dir })
    }

    /// The program of the command line: a Python script with its arguments, another file with its arguments, or the command in `arguments`.
    pub fn program(&self, current: &Path, script: Option<&str>, arguments: &[String]) -> Result<Program, CliError> {
        let Some(script) = script else { return Ok(Program::Command(arguments.to_vec())) };
        if script.ends_with(".py") {
            return Ok(Program::Script {
                path: self.path_of(current, Path::new(script))?,
                arguments: arguments.to_vec(),
            });
        }
        let words = [script.to_owned()].into_iter().chain(arguments.iter().cloned());
        Ok(Program::Command(words.collect()))
    }

    /// The path below the project's directory of a file that must exist.
    pub fn path_of(&self, current: &Path, file: &Path) -> Result<String, CliError> {
        // A path of the command line is relative to the caller's directory; with --dir it may be relative to that.
        let candidates = [current.join(file), self.dir.join(file)];
        let Some(found) = candidates.iter().find(|path| path.is_file()) else {
            return Err(CliError::new(format!("{} does not exist", file.display()))
                .hint(format!("give a file in {}, or a command after --", self.dir.display())));
        };
        // The directory is resolved, but the file is not: a link in the project is sent under its own name.
        let dir = found.parent().unwrap_or(Path::new("/")).canonicalize().unwrap_or_default();
        let resolved = dir.join(found.file_name().unwrap_or_default());
        let below = resolved.strip_prefix(&self.dir).map_err(|_| {
            CliError::new(format!("{} is not in the project {}", file.display(), self.dir.display()))
                .hint("send another directory with --dir")
        })?;
        let below =
            below.to_str().ok_or_else(|| CliError::new(format!("the name of {} is not UTF-8", file.display())))?;
        Ok(below.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_project_is_the_directory_of_its_file_or_the_current_one() {
        let root = tempfile::tempdir().expect("directory");
        let root = root.path().canonicalize().expect("path");
        fs::create_dir_all(root.join("home/p/src")).expect("directories");
        let (home, dir) = (root.join("home"), root.join("home/p"));
        let locate = |current: &Path, given: Option<&str>| {
            let found = Project::locate(current, given.map(Path::new), None, Some(&home));
            found.map(|p| (p.dir, p.name, p.subdirectory)).map_err(|error| error.message)
        };
        assert_eq!(locate(&dir, None), Ok((dir.clone(), "p".to_owned(), String::new())));
        assert_eq!(locate(&dir.join("src"), Some("..")), Ok((dir.clone(), "p".to_owned(), "src".to_owned())));
        assert_eq!(locate(&home, Some("p")), Ok((dir.clone(), "p".to_owned(), String::new())));
        for refused in [&home, &root] {
            let message = format!("{} is not a project: everything in it would be sent", refused.display());
            assert_eq!(locate(refused, None), Err(message));
        }
        assert_eq!(locate(&dir, Some("none")), Err(format!("cannot use the directory {}", dir.join("none").display())));
    }

    #[test]
    fn scripts_are_named_by_their_path_in_the_project() {
        let root = tempfile::tempdir().expect("directory");
        let dir = root.path().canonicalize().expect("path");
        fs::create_dir(dir.join("src")).expect("directory");
        fs::write(dir.join("src/a.py"), "").expect("file");
        let project = Project { dir: dir.clone(), name: "p".to_owned(), subdirectory: "src".to_owned() };
        let script = |path: &str, current: &str| match project.program(&dir.join(current), Some(path), &[]) {
            Ok(Program::Script { path, .. }) => Ok(path),
            Ok(Program::Command(words)) => Ok(format!("command {}", words.join(" "))),
            Err(error) => Err(error.message),
        };
        assert_eq!(script("a.py", "src"), Ok("src/a.py".to_owned()));
        assert_eq!(script("src/a.py", ""), Ok("src/a.py".to_owned()));
        assert_eq!(script("../src/a.py", "src"), Ok("src/a.py".to_owned()));
        assert_eq!(script("none.py", ""), Err("none.py does not exist".to_owned()));
        assert_eq!(script("./run.sh", ""), Ok("command ./run.sh".to_owned()));
        let elsewhere = tempfile::NamedTempFile::with_suffix(".py").expect("file");
        let path = elsewhere.path().to_str().expect("UTF-8");
        assert_eq!(script(path, ""), Err(format!("{path} is not in the project {}", dir.display())));
    }
}
