//! `corro run`: starts ranks on this machine without a server, with the options of `horovodrun`. Translates options into a gang and its outcome into
//! messages and an exit code; the launch crate runs it.

mod elastic;
mod removed_api_hints;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use corro_launch::compat;
use corro_launch::exit::Exit;
use corro_launch::gang::{self, Failure, GangSpec, Outcome};
use corro_launch::process::Launcher;
use corro_launch::rank_assignment::{Host, first_slots};
use corro_model::root_cause::{Cause, End, cause_in, find_root_cause};

use crate::stdio::note;
use crate::terminal_filter::FilteredWriter;

#[derive(Debug, clap::Args)]
// Doc comments of arguments are their --help text, where backticks would be printed.
#[allow(rustdoc::invalid_html_tags, rustdoc::broken_intra_doc_links)]
pub struct RunArgs {
    /// Number of ranks. Also written -np [default: one for each slot of the hosts]
    #[arg(short = 'n', long = "num-proc", alias = "np", value_name = "N", allow_negative_numbers = true, value_parser = parse_rank_count)]
    num_proc: Option<usize>,

    /// Hosts and their slots, such as localhost:4. Only this machine is supported
    #[arg(short = 'H', long, value_name = "HOST:SLOTS,...", conflicts_with = "hostfile")]
    hosts: Option<String>,

    /// File with one host per line, such as "localhost slots=4"
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,

    /// Write the output of each rank also to DIR/rank.<rank>/stdout and stderr
    #[arg(long, value_name = "DIR")]
    output_filename: Option<PathBuf>,

    /// Do not print "[<rank>]<stdout>:" before each line of output
    #[arg(long)]
    no_prefix: bool,

    /// Compatibility layer for Python scripts that use removed APIs. The only one is keras-2018
    #[arg(long, value_name = "NAME", value_parser = compat_name)]
    compat: Option<String>,

    #[command(flatten)]
    elastic: elastic::ElasticArgs,

    /// Accepted for scripts written for horovodrun, and ignored
    #[arg(long, alias = "use-gloo", hide = true)]
    gloo: bool,

    /// Accepted for scripts written for horovodrun, and ignored
    #[arg(long, hide = true)]
    verbose: bool,

    /// Command that every rank runs. Put -- before a command that begins with a dash
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Time between SIGTERM and SIGKILL of ranks, as in horovodrun.
const TERMINATION_GRACE: Duration = Duration::from_secs(5);

pub async fn run(args: RunArgs) -> Result<ExitCode> {
    let listed = match (&args.hosts, &args.hostfile) {
        (Some(hosts), _) => Some(parse_hosts(hosts)?),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the host file {}", path.display()))?;
            Some(parse_hostfile(&text)?)
        }
        (None, None) => None,
    };
    let elastic = args.elastic.plan(listed.as_deref(), args.num_proc)?;
    let hosts = match &elastic {
        Some(plan) => plan.hosts.clone(),
        None => choose_hosts(listed, args.num_proc)?,
    };
    ensure_local(&hosts, &hostname())?;
    let size: usize = hosts.iter().map(|host| host.slots).sum();
    let mut env = utf8_environment();
    let layer = args.compat.as_deref().map(|name| add_compat_layer(name, &mut env)).transpose()?;
    let spec = GangSpec {
        argv: args.command,
        env,
        cwd: std::env::current_dir().context("cannot determine the current directory; it may have been deleted")?,
        hosts,
        prefix: !args.no_prefix,
        output_dir: args.output_filename,
        grace: TERMINATION_GRACE,
        find_cause: |lines| cause_in(&lines.join("\n")).and_then(Cause::rank),
    };
    if let Some(plan) = elastic {
        return Ok(ExitCode::from(exit_byte(plan.run(spec).await?)));
    }
    let stops = gang::stop_signals().context("cannot listen for Ctrl-C")?;
    let (out, err) = (FilteredWriter::new(io::stdout()), FilteredWriter::new(io::stderr()));
    let outcome = gang::run(&Launcher::this_executable(), &spec, stops, out, err).await?;
    let mut exit_code = outcome.exit_code();
    match &outcome {
        Outcome::Succeeded => {}
        Outcome::Failed(failures) => {
            let Some(failure) = root_cause(failures) else { bail!("the ranks failed for an unknown reason") };
            exit_code = failure.exit.shell_code();
            note(describe(failure, size).trim_end());
            let removed_api = removed_api_hints::find_hint(&failure.stderr_tail).filter(|_| layer.is_none());
            let hint = removed_api.or_else(|| hint_to_start(&spec.argv, &spec.cwd, exit_code, size));
            if let Some(hint) = hint {
                note(format_args!("\nhint: {hint}"));
            }
        }
        Outcome::Stopped(signal) => {
            note(format_args!("corro: stopped by {}; all ranks have ended", Exit::Signal(*signal)));
        }
    }
    Ok(ExitCode::from(exit_byte(exit_code)))
}

/// Exit codes of a command that cannot be executed, or was not found in `PATH`.
const NOT_STARTED: [i32; 2] = [126, 127];

