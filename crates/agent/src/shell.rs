//! Builds the argv that runs a user's command line in a shell. Command lines are written for bash.

use std::path::Path;

/// `bash -c LINE`, or `/bin/sh -c LINE` if no directory of `search_path` has a bash.
pub fn command(line: &str, search_path: Option<&str>) -> Vec<String> {
    [shell(search_path), "-c", line].map(str::to_owned).to_vec()
}

/// Login shell of an SSH session; interactive on a terminal.
pub fn login(search_path: Option<&str>) -> Vec<String> {
    [shell(search_path), "-l"].map(str::to_owned).to_vec()
}

fn shell(search_path: Option<&str>) -> &'static str {
    let directories = search_path.unwrap_or("/usr/bin:/bin").split(':').filter(|directory| !directory.is_empty());
    match directories.map(Path::new).any(|directory| directory.join("bash").is_file()) {
        true => "bash",
        false => "/bin/sh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_is_preferred() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().to_str().expect("a plain path");
        assert_eq!(command("a; b", Some(path)), ["/bin/sh", "-c", "a; b"]);
        std::fs::write(directory.path().join("bash"), "").expect("a file");
        assert_eq!(command("a; b", Some(&format!("/none:{path}"))), ["bash", "-c", "a; b"]);
    }
}
