//! How a notebook's Jupyter is found: the job of `corro notebook` gives Jupyter a runtime directory, in which Jupyter
//! writes a file about itself. The node's agent prints both files for `corro notebook`.

/// Runtime directory of Jupyter, in the job's directory for temporary files.
pub const RUNTIME_DIRECTORY: &str = "corro-notebook";
/// File in it with the first segment of the page's path: `lab` or `tree`.
pub const APP_FILE: &str = "app";
/// Limit on the output of [`describe_script`].
pub const MAX_DESCRIPTION_BYTES: usize = 64 * 1024;

/// The shell script that prints the file with the page, and then the runtime files. It runs in the job's environment
/// and prints nothing while Jupyter starts, or if the job is no notebook.
pub fn describe_script() -> String {
    format!(
        r#"cd "${{TMPDIR:-/tmp}}/{RUNTIME_DIRECTORY}" 2>/dev/null && cat {APP_FILE} && cat -- *server-*.json 2>/dev/null; :"#
    )
}
