//! Checks of `corro doctor` about job isolation: which namespaces and cgroup limits this user can set up, each actually tried, and what follows for
//! jobs. `docs/src/operators/isolation.md` explains what they protect.

use corro_agent::enforcement::{Enforcement, Probe, probe_all};
use corro_launch::namespaces::probe::Kind;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Finding, Severity, finding};

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
            Severity::Note,
            "user",
            "root: jobs without a container run as root and own root's files. Run the server as an ordinary user of its own where \
             others submit jobs",
        ),
        false => {
            finding(Severity::Ok, "user", format!("uid {}, an ordinary user: jobs run as that user", uid.as_raw()))
        }
    }
}

fn probe_finding(probe: &Probe) -> Finding {
    let subject = match probe.feature {
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
        Ok(()) => finding(Severity::Ok, subject, text_if_enforced(probe.feature)),
        Err(why) => finding(Severity::Note, subject, format!("{why}: {}", text_if_not_enforced(probe.feature))),
    }
}

fn text_if_enforced(feature: Enforcement) -> &'static str {
    match feature {
        Enforcement::JobIsolation => {
            "a job's namespaces can be created: jobs see neither each other's files and variables nor the server's keys"
        }
        Enforcement::ReadOnlySettings => "jobs cannot write settings of the machine (/proc/sys, /sys)",
        Enforcement::Namespace(Kind::User) => {
            "user namespaces can be created: no job can look into another's processes"
        }
        Enforcement::Namespace(Kind::Mount) => "mount namespaces can be created: directories can be hidden from jobs",
        Enforcement::Namespace(Kind::Pid) => {
            "pid namespaces can be created; jobs do not get them, and see each other's command lines"
        }
        Enforcement::Namespace(Kind::Ipc) => "ipc namespaces can be created; jobs do not get them, and share /dev/shm",
        Enforcement::ControlGroup("memory") => "jobs are held to the memory of their VM size",
        Enforcement::ControlGroup("cpu") => "jobs are held to the processors of their VM size",
        Enforcement::ControlGroup("pids") => "the number of a job's processes is limited",
        Enforcement::ControlGroup(_) => "jobs are held to it",
    }
}

fn text_if_not_enforced(feature: Enforcement) -> &'static str {
    match feature {
        Enforcement::JobIsolation => {
            "jobs without a container run without namespaces while the server has one principal, and fail (IsolationFailed) with \
             more than one. Let users create namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
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

/// Files of shares and nodes are opened with `openat2` and RESOLVE_BENEATH. It needs Linux 5.6, and some sandboxes forbid it.
fn openat2() -> Finding {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|root| rustix::fs::openat2(&root, "proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), beneath));
    match opened {
        Ok(_) => finding(Severity::Ok, "openat2", "works: no link leads out of a share or a job's directory"),
        Err(error) => finding(
            Severity::Error,
            "openat2",
            format!("{error}: files cannot be opened safely. Linux 5.6 or later is needed"),
        ),
    }
}

fn fuse() -> Finding {
    let directory = std::env::temp_dir().join(format!("corro-doctor-{}", std::process::id()));
    let checked = match std::fs::create_dir(&directory) {
        Ok(()) => corro_mount::process::check_mount_point(&directory).map_err(|error| error.to_string()),
        Err(error) => Err(format!("cannot create {}: {error}", directory.display())),
    };
    let _ = std::fs::remove_dir(&directory);
    match checked {
        Ok(_) => {
            finding(Severity::Ok, "FUSE", "can be used: nodes on this machine mount shares of a server on another one")
        }
        Err(why) => finding(Severity::Note, "FUSE", format!("{why}: {FUSE_MISSING_EFFECT}")),
    }
}

const FUSE_MISSING_EFFECT: &str = "'corro mount' and nodes that join a server on another machine cannot mount shares";