/// The hint for a command that is a file of the working directory and was not started: without a slash it is looked up in `PATH` only, and it may
/// not be executable.
fn hint_to_start(argv: &[String], cwd: &Path, exit_code: i32, size: usize) -> Option<String> {
    let program = argv.first()?;
    let file = cwd.join(program).metadata().ok().filter(|file| file.is_file() && NOT_STARTED.contains(&exit_code))?;
    let is_executable = file.permissions().mode() & 0o111 != 0;
    let command = match Path::new(program).extension().and_then(|extension| extension.to_str()) {
        Some("py") => format!("python3 {program}"),
        Some("sh") => format!("sh {program}"),
        _ if !is_executable => return Some(format!("{program} is not executable: run 'chmod +x {program}'")),
        _ if !program.contains('/') => format!("./{program}"),
        // The interpreter of its first line is missing, and the message says so.
        _ => return None,
    };
    Some(format!("corro run -np {size} {command}"))
}

/// The rank whose failure caused that of the others.
fn root_cause(failures: &[Failure]) -> Option<&Failure> {
    let tails: Vec<String> = failures.iter().map(|failure| failure.stderr_tail.join("\n")).collect();
    let ends = failures.iter().zip(&tails).enumerate().map(|(nth, (failure, stderr))| End {
        rank: Some(failure.rank),
        at: nth as i64,
        succeeded: false,
        stopped: failure.stopped,
        stderr,
    });
    find_root_cause(&ends.collect::<Vec<_>>()).map(|index| &failures[index])
}

fn compat_name(text: &str) -> Result<String, String> {
    compat::check(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

/// Unpacks the compatibility layer into a temporary directory, which is removed when the handle is dropped, and sets its variables.
fn add_compat_layer(name: &str, env: &mut BTreeMap<String, String>) -> Result<tempfile::TempDir> {
    let directory = tempfile::Builder::new().prefix("corro-compat-").tempdir();
    let directory = directory.context("cannot create a temporary directory for the compatibility layer")?;
    compat::install(name, directory.path(), env)?;
    Ok(directory)
}

fn parse_rank_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there must be at least 1 rank".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("give a whole number, at least 1".to_owned()),
    }
}

/// Hosts and slots for exactly the requested number of ranks. Horovod starts a rank on every listed slot even if `-np` is smaller, which surprises;
/// more ranks than slots are rejected as in Horovod.
fn choose_hosts(listed: Option<Vec<Host>>, num_proc: Option<usize>) -> Result<Vec<Host>> {
    match (listed, num_proc) {
        (None, None) => bail!("the number of ranks is missing\n\nhint: corro run -n 4 COMMAND"),
        (None, Some(n)) => Ok(vec![Host { name: "localhost".into(), slots: n }]),
        (Some(hosts), None) => {
            let slots = hosts.iter().map(|host| host.slots).sum();
            choose_hosts(Some(hosts), Some(slots))
        }
        (Some(hosts), Some(n)) => first_slots(&hosts, n).with_context(|| {
            let slots: usize = hosts.iter().map(|host| host.slots).sum();
            format!(
                "Requested more processes ({n}) than there are available slots ({slots})\n\n\
                 hint: give the hosts more slots, or ask for at most {slots} with -n"
            )
        }),
    }
}

fn parse_hosts(text: &str) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for part in text.split(',') {
        let host = part.split_once(':').and_then(|(name, slots)| parse_host(name, slots)).with_context(|| {
            format!(
                "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2.\n\n\
                 hint: `{part}` is not a host name, a colon and a number of slots"
            )
        })?;
        add_host(&mut hosts, host);
    }
    Ok(hosts)
}

fn parse_hostfile(text: &str) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for (line_idx, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let parsed = line
            .split_once(char::is_whitespace)
            .and_then(|(name, rest)| parse_host(name, rest.trim().strip_prefix("slots=")?));
        let host = parsed.with_context(|| {
            let n = line_idx + 1;
            format!("line {n} of the host file is not a host: `{line}`\n\nhint: write it as `localhost slots=2`")
        })?;
        add_host(&mut hosts, host);
    }
    Ok(hosts)
}

/// Parses a host. Names follow Horovod's rule `[\w.-]+`.
fn parse_host(name: &str, slots: &str) -> Option<Host> {
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c));
    let is_number = !slots.is_empty() && slots.bytes().all(|byte| byte.is_ascii_digit());
    (is_name && is_number).then_some(())?;
    Some(Host { name: name.to_owned(), slots: slots.parse().ok()? })
}

/// Adds a host. The slots of a host that is listed twice are added up.
fn add_host(hosts: &mut Vec<Host>, host: Host) {
    match hosts.iter_mut().find(|known| known.name == host.name) {
        Some(known) => known.slots = known.slots.saturating_add(host.slots),
        None => hosts.push(host),
    }
}

fn ensure_local(hosts: &[Host], hostname: &str) -> Result<()> {
    match hosts.iter().find(|host| !is_local(&host.name, hostname)) {
        None => Ok(()),
        Some(Host { name, .. }) => bail!(
            "cannot start ranks on {name}: `corro run` starts ranks on this machine only ({hostname})\n\n\
             hint: name this machine (localhost:4), or make {name} a node of a cluster with `corro agent` and submit a job"
        ),
    }
}

