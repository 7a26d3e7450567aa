//! Processes in namespaces: what they cannot inspect, which directories they see, what they can still do. Run by the user of the tests and,
//! if that is root, also by an ordinary user.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use corro_launch::confinement::Confinement;
use corro_launch::namespaces::{MountView, Namespaces};
use corro_launch::process::Process;
use corro_launch::process_spec::ProcessSpec;
use corro_launch::redact::Secrets;
use corro_test_support::skip;

use common::{DEADLINE, launcher, run_to_end, shell, tag};

/// A data directory with directories of two jobs and a secret file.
struct TestDirs {
    base: tempfile::TempDir,
}

impl TestDirs {
    fn new() -> TestDirs {
        let base = tempfile::tempdir().expect("a temporary directory");
        for job in ["one", "two"] {
            fs::create_dir_all(base.path().join("data/jobs").join(job)).expect("a directory");
            fs::write(base.path().join("data/jobs").join(job).join("file"), job).expect("a file");
        }
        fs::write(base.path().join("data/master.key"), "key").expect("a file");
        TestDirs { base }
    }

    fn data(&self) -> PathBuf {
        self.base.path().canonicalize().expect("a path").join("data")
    }

    fn view(&self, job: &str) -> MountView {
        MountView::new([self.data()], [self.data().join("jobs").join(job)])
    }
}

/// `None`, with a message, where this user cannot create namespaces.
fn namespaces(view: &MountView) -> Option<Namespaces> {
    match Namespaces::create(view, None) {
        Ok(made) => Some(made),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            skip::unsupported_machine(format_args!("this machine allows no namespaces: {error}: {cause}"));
            None
        }
    }
}

#[test]
fn nothing_is_made_visible_through_a_link() {
    let dirs = TestDirs::new();
    if namespaces(&dirs.view("one")).is_none() {
        return;
    }
    // Created after the view: its target must not become visible.
    std::os::unix::fs::symlink("..", dirs.data().join("jobs/up")).expect("a link");
    for link in ["jobs/up", "jobs/up/jobs/two"] {
        let view =
            MountView { hidden: vec![dirs.data()], visible: vec![dirs.data().join(link)], read_only: Vec::new() };
        let refused = Namespaces::create(&view, None).expect_err("a link");
        assert!(refused.to_string().contains("cannot keep"), "{refused}");
    }
}

fn inside(namespaces: &Namespaces, name: &str, script: &str) -> ProcessSpec {
    let confinement = Confinement { namespaces: Some(namespaces.clone()), ..Confinement::default() };
    ProcessSpec { confinement, ..shell(&tag(name), script) }
}

/// Starts a process that runs until it is dropped; returns it and the pid of its shell.
async fn start_sleeping(mut spec: ProcessSpec) -> (Process, u32) {
    spec.env.insert("HIDDEN".to_owned(), "a-secret-of-this-job".to_owned());
    spec.argv = ["sh", "-c", "echo $$; exec sleep 100"].map(String::from).to_vec();
    let mut process = launcher().spawn(spec).await.expect("it starts");
    let stdout = process.stdout.as_mut().expect("not taken");
    let mut line = Vec::new();
    let read = async {
        while !line.ends_with(b"\n") {
            tokio::io::AsyncReadExt::read_buf(stdout, &mut line).await.expect("it says its number");
        }
    };
    tokio::time::timeout(DEADLINE, read).await.expect("soon");
    (process, String::from_utf8_lossy(&line).trim().parse().expect("a number"))
}

async fn output_of(spec: ProcessSpec) -> String {
    let process = launcher().spawn(spec).await.expect("it starts");
    let ended = run_to_end(process).await;
    format!("{}{}", ended.stdout, ended.stderr)
}

#[tokio::test]
async fn jobs_cannot_inspect_each_other() {
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    let two = namespaces(&dirs.view("two")).expect("a second is as possible as a first");
    let (_first, first) = start_sleeping(inside(&one, "first", "")).await;
    let (_plain, plain) = start_sleeping(shell(&tag("plain"), "")).await;
    let look =
        |id: u32| format!("tr '\\0' '\\n' </proc/{id}/environ; ls /proc/{id}/root /proc/{id}/cwd/ /proc/{id}/fd");
    // A process of the same job, of another one, and one without namespaces.
    let sibling = output_of(inside(&one, "sibling", &look(first))).await;
    assert!(sibling.contains("a-secret-of-this-job"), "{sibling}");
    for (who, id) in [("another job's", first), ("one without walls", plain)] {
        let seen = output_of(inside(&two, "other", &look(id))).await;
        assert!(!seen.contains("a-secret-of-this-job") && seen.contains("denied"), "{who}: {seen}");
    }
    // Processes outside of the namespaces can.
    let seen = fs::read(format!("/proc/{first}/environ")).expect("it is ours");
    assert!(String::from_utf8_lossy(&seen).contains("a-secret-of-this-job"));
}

