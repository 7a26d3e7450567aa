//! The job of a notebook: the options of a submission, and the shell script that finds and starts Jupyter. Jupyter listens on the loopback address of its
//! node, and asks for a token that is a secret of the job: stored encrypted, not shown, and masked in the job's output. Pure.

use corro_model::Secret;
use corro_model::notebook::{APP_FILE, RUNTIME_DIRECTORY};

use crate::commands::submit::kind::Kind;
use crate::commands::submit::options::JobOptions;
use crate::error::CliError;

/// Jupyter takes its token from this variable.
const TOKEN_VARIABLE: &str = "JUPYTER_TOKEN";
/// `$0` of the script; names of notebook jobs begin with its stem.
const SCRIPT_NAME: &str = "notebook.sh";
/// Nodes of one machine share its ports, so many may be in use.
const FIRST_PORT: u16 = 8888;
const PORT_RETRIES: u16 = 200;

/// The command of the job. `arguments` are the user's, for Jupyter.
pub fn command(arguments: &[String]) -> Vec<String> {
    let words = ["sh".to_owned(), "-c".to_owned(), script(), SCRIPT_NAME.to_owned()];
    words.into_iter().chain(arguments.iter().cloned()).collect()
}

/// Finds JupyterLab or the classic Jupyter Notebook as a program or as a Python module. Jupyter describes itself in its runtime directory, which the job
/// alone has.
fn script() -> String {
    format!(
        r#"directory="${{TMPDIR:-/tmp}}/{RUNTIME_DIRECTORY}"
mkdir -p "$directory" && chmod 700 "$directory" || exit 1
export JUPYTER_RUNTIME_DIR="$directory"
set -- --no-browser --allow-root --ip=127.0.0.1 --port={FIRST_PORT} --port-retries={PORT_RETRIES} "$@"
start() {{ echo "$1" >"$directory/{APP_FILE}"; shift; exec "$@"; }}
command -v jupyter-lab >/dev/null && start lab jupyter-lab "$@"
command -v jupyter-notebook >/dev/null && start tree jupyter-notebook "$@"
for python in python3 python; do
    "$python" -c "import jupyterlab" 2>/dev/null && start lab "$python" -m jupyterlab "$@"
    "$python" -c "import notebook" 2>/dev/null && start tree "$python" -m notebook "$@"
done
echo "corro notebook: there is no Jupyter in the environment of this job: add '--pip jupyterlab', or name one that has it with --venv, --conda-file or --image" >&2
exit 1"#
    )
}

/// The options of the job: one process on one node, with the token.
pub fn job_options(given: JobOptions, token: &Secret) -> Result<JobOptions, CliError> {
    let refused = [
        ("--nodes", given.nodes.is_some_and(|nodes| nodes != 1)),
        ("--processes", given.processes.is_some_and(|processes| processes != 1)),
        ("--kind", given.kind.is_some_and(|kind| kind != Kind::Custom)),
        ("--retry", given.retry.is_some_and(|retries| retries != 0)),
    ];
    if let Some((option, _)) = refused.iter().find(|(_, is_refused)| *is_refused) {
        return Err(CliError::usage(format!("argument {option}: a notebook is one process on one node"))
            .hint("start ranks from the notebook with 'corro submit', or with horovod.run"));
    }
    let mut secret = given.secret;
    secret.push(format!("{TOKEN_VARIABLE}={}", token.expose()));
    Ok(JobOptions { nodes: Some(1), processes: None, kind: Some(Kind::Custom), retry: None, secret, ..given })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_token_is_a_secret_and_the_job_one_process() {
        let options = JobOptions { gpus: Some(1), secret: vec!["A=b".to_owned()], ..JobOptions::default() };
        let made = job_options(options, &Secret::new("hush")).expect("options");
        assert_eq!((made.nodes, made.gpus, made.kind), (Some(1), Some(1), Some(Kind::Custom)));
        assert_eq!(made.secret, ["A=b", "JUPYTER_TOKEN=hush"]);
        let error = job_options(JobOptions { nodes: Some(2), ..JobOptions::default() }, &Secret::new("x"));
        let error = error.expect_err("refused");
        assert_eq!(
            (error.exit, error.message.as_str()),
            (2, "argument --nodes: a notebook is one process on one node")
        );
    }

    #[test]
    fn without_jupyter_the_script_says_how_to_get_it() {
        let dir = tempfile::tempdir().expect("directory");
        // A PATH with nothing but the programs that the script itself needs.
        for program in ["mkdir", "chmod", "sh"] {
            let found = ["/bin", "/usr/bin"].map(|bin| std::path::Path::new(bin).join(program));
            let found = found.iter().find(|path| path.exists()).expect("a program");
            std::os::unix::fs::symlink(found, dir.path().join(program)).expect("a link");
        }
        let words = command(&[]);
        let mut shell = Command::new(dir.path().join("sh"));
        shell.args(&words[1..]).env("PATH", dir.path()).env("TMPDIR", dir.path()).current_dir(dir.path());
        let output = shell.output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("add '--pip jupyterlab'"), "{said}");
    }
}
