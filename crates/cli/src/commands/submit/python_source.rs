//! Requirements for the Python environment of a job: from `--pip`, or from the packages of a virtual environment on this machine.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::project::Project;
use crate::error::CliError;
use crate::project_upload::job_directory::{OWN_DIRECTORY, REQUIREMENTS_FILE};

/// A requirements file of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Path below the job's directory.
    pub path: String,
    /// Content, unless the file is one of the project.
    pub text: Option<String>,
}

/// The requirements of `--pip`: a file of the project as it is, otherwise a file that names all files and packages.
pub fn from_pip(project: &Project, current: &Path, entries: &[String]) -> Result<Requirements, CliError> {
    let mut text = String::new();
    for entry in entries {
        let is_file = current.join(entry).is_file() || project.dir.join(entry).is_file();
        if is_file {
            let path = project.path_of(current, Path::new(entry))?;
            if entries.len() == 1 {
                return Ok(Requirements { path, text: None });
            }
            let _ = writeln!(text, "-r ../{path}");
        } else if entry.ends_with(".txt") || entry.contains('/') {
            return Err(CliError::new(format!("the requirements file {entry} does not exist"))
                .hint("give a file of the project, or a requirement such as torch==2.9"));
        } else {
            let _ = writeln!(text, "{entry}");
        }
    }
    Ok(own_file(text))
}

/// The packages of a virtual environment, in the same versions.
pub fn from_venv(venv: &Path) -> Result<Requirements, CliError> {
    let python = venv.join("bin/python");
    let failed = |cause: String| {
        CliError::new(format!("cannot list the packages of {}", venv.display()))
            .cause(cause)
            .hint("give the directory of a virtual environment, as 'python3 -m venv DIR' makes it")
    };
    let output = Command::new(&python).args(["-I", "-c", LIST_PACKAGES]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("{}: {error}", python.display())))?;
    if !output.status.success() {
        let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        return Err(failed(last));
    }
    let packages = serde_json::from_slice::<Vec<Package>>(&output.stdout).map_err(|error| failed(error.to_string()))?;
    Ok(own_file(pinned(packages)?))
}

/// Prints the distributions of the interpreter as JSON; `url` is where a package came from that no index has.
const LIST_PACKAGES: &str = "\
import importlib.metadata as m, json
def url(d):
    text = d.read_text('direct_url.json')
    return json.loads(text).get('url') if text else None
print(json.dumps([{'name': d.metadata['Name'], 'version': d.version, 'url': url(d)} for d in m.distributions() if d.metadata['Name']]))";

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    url: Option<String>,
}

/// Packages that an environment of a job has anyway.
const PROVIDED: [&str; 4] = ["pip", "setuptools", "wheel", "horovod"];

/// The packages as lines of a requirements file. Pure.
fn pinned(packages: Vec<Package>) -> Result<String, CliError> {
    let mut lines = Vec::new();
    for Package { name, version, url } in packages {
        if PROVIDED.contains(&name.to_lowercase().as_str()) {
            continue;
        }
        match url {
            Some(url) if url.starts_with("file:") => {
                return Err(CliError::new(format!("the package {name} was installed from a local directory ({url})"))
                    .hint("nodes cannot get it from there: put it into the project and use --pip"));
            }
            // Archives and repositories.
            Some(url) => lines.push(format!("{name} @ {url}")),
            None => lines.push(format!("{name}=={version}")),
        }
    }
    lines.sort_by_key(|line| line.to_lowercase());
    lines.dedup();
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

fn own_file(text: String) -> Requirements {
    Requirements { path: format!("{OWN_DIRECTORY}/{REQUIREMENTS_FILE}"), text: Some(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_and_packages_are_combined() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("path");
        fs::write(root.join("requirements.txt"), "numpy\n").expect("file");
        let project = Project { dir: root.clone(), name: "p".to_owned(), subdirectory: String::new() };
        let of = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_owned()).collect();
            from_pip(&project, &root, &entries).map(|made| (made.path, made.text)).map_err(|error| error.message)
        };
        assert_eq!(of(&["requirements.txt"]), Ok(("requirements.txt".to_owned(), None)));
        let own = ".corro/requirements.txt".to_owned();
        assert_eq!(of(&["torch==2.9"]), Ok((own.clone(), Some("torch==2.9\n".to_owned()))));
        let both = Some("-r ../requirements.txt\ntorch>=2\n".to_owned());
        assert_eq!(of(&["requirements.txt", "torch>=2"]), Ok((own, both)));
        assert_eq!(of(&["none.txt"]), Err("the requirements file none.txt does not exist".to_owned()));
    }

    #[test]
    fn packages_keep_their_versions() {
        let package = |name: &str, url: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            url: url.map(str::to_owned),
        };
        let text = pinned(vec![package("torch", None), package("pip", None), package("Numpy", None)]);
        assert_eq!(text, Ok("Numpy==1.0\ntorch==1.0\n".to_owned()));
        let text = pinned(vec![package("a", Some("https://host/a.whl"))]);
        assert_eq!(text, Ok("a @ https://host/a.whl\n".to_owned()));
        let error = pinned(vec![package("mine", Some("file:///home/me/mine"))]).expect_err("local");
        assert_eq!(error.message, "the package mine was installed from a local directory (file:///home/me/mine)");
    }
}