fn is_local(name: &str, hostname: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    match name.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => {
            name.eq_ignore_ascii_case("localhost")
                || name.eq_ignore_ascii_case(hostname)
                || (!name.contains('.') && !hostname.is_empty() && short(name) == short(hostname))
        }
    }
}

fn hostname() -> String {
    // Without a name only localhost and 127.x count as this machine.
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The user's environment, for the ranks. Variables that are not UTF-8 are left out.
fn utf8_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn describe(failure: &Failure, size: usize) -> String {
    let Failure { rank, host, exit, stderr_tail, .. } = failure;
    let mut text = format!("corro: rank {rank} of {size} on {host} ended with {exit}");
    text.push_str(if size > 1 { "; the other ranks were stopped\n" } else { "\n" });
    if !stderr_tail.is_empty() {
        text.push_str("its last lines on stderr:\n");
        for line in stderr_tail {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

fn exit_byte(code: i32) -> u8 {
    // Exit codes are 0..=255; any other value counts as a failure.
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts as `name:slots` words, or the first line of the error.
    fn hosts_text(hosts: Result<Vec<Host>>) -> String {
        match hosts {
            Ok(hosts) => hosts.iter().map(|h| format!("{}:{}", h.name, h.slots)).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        }
    }

    const INVALID: &str = "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2.";

    #[test]
    fn hosts_are_parsed() {
        for (text, expected) in [
            ("localhost:2", "localhost:2"),
            ("a:1,b-1.x:2", "a:1 b-1.x:2"),
            ("a:1,b:1,a:2", "a:3 b:1"),
            ("a", INVALID),
            ("a:", INVALID),
            ("a:+1", INVALID),
            (":1", INVALID),
            ("a:1,", INVALID),
            ("a b:1", INVALID),
        ] {
            assert_eq!(hosts_text(parse_hosts(text)), expected, "{text:?}");
        }
    }

    #[test]
    fn a_script_that_was_not_started_is_given_its_interpreter() {
        let dir = tempfile::tempdir().expect("temp dir");
        for (name, mode) in [("train.py", 0o644), ("run.sh", 0o755), ("tool", 0o755), ("data", 0o644)] {
            std::fs::write(dir.path().join(name), "").expect("written");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path().join(name), permissions).expect("the owner may");
        }
        std::fs::create_dir(dir.path().join("folder.py")).expect("made");
        for (program, exit_code, expected) in [
            ("train.py", 127, Some("corro run -np 2 python3 train.py")),
            ("./train.py", 126, Some("corro run -np 2 python3 ./train.py")),
            ("run.sh", 127, Some("corro run -np 2 sh run.sh")),
            ("tool", 127, Some("corro run -np 2 ./tool")),
            ("./tool", 127, None),
            ("data", 127, Some("data is not executable: run 'chmod +x data'")),
            ("train.py", 1, None),
            ("missing.py", 127, None),
            ("folder.py", 126, None),
        ] {
            let argv = [program.to_owned(), "--epochs".to_owned()];
            assert_eq!(hint_to_start(&argv, dir.path(), exit_code, 2).as_deref(), expected, "{program}");
        }
    }

    #[test]
    fn host_files_are_parsed() {
        let text = "# two\nlocalhost slots=2\n\n127.0.0.1\tslots=1 # more\n";
        assert_eq!(hosts_text(parse_hostfile(text)), "localhost:2 127.0.0.1:1");
        assert_eq!(
            hosts_text(parse_hostfile("\nlocalhost 2\n")),
            "line 2 of the host file is not a host: `localhost 2`"
        );
    }

    #[test]
    fn the_requested_number_of_slots_is_chosen() {
        let listed = || Some(parse_hosts("a:2,b:2").expect("valid"));
        for (listed, n, expected) in [
            (None, Some(3), "localhost:3"),
            (None, None, "the number of ranks is missing"),
            (listed(), None, "a:2 b:2"),
            (listed(), Some(3), "a:2 b:1"),
            (listed(), Some(2), "a:2"),
            (listed(), Some(5), "Requested more processes (5) than there are available slots (4)"),
        ] {
            assert_eq!(hosts_text(choose_hosts(listed, n)), expected);
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        for (name, expected) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("127.3.2.1", true),
            ("box.lab.example", true),
            ("Box", true),
            ("box.other.example", false),
            ("10.0.0.4", false),
            ("worker-1", false),
        ] {
            assert_eq!(is_local(name, "box.lab.example"), expected, "{name}");
        }
    }

    #[test]
    fn a_failure_names_rank_exit_and_last_lines() {
        let failure = Failure {
            rank: 1,
            host: "localhost".into(),
            exit: Exit::Signal(9),
            stopped: false,
            stderr_tail: vec!["a".into(), "b".into()],
        };
        let expected = "corro: rank 1 of 4 on localhost ended with signal 9 (SIGKILL); the other ranks were stopped\n\
                        its last lines on stderr:\n    a\n    b\n";
        assert_eq!(describe(&failure, 4), expected);
    }
}
