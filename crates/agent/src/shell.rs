//! Turns a command line into the words of a process: users write for bash. Entered by `prepare` and `ranks`.

use std::path::Path;

/// `bash -c LINE`, or `sh -c LINE` where no bash is on the job's own search path.
pub fn command(line: &str, search_path: Option<&str>) -> Vec<String> {
    let directories = search_path.unwrap_or("/usr/bin:/bin").split(':').filter(|directory| !directory.is_empty());
    let shell = match directories.map(Path::new).any(|directory| directory.join("bash").is_file()) {
        true => "bash",
        false => "/bin/sh",
    };
    [shell, "-c", line].map(str::to_owned).to_vec()
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
