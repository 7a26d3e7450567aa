//! Detection of the `mpirun` on a job's master, and its command line for starting the ranks on all nodes. Without one
//! the nodes start the ranks themselves.

use std::fmt::Write as _;
use std::time::Duration;

use corro_base::error_chain;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use corro_launch::confinement::Confinement;
use corro_launch::process_spec::ProcessSpec;
use corro_model::layout::{Layout, Ranks};
use corro_model::node::TaskOrder;

use crate::shell;
use crate::task::Task;
use crate::task::control::{TaskAbort, wait_for_stop};
use crate::task::env_vars::WORKING_DIRECTORY_VARIABLE;
use crate::task::job_env::JobEnv;
use crate::task_errors;

/// Variable of the job or the agent: the launcher to use, or `none`.
pub const VARIABLE: &str = "CORRO_MPIRUN";

const VERSION_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// A launcher that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpirun {
    pub program: String,
    pub flavour: Flavour,
    /// Options with which it marks each line of output with the rank.
    pub rank_tags: &'static [&'static str],
}

/// Kind of launcher; they differ in their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    OpenMpi,
    /// MPICH, Intel MPI, MVAPICH.
    Hydra,
}

/// Looks for `mpirun` as the job's own commands would: after preparation, in the container, with the shell's start-up
/// file.
pub async fn find(task: &mut Task, job_env: &JobEnv) -> Result<Option<Mpirun>, TaskAbort> {
    if !task.order.is_master() || !matches!(task.order.layout, Layout::Mpi(_)) {
        return Ok(None);
    }
    let configured = job_env.environment.variables.get(VARIABLE).cloned();
    let configured = configured.or_else(|| std::env::var(VARIABLE).ok()).filter(|configured| !configured.is_empty());
    if configured.as_deref() == Some("none") {
        task.log.line(format_args!("{VARIABLE} is none: the nodes start the ranks themselves"));
        return Ok(None);
    }
    let program = configured.clone().unwrap_or_else(|| "mpirun".to_owned());
    let mut control = task.control.clone();
    let answer = tokio::select! {
        answer = timeout(VERSION_TIMEOUT, query_version(task, job_env, &program)) => answer,
        _ = wait_for_stop(&mut control, None) => return Err(TaskAbort::Stopped),
    };
    let answer = answer.unwrap_or_else(|_| Err("it printed no version in time".to_owned()));
    let found = answer.and_then(|answer| {
        parse_version(&answer).ok_or_else(|| "it is neither Open MPI nor of the MPICH family".to_owned())
    });
    match (found, configured) {
        (Ok(mpirun), _) => {
            let name = match mpirun.flavour {
                Flavour::OpenMpi => "Open MPI",
                Flavour::Hydra => "MPICH family",
            };
            task.log.line(format_args!("The ranks are started by {} ({name})", mpirun.program));
            if task.order.prefix_output_with_rank {
                let options = mpirun.rank_tags.join(" ");
                task.log.line(format_args!("It marks each line of output with its rank ({options})"));
            }
            Ok(Some(mpirun))
        }
        (Err(why), Some(configured)) => {
            task.log.line(format_args!("Could not use {configured}, which {VARIABLE} names: {why}"));
            Err(task_errors::mpirun(&configured, &why, &task.context.node).into())
        }
        (Err(why), None) => {
            task.log.line(format_args!("No mpirun is used ({why}): the nodes start the ranks themselves"));
            Ok(None)
        }
    }
}

