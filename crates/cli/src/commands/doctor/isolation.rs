//! The lines of `corro doctor` about keeping jobs apart: what this user can enforce on this machine, each thing tried, and what
//! follows from it for jobs. `docs/ISOLATION.md` says what that protects.

use corro_agent::enforcement::{Enforcement, Probe, probe_all};
use corro_launch::namespaces::probe::Kind;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Finding, Mark, finding};

pub fn findings() -> Vec<Finding> {
    let mut findings = vec![user()];
    findings.extend(probe_all().iter().map(probe_finding));
    findings.extend([openat2(), fuse()]);
    findings
}

fn user() -> Finding {
    let uid = rustix::process::geteuid();
    match uid.is_root() {
        true => finding(
            Mark::Note,
            "user",
            "root: jobs without a container run as root and own root's files. Run the server as an ordinary user of its own where \
             others submit jobs",
        ),
        false => finding(Mark::Good, "user", format!("number {}, an ordinary user: so are its jobs", uid.as_raw())),
    }
}

fn probe_finding(probe: &Probe) -> Finding {
    let what = match probe.feature {
        Enforcement::JobIsolation => "isolation",
        Enforcement::ReadOnlySettings => "settings",
        Enforcement::Namespace(Kind::User) => "user ns",
        Enforcement::Namespace(Kind::Mount) => "mount ns",
        Enforcement::Namespace(Kind::Pid) => "pid ns",
        Enforcement::Namespace(Kind::Ipc) => "ipc ns",
        Enforcement::ControlGroup("memory") => "memory limit",
        Enforcement::ControlGroup("cpu") => "cpu limit",
        Enforcement::ControlGroup("pids") => "pids limit",
        Enforcement::ControlGroup(_) => "limit",
    };
    match &probe.result {
        Ok(()) => finding(Mark::Good, what, if_enforced(probe.feature)),
        Err(why) => finding(Mark::Note, what, format!("{why}: {}", if_not_enforced(probe.feature))),
    }
}

fn if_enforced(what: Enforcement) -> &'static str {
    match what {
        Enforcement::JobIsolation => {
            "a job's name spaces can be made: jobs see neither each other's files and variables nor the server's keys"
        }
        Enforcement::ReadOnlySettings => "jobs cannot write settings of the machine (/proc/sys, /sys)",
        Enforcement::Namespace(Kind::User) => "user name spaces can be made: no job can look into another's processes",
        Enforcement::Namespace(Kind::Mount) => "mount name spaces can be made: directories can be hidden from jobs",
        Enforcement::Namespace(Kind::Pid) => {
            "pid name spaces can be made; jobs do not get them, and see each other's command lines"
        }
        Enforcement::Namespace(Kind::Ipc) => "ipc name spaces can be made; jobs do not get them, and share /dev/shm",
        Enforcement::ControlGroup("memory") => "jobs are held to the memory of their VM size",
        Enforcement::ControlGroup("cpu") => "jobs are held to the processors of their VM size",
        Enforcement::ControlGroup("pids") => "the number of a job's processes is limited",
        Enforcement::ControlGroup(_) => "jobs are held to it",
    }
}

fn if_not_enforced(what: Enforcement) -> &'static str {
    match what {
        Enforcement::JobIsolation => {
            "jobs without a container run without name spaces while the server has one principal, and fail (IsolationFailed) with \
             more than one. Let users make name spaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns), or use containers"
        }
        Enforcement::ReadOnlySettings => {
            "a job of root can write them, and --isolation strict refuses jobs. Run the server as an ordinary user, or jobs in containers"
        }
        Enforcement::Namespace(Kind::User) => "jobs of one account can look into each other's processes",
        Enforcement::Namespace(Kind::Mount) => "nothing can be hidden from jobs",
        Enforcement::Namespace(Kind::Pid | Kind::Ipc) => "jobs do not get them anyway",
        Enforcement::ControlGroup("memory") => "a job can use all memory of this machine",
        Enforcement::ControlGroup("cpu") => "jobs are bound to processors, but a program may bind itself to others",
        Enforcement::ControlGroup(_) => "a job can start as many processes as its user may",
    }
}

/// Files of shares and nodes are opened beneath a handle with it; Linux has it from 5.6 on, and some sandboxes refuse it.
fn openat2() -> Finding {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|root| rustix::fs::openat2(&root, "proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), beneath));
    match opened {
        Ok(_) => finding(Mark::Good, "openat2", "works: no link leads out of a share or a job's directory"),
        Err(error) => finding(
            Mark::Bad,
            "openat2",
            format!("{error}: files cannot be opened safely. Linux 5.6 or later is needed"),
        ),
    }
}

fn fuse() -> Finding {
    let place = std::env::temp_dir().join(format!("corro-doctor-{}", std::process::id()));
    let checked = match std::fs::create_dir(&place) {
        Ok(()) => corro_mount::process::check_mount_point(&place).map_err(|error| error.to_string()),
        Err(error) => Err(format!("cannot make {}: {error}", place.display())),
    };
    let _ = std::fs::remove_dir(&place);
    match checked {
        Ok(_) => {
            finding(Mark::Good, "FUSE", "can be used: nodes on this machine mount shares of a server on another one")
        }
        Err(why) => finding(Mark::Note, "FUSE", format!("{why}: {NO_FUSE}")),
    }
}

const NO_FUSE: &str = "'corro mount' and nodes that join a server on another machine cannot mount shares";
