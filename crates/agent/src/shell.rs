//! Turns a command line into the words of a process: users write for bash. Entered by `prepare`, `ranks` and the login door.

use std::path::Path;

/// `bash -c LINE`, or `sh -c LINE` where no bash is on the job's own search path.
pub fn command(line: &str, search_path: Option<&str>) -> Vec<String> {
    [shell(search_path), "-c", line].map(str::to_owned).to_vec()
}

/// The shell of someone who logs in; on a terminal it is an interactive one.
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
    fn bash_is_taken_where_there_is_one() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().to_str().expect("a plain path");
        assert_eq!(command("a; b", Some(path)), ["/bin/sh", "-c", "a; b"]);
        std::fs::write(directory.path().join("bash"), "").expect("a file");
        assert_eq!(command("a; b", Some(&format!("/none:{path}"))), ["bash", "-c", "a; b"]);
    }
}