#[tokio::test]
async fn a_job_sees_only_its_own_directories_and_cannot_unmount() {
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    let data = dirs.data().display().to_string();
    let script = format!(
        "cd {data}; find . | sort; echo written >jobs/one/new; echo no >jobs/new; \
         umount {data}; umount -l {data}; mount --bind / /mnt; cat {data}/master.key jobs/two/file; id -u"
    );
    let seen = output_of(inside(&one, "view", &script)).await;
    assert!(seen.contains("./jobs/one/file") && !seen.contains("./jobs/two"), "{seen}");
    assert!(!seen.contains("key\n") && seen.contains("No such file"), "{seen}");
    assert!(seen.contains("Read-only file system") || seen.contains("denied"), "{seen}");
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert!(seen.lines().any(|line| line == uid), "everybody is who they are: {seen}");
    assert_eq!(fs::read_to_string(dirs.data().join("jobs/one/new")).expect("it was written"), "written\n");
    assert!(!dirs.data().join("jobs/new").exists() && dirs.data().join("master.key").exists());
    // A nested user namespace gives capabilities, but none over the mounts that hide directories.
    let deeper = format!("unshare -Urm sh -c 'umount {data} || umount -l {data}; ls {data}'; true");
    let seen = output_of(inside(&one, "deeper", &deeper)).await;
    assert!(!seen.contains("master.key"), "{seen}");
}

#[tokio::test]
async fn nodes_of_a_job_share_a_user_namespace() {
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    let user = Namespaces::open_user_namespace(&one.address()).expect("it is held here");
    let other_node = Namespaces::create(&dirs.view("two"), Some(user)).expect("a second view in it");
    let (_first, first) = start_sleeping(inside(&one, "node-1", "")).await;
    let seen = output_of(inside(&other_node, "node-2", &format!("tr '\\0' '\\n' </proc/{first}/environ"))).await;
    assert!(seen.contains("a-secret-of-this-job"), "{seen}");
    let data = dirs.data().display().to_string();
    let seen = output_of(inside(&other_node, "view-2", &format!("ls {data}/jobs"))).await;
    assert_eq!(seen, "two\n");
}

/// Root inside has root's uid outside, so it owns root's files, except for read-only mounts.
#[tokio::test]
async fn root_inside_cannot_change_kernel_settings() {
    if !rustix::process::geteuid().is_root() {
        return skip::unsupported_machine("only root could change settings of the machine");
    }
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    if let Some(why) = one.left_writable() {
        assert!(why.contains("Operation not permitted"), "{why}");
        return skip::unsupported_machine(format_args!("{why}"));
    }
    let host_name = fs::read_to_string("/proc/sys/kernel/hostname").expect("it can be read");
    // Each writes the current value, so that nothing changes if it succeeds.
    let script = "for f in /proc/sys/kernel/hostname /proc/sys/vm/swappiness /proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity; do \
            test -e $f || continue; v=$(cat $f); (echo \"$v\" >$f) 2>/dev/null && echo \"wrote $f\"; done; \
         for f in /proc/sysrq-trigger $(find /sys/kernel /sys/class /sys/fs/cgroup -maxdepth 2 -type f -perm -u+w | head -n 50); do \
            test -e $f && (: >>$f) 2>/dev/null && echo \"opened $f\"; done; \
         mkdir /sys/fs/cgroup/*/corro-test-inside 2>/dev/null && echo made; \
         mount -o remount,rw /proc/sys 2>/dev/null && echo remounted; umount /proc/sys 2>/dev/null && echo unmounted; \
         unshare -Urm sh -c 'umount /proc/sys || umount -l /proc/sys || mount -o remount,bind,rw /proc/sys' 2>/dev/null && echo lifted; \
         cat /proc/sys/kernel/hostname; echo 5 >/proc/self/oom_score_adj && echo own";
    let seen = output_of(inside(&one, "settings", script)).await;
    // Its own settings can still be written.
    assert_eq!(seen, format!("{host_name}own\n"));
}

/// Mounts within a read-only directory stay writable.
#[tokio::test]
async fn a_directory_can_be_visible_read_only() {
    let dirs = TestDirs::new();
    let jobs = dirs.data().join("jobs");
    let view =
        MountView::new([dirs.data()], [jobs.join("one"), jobs.join("two")]).with_read_only(vec![jobs.join("one")]);
    let Some(one) = namespaces(&view) else { return };
    let script = format!(
        "cd {}; (: >one/file) 2>/dev/null && echo wrote; chmod 000 one 2>/dev/null && echo changed; : >two/file && echo own",
        jobs.display()
    );
    assert_eq!(output_of(inside(&one, "read-only", &script)).await, "own\n");
}

