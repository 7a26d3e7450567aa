//! Finds the files to which a requirements file of pip, or the `pip:` section of a conda file, refers. Pure. Reads only
//! what the content of an environment depends on; pip decides whether the file is valid.

use std::collections::BTreeMap;

/// A file or directory that a requirements file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Another requirements or constraints file, relative to this one; possibly a URL.
    Include(String),
    /// A package, relative to the directory in which pip runs.
    Package(String),
    /// A package that is used where it is.
    Editable(String),
    /// A directory with packages, relative to the directory in which pip runs.
    PackageDirectory(String),
}

/// References in the order of the file. `variables` replaces `${NAME}`, as pip does.
pub fn references(text: &str, variables: &BTreeMap<String, String>) -> Vec<Reference> {
    logical_lines(text).iter().filter_map(|line| reference(&expand(line, variables))).collect()
}

/// Lines without comments, joined at a backslash. In a conda file a line is an item of a list.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut joined = String::new();
    for line in text.lines() {
        let is_comment = line.trim_start().starts_with('#');
        if let Some(part) = line.strip_suffix('\\').filter(|_| !is_comment) {
            joined.push_str(part);
            continue;
        }
        joined.push_str(line);
        let line = std::mem::take(&mut joined);
        let line = line.split(" #").next().unwrap_or_default().trim();
        let item = line.strip_prefix("- ").unwrap_or(line).trim().trim_matches(['"', '\'']);
        if !item.is_empty() && !item.starts_with('#') {
            lines.push(item.to_owned());
        }
    }
    lines
}

fn expand(line: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("${") {
        expanded.push_str(before);
        match after.split_once('}').and_then(|(name, after)| Some((variables.get(name)?, after))) {
            Some((value, after)) => {
                expanded.push_str(value);
                rest = after;
            }
            None => {
                expanded.push_str("${");
                rest = after;
            }
        }
    }
    expanded + rest
}

fn reference(line: &str) -> Option<Reference> {
    let option = |short, long| option_value(line, short, long);
    if let Some(path) = option("-r", "--requirement").or_else(|| option("-c", "--constraint")) {
        return Some(Reference::Include(path.to_owned()));
    }
    if let Some(target) = option("-e", "--editable") {
        return local_path(target).map(Reference::Editable);
    }
    if let Some(target) = option("-f", "--find-links") {
        return local_path(target).map(Reference::PackageDirectory);
    }
    if line.starts_with('-') {
        return None;
    }
    // Without environment markers and options of the requirement.
    let requirement = line.split("; ").next().unwrap_or(line).split(" --").next().unwrap_or(line).trim();
    let target = match requirement.split_once(" @ ") {
        Some((_, url)) => url.strip_prefix("file://").map(|_| url)?,
        None => requirement,
    };
    let is_archive = [".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2"].iter().any(|suffix| target.ends_with(suffix));
    let is_path = target.starts_with('.') || target.starts_with("file:") || target.contains('/') || is_archive;
    is_path.then(|| local_path(target)).flatten().map(Reference::Package)
}

/// Value of an option in its four forms: `-r FILE`, `-rFILE`, `--requirement FILE`, `--requirement=FILE`.
fn option_value<'a>(line: &'a str, short: &str, long: &str) -> Option<&'a str> {
    let value = match line.strip_prefix(long) {
        Some(rest) => rest.strip_prefix('=').or_else(|| rest.strip_prefix(' '))?,
        None => line.strip_prefix(short)?,
    };
    Some(value.trim().trim_matches(['"', '\'']))
}

/// The path of a local file without extras (`./package[gpu]`); `None` for a URL.
fn local_path(target: &str) -> Option<String> {
    let path = target.strip_prefix("file://").or_else(|| target.strip_prefix("file:")).unwrap_or(target);
    if path.contains("://") || path.starts_with("git+") {
        return None;
    }
    let path = path.split('#').next().unwrap_or(path);
    let path = path.strip_suffix(']').and_then(|path| path.rsplit_once('[')).map_or(path, |(path, _)| path);
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::Reference::{Editable, Include, Package, PackageDirectory};
    use super::*;

    fn check(text: &str, expected: &[Reference]) {
        let variables = BTreeMap::from([("ROOT".to_owned(), "/mnt".to_owned())]);
        assert_eq!(references(text, &variables), expected, "{text}");
    }

    #[test]
    fn included_files_are_found() {
        check("", &[]);
        check("-r base.txt\n-c ../limits.txt", &[Include("base.txt".into()), Include("../limits.txt".into())]);
        check("-rbase.txt", &[Include("base.txt".into())]);
        check("  --requirement=base.txt  # the usual\n", &[Include("base.txt".into())]);
        check("--constraint \"a b.txt\"", &[Include("a b.txt".into())]);
        check("--requirement \\\n  base.txt", &[Include("base.txt".into())]);
        check("-r ${ROOT}/base.txt\n-r ${NONE}/x", &[Include("/mnt/base.txt".into()), Include("${NONE}/x".into())]);
        check("-r https://example.com/r.txt", &[Include("https://example.com/r.txt".into())]);
        check("# -r base.txt \\\n#-c x\n", &[]);
    }

    #[test]
    fn local_packages_are_found() {
        check("./package", &[Package("./package".into())]);
        check(".", &[Package(".".into())]);
        check(".[gpu]", &[Package(".".into())]);
        check("../a/b[x,y] ; python_version > '3.8'", &[Package("../a/b".into())]);
        check("dist/tool-1.0-py3-none-any.whl", &[Package("dist/tool-1.0-py3-none-any.whl".into())]);
        check("tool-1.0.tar.gz --hash=sha256:abc", &[Package("tool-1.0.tar.gz".into())]);
        check("tool @ file:///mnt/tool-1.0.zip", &[Package("/mnt/tool-1.0.zip".into())]);
        check("file:./package#egg=package", &[Package("./package".into())]);
        check("-e .", &[Editable(".".into())]);
        check("--editable=./src", &[Editable("./src".into())]);
        check(
            "-f wheels\n--find-links=/mnt/w",
            &[PackageDirectory("wheels".into()), PackageDirectory("/mnt/w".into())],
        );
    }

    #[test]
    fn other_lines_refer_to_no_file() {
        for line in [
            "torch==2.9",
            "numpy>=1.26,<3 ; python_version >= '3.9'",
            "requests[socks]",
            "tool @ https://example.com/tool-1.0-py3-none-any.whl",
            "https://example.com/tool.tar.gz",
            "git+https://example.com/tool.git@main#egg=tool",
            "-e git+https://example.com/tool.git#egg=tool",
            "--index-url https://example.com/simple",
            "--extra-index-url=https://example.com/simple",
            "-f https://example.com/links.html",
            "--no-index",
            "--pre",
            "dependencies:",
            "- python=3.11",
        ] {
            check(line, &[]);
        }
    }

    #[test]
    fn a_conda_file_may_include_requirements() {
        let text =
            "name: a\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n    - -r requirements.txt\n    - ./package\n";
        check(text, &[Include("requirements.txt".into()), Package("./package".into())]);
        check("  - \"-r base.txt\"\n", &[Include("base.txt".into())]);
    }
}
