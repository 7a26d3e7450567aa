//! Command lines that make a Python environment, and advice when one of them fails. Pure.

use std::path::Path;

/// Programs that make conda environments, the fastest first.
pub const CONDA_PROGRAMS: [&str; 3] = ["mamba", "micromamba", "conda"];

/// Variables with which these programs ask nothing.
pub const CONDA_VARIABLES: [(&str, &str); 3] =
    [("CONDA_ALWAYS_YES", "true"), ("MAMBA_ALWAYS_YES", "true"), ("CONDA_NOTIFY_OUTDATED_CONDA", "false")];

const INSTALL_SCRIPT: &str = include_str!("install_packages.sh");

/// Makes the environment of a conda file at `prefix`.
pub fn conda_command(program: &Path, prefix: &Path, file: &Path) -> Vec<String> {
    let is_micromamba = program.file_name().is_some_and(|name| name == "micromamba");
    let action: &[&str] = if is_micromamba { &["create", "--yes"] } else { &["env", "create"] };
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut argv = vec![text(program)];
    argv.extend(action.iter().map(|word| (*word).to_owned()));
    argv.extend(["--prefix".to_owned(), text(prefix), "--file".to_owned(), text(file)]);
    argv
}

/// Installs a requirements file, and Horovod from its wheel. Without `python`, into the first one in `PATH`.
pub fn install_command(python: Option<&Path>, requirements: Option<&Path>, wheel: Option<&Path>) -> Vec<String> {
    let text = |path: Option<&Path>| path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let script = ["/bin/sh", "-c", INSTALL_SCRIPT, "install-packages"].map(str::to_owned);
    script.into_iter().chain([text(python), text(requirements), text(wheel)]).collect()
}

/// What to do after pip or conda ended with these lines.
pub fn advice(stderr: &[String]) -> &'static str {
    let has = |words: &[&str]| stderr.iter().any(|line| words.iter().any(|word| line.contains(word)));
    if has(&["No space left on device"]) {
        return "The node's disk is full: ask its operator to make room, or to bound the cache of Python environments \
                (CORRO_PYTHON_CACHE_SIZE)";
    }
    if has(&["No module named ensurepip", "ensurepip is not available", "No module named venv"]) {
        return "The Python of the node has no pip: ask its operator to install it (on Debian and Ubuntu python3-venv), or put \
                another Python first in the job's PATH";
    }
    let network =
        ["NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ReadTimeoutError", "ProxyError"];
    let names = ["Temporary failure in name resolution", "Network is unreachable", "SSLError", "CondaHTTPError"];
    if has(&network) || has(&names) || has(&["Connection refused", "Could not resolve host"]) {
        return "The node does not reach a package index. Name one that it reaches in the job's environmentVariables \
                (PIP_INDEX_URL, CONDA_CHANNELS) or a proxy (https_proxy), have the operator offer wheels (--wheels), or put \
                wheels beside the requirements file and add '--no-index' and '--find-links' to it";
    }
    if has(&["(from versions: none)"]) {
        return "The node's package index has no such package for this Python and platform, or the node does not reach the \
                index. Correct the name in the file, or name an index that the node reaches in the job's environmentVariables \
                (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL)";
    }
    if has(&["No matching distribution", "Could not find a version", "PackagesNotFound", "ResolvePackageNotFound"]) {
        return "The index has no such package for this Python and platform. Correct the name or the version in the file, or \
                name another index in the job's environmentVariables (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL)";
    }
    "Correct the file and submit the job again. The whole output is beside the job's logs, in stderr-job_prep and \
     stdout-job_prep"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_conda_program_has_its_command() {
        let command = |program: &str| conda_command(Path::new(program), Path::new("/c/env"), Path::new("/s/e.yml"));
        let end = "--prefix /c/env --file /s/e.yml";
        assert_eq!(command("/opt/bin/mamba").join(" "), format!("/opt/bin/mamba env create {end}"));
        assert_eq!(command("/opt/bin/conda").join(" "), format!("/opt/bin/conda env create {end}"));
        assert_eq!(command("/bin/micromamba").join(" "), format!("/bin/micromamba create --yes {end}"));
    }

    #[test]
    fn packages_are_installed_by_arguments_not_by_text() {
        let path = Path::new("/s/a b'; rm -rf .txt");
        let argv = install_command(Some(Path::new("/c/env/bin/python")), Some(path), None);
        assert_eq!(argv[..2], ["/bin/sh", "-c"]);
        assert_eq!(argv[3..], ["install-packages", "/c/env/bin/python", "/s/a b'; rm -rf .txt", ""]);
    }

    #[test]
    fn failures_come_with_advice() {
        let check = |line: &str, expected: &str| {
            let given = advice(&["WARNING: something else".to_owned(), line.to_owned()]);
            assert!(given.starts_with(expected), "{line}: {given}");
        };
        check("... NewConnectionError('<pip._vendor...>: [Errno -3] Temporary failure ...", "The node does not reach");
        check("... requirement nonsense (from versions: none)", "The node's package index has no such package");
        check("ERROR: No matching distribution found for numpy==99", "The index has no such package");
        check(
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "The node's disk",
        );
        check("python: No module named ensurepip", "The Python of the node has no pip");
        check("error: subprocess-exited-with-error", "Correct the file");
    }
}
