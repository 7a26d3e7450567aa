//! Finds and loads shared libraries: those of the system, then those of pip's packages in the Python environment.

use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use libloading::Library;
use tokio::process::Command;
use tokio::time::timeout;

/// End of the error about a library that is nowhere.
pub const NOT_FOUND: &str = " was not found";
/// Prints the directories of pip's packages of NVIDIA.
const PYTHON_SCRIPT: &str = "import importlib.util as u\n\
                             spec = u.find_spec('nvidia')\n\
                             print('\\n'.join(spec.submodule_search_locations or []) if spec else '')";
const PYTHON_TIMEOUT: Duration = Duration::from_secs(5);
/// Packages and directories that are looked at, at most.
const MAX_ENTRIES: usize = 100;

/// Directories in which the Python environment has libraries of NVIDIA: `…/site-packages/nvidia/nccl/lib`.
pub async fn python_directories(python: Option<PathBuf>) -> Vec<PathBuf> {
    let Some(python) = python else { return Vec::new() };
    let mut command = Command::new(python);
    // Nothing is imported from the current directory.
    command.args(["-c", PYTHON_SCRIPT]).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let Ok(Ok(output)) = timeout(PYTHON_TIMEOUT, command.output()).await else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().take(MAX_ENTRIES).flat_map(|line| library_directories(Path::new(line))).collect()
}

/// The `lib` directories of the packages below `root`.
fn library_directories(root: &Path) -> Vec<PathBuf> {
    let packages = fs::read_dir(root).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut found: Vec<PathBuf> =
        packages.map(|package| package.path().join("lib")).filter(|lib| lib.is_dir()).collect();
    found.sort();
    found
}

/// A loaded library, and where it was found.
pub struct Loaded {
    pub library: Library,
    /// For people: ` in DIRECTORY`; empty for one of the system.
    pub place: String,
}

/// Loads the first of these names that the system has; else the first file in `directories` whose name begins with `file_prefix`.
pub fn load(names: &[&str], file_prefix: &str, directories: &[PathBuf]) -> Result<Loaded, String> {
    let mut failure = None;
    for name in names {
        if let Ok(library) = open(Path::new(name)) {
            return Ok(Loaded { library, place: String::new() });
        }
    }
    for (directory, path) in
        directories.iter().flat_map(|directory| files(directory, file_prefix).map(move |path| (directory, path)))
    {
        match open(&path) {
            Ok(library) => return Ok(Loaded { library, place: format!(" in {}", directory.display()) }),
            Err(error) => failure = Some(format!("{} cannot be loaded ({error})", path.display())),
        }
    }
    Err(failure.unwrap_or_else(|| format!("{}{NOT_FOUND}", names[0])))
}

fn files(directory: &Path, prefix: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_ENTRIES);
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.into_iter()
}

fn open(path: &Path) -> Result<Library, String> {
    // SAFETY: loading runs the library's initializers. It is one of NVIDIA's, named by the system's loader or by the user's own Python environment,
    // and this process exists only to try it.
    unsafe { Library::new(path) }.map_err(|error| error.to_string())
}

/// Copies the address of a function out of a library, which must stay loaded as long as it is used.
///
/// # Safety
/// `T` must be the type of the function with this name: a function pointer with its parameters and result.
pub unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: `T` is the function's type (obligation of this function).
    let symbol = unsafe { library.get::<T>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| format!("it has no function {name}"))
}

/// An error code of a library with its name.
pub fn check(action: &str, code: c_int, name: impl FnOnce(c_int) -> String) -> Result<(), String> {
    match code {
        0 => Ok(()),
        code => Err(format!("{action} failed with {}", name(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_pips_packages_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        for package in ["nccl", "cuda_nvrtc", "cublas"] {
            fs::create_dir_all(dir.path().join(package).join("lib")).expect("made");
        }
        fs::create_dir(dir.path().join("empty")).expect("made");
        let broken = dir.path().join("nccl/lib/libnccl.so.2");
        fs::write(&broken, "no library").expect("written");
        let directories = library_directories(dir.path());
        assert_eq!(directories.len(), 3);
        let failure = load(&["libcorro-none.so.2"], "libnccl.so", &directories).map(|_| ()).expect_err("it is broken");
        assert!(failure.contains("libnccl.so.2 cannot be loaded"), "{failure}");
        let failure =
            load(&["libcorro-none.so.2"], "libnvrtc.so", &directories).map(|_| ()).expect_err("there is none");
        assert_eq!(failure, "libcorro-none.so.2 was not found");
        assert!(load(&["libc.so.6"], "x", &[]).is_ok_and(|loaded| loaded.place.is_empty()));
    }

    #[tokio::test]
    async fn an_interpreter_that_does_not_work_has_no_directories() {
        assert!(python_directories(None).await.is_empty());
        assert!(python_directories(Some("/bin/false".into())).await.is_empty());
    }
}