/// A job of root, or of a user with delegated cgroups, could otherwise change its own limits.
#[tokio::test]
async fn a_job_cannot_write_to_cgroups() {
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    let script = "for kind in 'cgroup2 cgroup2' 'cgroup -o pids pids' 'cgroup -o memory memory'; do \
            unshare -UrmC sh -c \"mount -t $kind /mnt\" 2>/dev/null && echo \"mounted $kind\"; \
            unshare -Urm sh -c \"mount -t $kind /mnt\" 2>/dev/null && echo \"mounted $kind without\"; done; \
        unshare -Urm true && echo others";
    assert_eq!(output_of(inside(&one, "groups", script)).await, "others\n");
}

/// A process that cleared its environment is still in the mount namespace of its job.
#[tokio::test]
async fn a_process_without_a_tag_is_found_by_its_mount_namespace() {
    let dirs = TestDirs::new();
    let Some(one) = namespaces(&dirs.view("one")) else { return };
    let two = namespaces(&dirs.view("two")).expect("a second is as possible as a first");
    let (_other, other) = start_sleeping(inside(&two, "other", "")).await;
    let (_plain, plain) = start_sleeping(shell(&tag("plain"), "")).await;
    let (mut process, shell) = start_sleeping(inside(&one, "forgets", "")).await;
    let killed = corro_launch::kill_tagged::kill_in_mount_namespace(&dirs.data().join("jobs/one"));
    assert_eq!(killed, [shell], "and nobody else: {other} is of another job, {plain} of none");
    tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("it has ended");
    assert!(common::alive(other) && common::alive(plain));
    assert!(corro_launch::kill_tagged::kill_in_mount_namespace(&dirs.data().join("jobs/three")).is_empty());
}

#[tokio::test]
async fn a_missing_visible_directory_is_named() {
    let dirs = TestDirs::new();
    let missing = dirs.data().join("jobs/three");
    let Some(_) = namespaces(&dirs.view("one")) else { return };
    let error =
        Namespaces::create(&MountView::new([dirs.data()], [missing.clone()]), None).expect_err("it is not there");
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}

#[tokio::test]
async fn secrets_in_output_are_redacted() {
    let secrets = Secrets::new(["correct horse battery", "short"]);
    let confinement = Confinement { secrets, ..Confinement::default() };
    let script = "printf 'is correct ho'; sleep 0.05; printf 'rse battery, short\\n'; echo correct horse battery >&2; printf 'corr'";
    let process =
        launcher().spawn(ProcessSpec { confinement, ..shell(&tag("says"), script) }).await.expect("it starts");
    let ended = run_to_end(process).await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("is ***, short\ncorr", "***\n"));
}

#[tokio::test]
async fn a_process_runs_only_on_its_cpus() {
    let count = |text: &str| text.trim().parse::<usize>().unwrap_or_else(|_| panic!("a number: {text}"));
    let all = output_of(shell(&tag("all"), "grep Cpus_allowed_list /proc/self/status; nproc")).await;
    let (list, n) = all.split_once('\n').expect("two lines");
    let first = list.trim_start_matches(|c: char| !c.is_ascii_digit()).split(['-', ',']).next().map(count);
    let first = u16::try_from(first.expect("a list")).expect("a processor");
    let confinement = Confinement { processors: vec![first], ..Confinement::default() };
    let bound = output_of(ProcessSpec { confinement, ..shell(&tag("bound"), "nproc") }).await;
    assert_eq!(count(&bound), 1, "of {}", count(n));
    // CPUs that do not exist restrict nothing.
    let confinement = Confinement { processors: vec![1023], ..Confinement::default() };
    let free = output_of(ProcessSpec { confinement, ..shell(&tag("free"), "nproc") }).await;
    assert_eq!(count(&free), count(n));
}

/// Runs all tests above again as an unprivileged user.
#[test]
fn an_ordinary_user_is_isolated_too() {
    let this = std::env::current_exe().expect("this executable has a path");
    let open_to_all = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005);
    let reachable = this.ancestors().all(open_to_all);
    if !rustix::process::geteuid().is_root() || !reachable {
        skip::unsupported_machine(format_args!(
            "only root can switch users, and only if others can reach {}",
            this.display()
        ));
        return;
    }
    let user = ["--reuid=61234", "--regid=61234", "--clear-groups", "--"];
    let again = ["--skip", "an_ordinary_user", "--nocapture"];
    let mut command = Command::new("setpriv");
    command.args(user).arg(&this).args(again).env("HOME", "/");
    // Root's directory may not be accessible to others.
    command.env_remove("TMPDIR");
    skip::VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    let Ok(output) = command.output() else {
        skip::missing_component("there is no setpriv on this machine");
        return;
    };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    skip::record_child(&said);
    eprint!("{said}");
}
