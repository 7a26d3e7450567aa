//! Rank processes connect with the variables of every launcher, and under real `mpirun`s.

mod processes;

use std::ffi::OsString;
use std::process::Command;

use corro_test_support::skip;
use processes::{Gang, Rank, Variables, new_job, own_command, torchrun, variables};

const COMMANDS: (&str, &str) = ("RANK_COMMANDS", "all once;all again");

/// Starts `n` processes with the variables of a launcher, and runs all collectives through both APIs.
fn check(launcher: &str, n: usize, rank_variables: impl Fn(usize, &str) -> Variables) {
    for api in ["ordered", "named"] {
        println!("{launcher}, {api}");
        let job = new_job().replace(' ', "");
        let start =
            |rank| Rank::start(own_command(), &[rank_variables(rank, &job), variables(&[("RANK_API", api)])].concat());
        let mut gang = Gang { ranks: (0..n).map(start).collect() };
        gang.wait_all("ready");
        gang.run_all("all once");
        gang.leave();
    }
}

#[test]
fn the_variables_of_every_launcher_are_understood() {
    check("torchrun", 2, |rank, job| torchrun(rank, 2, job));
    check("mpirun of Open MPI", 2, |rank, job| {
        let rank = &*rank.to_string();
        variables(&[
            ("OMPI_COMM_WORLD_RANK", rank),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_NAMESPACE", job),
        ])
    });
    check("mpirun of MPICH", 2, |rank, job| {
        let rank = &*rank.to_string();
        variables(&[
            ("PMI_RANK", rank),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", rank),
            ("MPI_LOCALNRANKS", "2"),
            ("PMI_JOBID", job),
        ])
    });
    check("srun", 2, |rank, _| {
        let rank = &*rank.to_string();
        let job = &*std::process::id().to_string();
        variables(&[
            ("SLURM_JOB_ID", job),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", rank),
            ("SLURM_LOCALID", rank),
            ("SLURM_NODEID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "n1"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ])
    });
    check("nobody", 1, |_, _| Variables::new());
}

#[test]
fn a_real_mpirun_starts_ranks() {
    for (program, options) in [
        ("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "-np", "3"][..]),
        ("mpirun.mpich", &["-np", "3"]),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            skip::missing_component(format_args!("{program} is not installed"));
            continue;
        }
        // Two jobs at the same time must not mix.
        let start = |api: &str| {
            let command = std::iter::once(program).chain(options.iter().copied()).map(OsString::from);
            let home = std::env::temp_dir();
            let home = home.to_str().expect("a path that is text");
            let environment = variables(&[("RANK_API", api), COMMANDS, ("HOME", home), ("LANG", "C")]);
            Rank::start(command.chain(own_command()).collect(), &environment)
        };
        let mut jobs = [start("ordered"), start("named")];
        for job in &mut jobs {
            for _ in 0..3 {
                job.wait_for("left");
            }
            assert!(!job.has_output("failed") && !job.has_output("refused"), "{program}: {}", job.stderr());
            assert!(job.child.wait().expect("a child can be waited for").success(), "{program}: {}", job.stderr());
        }
    }
}