async fn query_version(task: &Task, job_env: &JobEnv, program: &str) -> Result<String, String> {
    let env = job_env.environment.variables.clone();
    let mut argv = shell::command("command -v \"$0\" && \"$0\" --version", env.get("PATH").map(String::as_str));
    argv.push(program.to_owned());
    let cwd = job_env.environment.working_directory.clone();
    let (tag, confinement) = (task.tag("mpirun-version"), Confinement::default());
    let spec = ProcessSpec { argv, env, cwd, tag, confinement };
    let process = task.context.config.guard.spawn(job_env.wrap(spec)).await;
    let mut process = process.map_err(|error| error_chain::join(&error))?;
    let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
    let read = async |from: Option<_>| {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // Unread output is only missing from a message.
            let _ = AsyncReadExt::take(from, MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (exit, stdout, stderr) = tokio::join!(process.wait(), read(stdout), read(stderr));
    match exit {
        Ok(exit) if exit.success() => Ok(stdout),
        Ok(_) if stdout.is_empty() => Err(format!("{program} is not in the job's PATH")),
        Ok(exit) => Err(stderr.trim_end().lines().last().map_or_else(|| exit.to_string(), str::to_owned)),
        Err(error) => Err(error_chain::join(&error)),
    }
}

/// The launcher from its path and version output.
fn parse_version(answer: &str) -> Option<Mpirun> {
    let (program, version) = answer.split_once('\n')?;
    let version = version.to_lowercase();
    let contains = |word: &str| version.contains(word);
    let (flavour, rank_tags): (_, &[&str]) = match () {
        // Since version 5, whose launcher is that of PRRTE, the option has another name.
        () if contains("prterun") || open_mpi_major(&version) >= Some(5) => (Flavour::OpenMpi, &["--output", "tag"]),
        () if contains("open mpi") || contains("openrte") => (Flavour::OpenMpi, &["--tag-output"]),
        () if contains("hydra") || contains("intel(r) mpi") => (Flavour::Hydra, &["-prepend-rank"]),
        () => return None,
    };
    Some(Mpirun { program: program.to_owned(), flavour, rank_tags })
}

/// Major version of Open MPI in `mpirun (Open MPI) 4.1.4`, in lower case.
fn open_mpi_major(version: &str) -> Option<u32> {
    version.split_once("(open mpi) ")?.1.split('.').next()?.parse().ok()
}

/// Command line of the master: a shell that reads its start-up file and then executes the launcher.
pub fn command(
    mpirun: &Mpirun,
    order: &TaskOrder,
    ranks: &Ranks,
    exports: &[(String, String)],
    search_path: Option<&str>,
) -> Vec<String> {
    // Launchers take an address such as 127.0.0.4 for another machine and would use `ssh`.
    let names = if order.hosts.len() == 1 { vec!["localhost".to_owned()] } else { order.launch_names() };
    let hosts = order.hosts.iter().zip(&names).filter(|(host, _)| host.slots > 0);
    let host_slots: Vec<String> = hosts.map(|(host, name)| format!("{name}:{}", host.slots)).collect();
    let n_ranks: usize = order.hosts.iter().map(|host| host.slots).sum();
    let mut argv = shell::command("exec \"$0\" \"$@\"", search_path);
    argv.push(mpirun.program.clone());
    let mut push = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
    // The launcher's working directory may be hidden on other nodes; ranks change to their directory themselves.
    push(&["-np", &n_ranks.to_string(), "-wdir", "/"]);
    match mpirun.flavour {
        Flavour::OpenMpi => push(&["--allow-run-as-root", "--host", &host_slots.join(",")]),
        // Every node has its own variables of the job; the master's must not override them.
        Flavour::Hydra => push(&["-genvnone", "-localhost", &names[0], "-hosts", &host_slots.join(",")]),
    }
    if order.prefix_output_with_rank {
        argv.extend(mpirun.rank_tags.iter().map(|word| (*word).to_owned()));
    }
    argv.extend(shell::command(&rank_script(order, ranks, exports), search_path));
    argv
}

/// Script of each rank: the job's command line, with the variables of other launchers set.
fn rank_script(order: &TaskOrder, ranks: &Ranks, exports: &[(String, String)]) -> String {
    // By variable, because the path differs between the nodes.
    let directory = match &order.working_directory {
        Some(_) => WORKING_DIRECTORY_VARIABLE,
        None => "AZ_BATCHAI_JOB_TEMP",
    };
    let mut script = format!("cd \"${directory}\" || exit\n");
    script.push_str(
        "export RANK=\"${OMPI_COMM_WORLD_RANK-${PMI_RANK-}}\" WORLD_SIZE=\"${OMPI_COMM_WORLD_SIZE-${PMI_SIZE-}}\" \
        LOCAL_RANK=\"${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-}}\" PYTHONUNBUFFERED=1\n",
    );
    if ranks.indexed {
        script.push_str("export AZ_BATCHAI_TASK_INDEX=\"$RANK\"\n");
    }
    for (name, value) in exports {
        writeln!(script, "export {name}='{value}'").expect("writing to a string does not fail");
    }
    script + &ranks.command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use corro_model::layout::RankLogs;

    #[test]
    fn launchers_are_recognized_by_their_version_output() {
        let check = |answer: &str, expected| {
            let found = parse_version(answer).map(|mpirun| (mpirun.flavour, mpirun.rank_tags.join(" ")));
            assert_eq!(found.as_ref().map(|(flavour, tags)| (*flavour, tags.as_str())), expected, "{answer}");
        };
        check("/usr/bin/mpirun\nmpirun (Open MPI) 4.1.4\n", Some((Flavour::OpenMpi, "--tag-output")));
        check("/usr/bin/mpirun\nmpirun.real (OpenRTE) 1.10.2\n", Some((Flavour::OpenMpi, "--tag-output")));
        check("/usr/bin/mpirun\nmpirun (Open MPI) 5.0.7\n", Some((Flavour::OpenMpi, "--output tag")));
        check("/usr/bin/mpirun\nprterun (PRRTE) 3.0.2\n", Some((Flavour::OpenMpi, "--output tag")));
        check("/usr/bin/mpirun\nHYDRA build details:\n    Version: 4.0.2\n", Some((Flavour::Hydra, "-prepend-rank")));
        let intel = "/opt/mpirun\nIntel(R) MPI Library for Linux* OS, Version 2021.1\n";
        check(intel, Some((Flavour::Hydra, "-prepend-rank")));
        check("/usr/bin/mpirun\nsomething else\n", None);
        check("", None);
    }

    #[test]
    fn ranks_go_where_their_slots_are() {
        let mut order = testing::order(3);
        let mut hosts = order.hosts.to_vec();
        (hosts[0].slots, hosts[1].slots, hosts[2].slots) = (2, 1, 0);
        order.hosts = hosts.into();
        let logs = RankLogs::Together;
        let ranks = Ranks { command: "./a $RANK".into(), logs, indexed: true, backend: None };
        let words = |flavour| {
            let mpirun = Mpirun { program: "/usr/bin/mpirun".into(), flavour, rank_tags: &["--tags"] };
            let exports = [("MASTER_ADDR".to_owned(), "127.0.0.4".to_owned())];
            command(&mpirun, &order, &ranks, &exports, Some("/none")).join(" ")
        };
        let start = "/bin/sh -c exec \"$0\" \"$@\" /usr/bin/mpirun -np 3 -wdir /";
        let open = words(Flavour::OpenMpi);
        let expected = format!("{start} --allow-run-as-root --host 127.0.0.4:2,127.0.0.5:1 /bin/sh -c cd ");
        assert!(open.starts_with(&expected), "{open}");
        assert!(
            open.ends_with("export AZ_BATCHAI_TASK_INDEX=\"$RANK\"\nexport MASTER_ADDR='127.0.0.4'\n./a $RANK"),
            "{open}"
        );
        let hydra = words(Flavour::Hydra);
        let expected = format!("{start} -genvnone -localhost 127.0.0.4 -hosts 127.0.0.4:2,127.0.0.5:1 /bin/sh -c cd ");
        assert!(hydra.starts_with(&expected), "{hydra}");
    }

    #[test]
    fn ranks_are_marked_and_start_in_the_working_directory_if_the_job_says_so() {
        let ranks = Ranks { command: "./a".into(), logs: RankLogs::Together, indexed: false, backend: None };
        let mpirun = Mpirun { program: "mpirun".into(), flavour: Flavour::OpenMpi, rank_tags: &["--output", "tag"] };
        for (is_asked, start) in [
            (false, "/bin/sh -c cd \"$AZ_BATCHAI_JOB_TEMP\" ||"),
            (true, "/bin/sh -c cd \"$CORRO_WORKING_DIRECTORY\" ||"),
        ] {
            let mut order = testing::order(1);
            order.prefix_output_with_rank = is_asked;
            order.working_directory = is_asked.then(|| "/src".to_owned());
            let words = command(&mpirun, &order, &ranks, &[], Some("/none")).join(" ");
            assert!(words.contains(start), "{words}");
            assert_eq!(words.contains("--host localhost:1 --output tag /bin/sh"), is_asked, "{words}");
        }
    }

    #[test]
    fn nodes_of_one_machine_have_distinct_launch_names() {
        let mut order = testing::order(4);
        let mut hosts = order.hosts.to_vec();
        for (host, address) in hosts.iter_mut().zip(["10.0.0.4", "10.0.0.4", "10.0.0.5", "10.0.0.4"]) {
            (host.address, host.slots) = (address.to_owned(), 1);
        }
        order.hosts = hosts.into();
        let ranks = Ranks { command: "./a".into(), logs: RankLogs::Together, indexed: false, backend: None };
        let mpirun = Mpirun { program: "mpirun".into(), flavour: Flavour::OpenMpi, rank_tags: &[] };
        let words = command(&mpirun, &order, &ranks, &[], None);
        assert!(words.contains(&"10.0.0.4:1,127.63.0.2:1,10.0.0.5:1,127.63.0.4:1".to_owned()), "{words:?}");
        assert!(order.shares_machines() && !testing::order(4).shares_machines());
    }
}
