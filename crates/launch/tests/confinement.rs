//! Processes in name spaces of their own, really: what they cannot look into, what they do not see, what they still can do. The same
//! is tried by the user who runs the tests and, where that is root, by an ordinary one.

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

use common::{DEADLINE, launcher, shell, tag, to_end};

/// A directory with something of two jobs and something of nobody's business.
struct House {
    base: tempfile::TempDir,
}

impl House {
    fn new() -> House {
        let base = tempfile::tempdir().expect("a temporary directory");
        for job in ["one", "two"] {
            fs::create_dir_all(base.path().join("data/jobs").join(job)).expect("a directory");
            fs::write(base.path().join("data/jobs").join(job).join("file"), job).expect("a file");
        }
        fs::write(base.path().join("data/master.key"), "key").expect("a file");
        House { base }
    }

    fn data(&self) -> PathBuf {
        self.base.path().canonicalize().expect("a path").join("data")
    }

    fn view(&self, job: &str) -> MountView {
        MountView::new([self.data()], [self.data().join("jobs").join(job)])
    }
}

/// `None`, told loudly, where this machine allows no name spaces to this user.
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
fn nothing_is_shown_through_a_link() {
    let house = House::new();
    if namespaces(&house.view("one")).is_none() {
        return;
    }
    // Put there after the view was made: what it leads to must not be shown in its place.
    std::os::unix::fs::symlink("..", house.data().join("jobs/up")).expect("a link");
    for link in ["jobs/up", "jobs/up/jobs/two"] {
        let view =
            MountView { hidden: vec![house.data()], visible: vec![house.data().join(link)], read_only: Vec::new() };
        let refused = Namespaces::create(&view, None).expect_err("a link");
        assert!(refused.to_string().contains("cannot keep"), "{refused}");
    }
}

fn inside(namespaces: &Namespaces, name: &str, script: &str) -> ProcessSpec {
    let confinement = Confinement { namespaces: Some(namespaces.clone()), ..Confinement::default() };
    ProcessSpec { confinement, ..shell(&tag(name), script) }
}

