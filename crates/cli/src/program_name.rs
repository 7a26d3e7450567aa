//! The name under which this program was called: `corro`, or `az` where it is installed under that name.

use std::ffi::OsString;
use std::path::Path;

/// The name for messages, help and usage lines.
pub fn program_name() -> &'static str {
    name_from_path(std::env::args_os().next().as_ref())
}

/// Called as `az` the program uses that name and reports the az version that it is compatible with. Nothing else changes.
fn name_from_path(path: Option<&OsString>) -> &'static str {
    let name = path.map(Path::new).and_then(|path| path.file_name());
    if name.is_some_and(|name| name == "az") { "az" } else { "corro" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_decides() {
        assert_eq!(name_from_path(Some(&"/usr/local/bin/az".into())), "az");
        assert_eq!(name_from_path(None), "corro");
    }
}