/// A process that stays until it is dropped, and the number of its shell.
async fn stays(mut spec: ProcessSpec) -> (Process, u32) {
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

async fn says(spec: ProcessSpec) -> String {
    let process = launcher().spawn(spec).await.expect("it starts");
    let ended = to_end(process).await;
    format!("{}{}", ended.stdout, ended.stderr)
}

#[tokio::test]
async fn jobs_do_not_look_into_each_other() {
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    let two = namespaces(&house.view("two")).expect("a second is as possible as a first");
    let (_first, first) = stays(inside(&one, "first", "")).await;
    let (_plain, plain) = stays(shell(&tag("plain"), "")).await;
    let look =
        |id: u32| format!("tr '\\0' '\\n' </proc/{id}/environ; ls /proc/{id}/root /proc/{id}/cwd/ /proc/{id}/fd");
    // A process of the same job, a process of another one, and one without walls.
    let sibling = says(inside(&one, "sibling", &look(first))).await;
    assert!(sibling.contains("a-secret-of-this-job"), "{sibling}");
    for (who, id) in [("another job's", first), ("one without walls", plain)] {
        let seen = says(inside(&two, "other", &look(id))).await;
        assert!(!seen.contains("a-secret-of-this-job") && seen.contains("denied"), "{who}: {seen}");
    }
    // Whoever guards them does.
    let seen = fs::read(format!("/proc/{first}/environ")).expect("it is ours");
    assert!(String::from_utf8_lossy(&seen).contains("a-secret-of-this-job"));
}

#[tokio::test]
async fn a_job_sees_its_own_directories_only_and_cannot_lift_what_hides() {
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    let data = house.data().display().to_string();
    let script = format!(
        "cd {data}; find . | sort; echo written >jobs/one/new; echo no >jobs/new; \
         umount {data}; umount -l {data}; mount --bind / /mnt; cat {data}/master.key jobs/two/file; id -u"
    );
    let seen = says(inside(&one, "view", &script)).await;
    assert!(seen.contains("./jobs/one/file") && !seen.contains("./jobs/two"), "{seen}");
    assert!(!seen.contains("key\n") && seen.contains("No such file"), "{seen}");
    assert!(seen.contains("Read-only file system") || seen.contains("denied"), "{seen}");
    let uid = rustix::process::geteuid().as_raw().to_string();
    assert!(seen.lines().any(|line| line == uid), "everybody is who they are: {seen}");
    assert_eq!(fs::read_to_string(house.data().join("jobs/one/new")).expect("it was written"), "written\n");
    assert!(!house.data().join("jobs/new").exists() && house.data().join("master.key").exists());
    // A name space of users within this one brings rights, and none over what hides.
    let deeper = format!("unshare -Urm sh -c 'umount {data} || umount -l {data}; ls {data}'; true");
    let seen = says(inside(&one, "deeper", &deeper)).await;
    assert!(!seen.contains("master.key"), "{seen}");
}

#[tokio::test]
async fn nodes_of_a_job_meet_in_one_name_space_of_users() {
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    let user = Namespaces::open_user_namespace(&one.address()).expect("it is held here");
    let other_node = Namespaces::create(&house.view("two"), Some(user)).expect("a second view in it");
    let (_first, first) = stays(inside(&one, "node-1", "")).await;
    let seen = says(inside(&other_node, "node-2", &format!("tr '\\0' '\\n' </proc/{first}/environ"))).await;
    assert!(seen.contains("a-secret-of-this-job"), "{seen}");
    let data = house.data().display().to_string();
    let seen = says(inside(&other_node, "view-2", &format!("ls {data}/jobs"))).await;
    assert_eq!(seen, "two\n");
}

/// Root inside has root's number outside, so files of root are its own, but for what is read-only.
#[tokio::test]
async fn root_inside_changes_no_settings_of_the_machine() {
    if !rustix::process::geteuid().is_root() {
        return skip::unsupported_machine("only root could change settings of the machine");
    }
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    if let Some(why) = one.left_writable() {
        assert!(why.contains("Operation not permitted"), "{why}");
        return skip::unsupported_machine(format_args!("{why}"));
    }
    let host_name = fs::read_to_string("/proc/sys/kernel/hostname").expect("it can be read");
    // Each writes what is there already, so that nothing is changed should it be possible.
    let script = "for f in /proc/sys/kernel/hostname /proc/sys/vm/swappiness /proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity; do \
            test -e $f || continue; v=$(cat $f); (echo \"$v\" >$f) 2>/dev/null && echo \"wrote $f\"; done; \
         for f in /proc/sysrq-trigger $(find /sys/kernel /sys/class /sys/fs/cgroup -maxdepth 2 -type f -perm -u+w | head -n 50); do \
            test -e $f && (: >>$f) 2>/dev/null && echo \"opened $f\"; done; \
         mkdir /sys/fs/cgroup/*/corro-test-inside 2>/dev/null && echo made; \
         mount -o remount,rw /proc/sys 2>/dev/null && echo remounted; umount /proc/sys 2>/dev/null && echo unmounted; \
         unshare -Urm sh -c 'umount /proc/sys || umount -l /proc/sys || mount -o remount,bind,rw /proc/sys' 2>/dev/null && echo lifted; \
         cat /proc/sys/kernel/hostname; echo 5 >/proc/self/oom_score_adj && echo own";
    let seen = says(inside(&one, "settings", script)).await;
    // What is its own it may still say.
    assert_eq!(seen, format!("{host_name}own\n"));
}

/// What is mounted in it can be written to, and what is only a directory cannot.
#[tokio::test]
async fn a_directory_can_be_shown_read_only() {
    let house = House::new();
    let jobs = house.data().join("jobs");
    let view =
        MountView::new([house.data()], [jobs.join("one"), jobs.join("two")]).with_read_only(vec![jobs.join("one")]);
    let Some(one) = namespaces(&view) else { return };
    let script = format!(
        "cd {}; (: >one/file) 2>/dev/null && echo wrote; chmod 000 one 2>/dev/null && echo changed; : >two/file && echo own",
        jobs.display()
    );
    assert_eq!(says(inside(&one, "read-only", &script)).await, "own\n");
}

/// Root's job, or that of a user to whom groups are delegated, would write to its own group: its limits are there.
#[tokio::test]
async fn a_job_reaches_no_control_group() {
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    let script = "for kind in 'cgroup2 cgroup2' 'cgroup -o pids pids' 'cgroup -o memory memory'; do \
            unshare -UrmC sh -c \"mount -t $kind /mnt\" 2>/dev/null && echo \"mounted $kind\"; \
            unshare -Urm sh -c \"mount -t $kind /mnt\" 2>/dev/null && echo \"mounted $kind without\"; done; \
        unshare -Urm true && echo others";
    assert_eq!(says(inside(&one, "groups", script)).await, "others\n");
}

/// Whatever a process did to its environment, it is in its job's name space of mounts.
#[tokio::test]
async fn what_forgot_its_tag_is_found_by_what_its_job_is_shown() {
    let house = House::new();
    let Some(one) = namespaces(&house.view("one")) else { return };
    let two = namespaces(&house.view("two")).expect("a second is as possible as a first");
    let (_other, other) = stays(inside(&two, "other", "")).await;
    let (_plain, plain) = stays(shell(&tag("plain"), "")).await;
    let (mut process, shell) = stays(inside(&one, "forgets", "")).await;
    let killed = corro_launch::kill_tagged::kill_in_mount_namespace(&house.data().join("jobs/one"));
    assert_eq!(killed, [shell], "and nobody else: {other} is of another job, {plain} of none");
    tokio::time::timeout(DEADLINE, process.wait()).await.expect("in time").expect("it has ended");
    assert!(common::alive(other) && common::alive(plain));
    assert!(corro_launch::kill_tagged::kill_in_mount_namespace(&house.data().join("jobs/three")).is_empty());
}

#[tokio::test]
async fn what_cannot_be_shown_is_named() {
    let house = House::new();
    let missing = house.data().join("jobs/three");
    let Some(_) = namespaces(&house.view("one")) else { return };
    let error =
        Namespaces::create(&MountView::new([house.data()], [missing.clone()]), None).expect_err("it is not there");
    assert!(error.to_string().contains(&missing.display().to_string()), "{error}");
}

#[tokio::test]
async fn a_process_does_not_say_its_secrets() {
    let secrets = Secrets::new(["correct horse battery", "short"]);
    let confinement = Confinement { secrets, ..Confinement::default() };
    let script = "printf 'is correct ho'; sleep 0.05; printf 'rse battery, short\\n'; echo correct horse battery >&2; printf 'corr'";
    let process =
        launcher().spawn(ProcessSpec { confinement, ..shell(&tag("says"), script) }).await.expect("it starts");
    let ended = to_end(process).await;
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("is ***, short\ncorr", "***\n"));
}

#[tokio::test]
async fn a_process_runs_where_it_is_told_and_nowhere_else() {
    let count = |text: &str| text.trim().parse::<usize>().unwrap_or_else(|_| panic!("a number: {text}"));
    let all = says(shell(&tag("all"), "grep Cpus_allowed_list /proc/self/status; nproc")).await;
    let (list, n) = all.split_once('\n').expect("two lines");
    let first = list.trim_start_matches(|c: char| !c.is_ascii_digit()).split(['-', ',']).next().map(count);
    let first = u16::try_from(first.expect("a list")).expect("a processor");
    let confinement = Confinement { processors: vec![first], ..Confinement::default() };
    let bound = says(ProcessSpec { confinement, ..shell(&tag("bound"), "nproc") }).await;
    assert_eq!(count(&bound), 1, "of {}", count(n));
    // Of a machine's processors that are not there the process is kept from nothing.
    let confinement = Confinement { processors: vec![1023], ..Confinement::default() };
    let free = says(ProcessSpec { confinement, ..shell(&tag("free"), "nproc") }).await;
    assert_eq!(count(&free), count(n));
}

/// All of the above again, by somebody who has no rights.
#[test]
fn an_ordinary_user_has_the_same_walls() {
    let this = std::env::current_exe().expect("this executable has a path");
    let open_to_all = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005);
    let reachable = this.ancestors().all(open_to_all);
    if !rustix::process::geteuid().is_root() || !reachable {
        skip::unsupported_machine(format_args!(
            "only root can become somebody else, where others can reach {}",
            this.display()
        ));
        return;
    }
    let user = ["--reuid=61234", "--regid=61234", "--clear-groups", "--"];
    let again = ["--skip", "an_ordinary_user", "--nocapture"];
    let mut command = Command::new("setpriv");
    command.args(user).arg(&this).args(again).env("HOME", "/");
    // Root's own may be closed to others.
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
