//! Limits as they are decided, and written to directories that stand in place of control groups of both versions.

use std::path::Path;

use super::cgroup_path::Place;
use super::controller::Version;
use super::*;
use crate::testing;

const MACHINE: Capacity = Capacity { memory_bytes: 8 << 30, cores: 16 };

fn limits(memory_bytes: u64, cores: u32) -> Limits {
    Limits { vm_size: "STANDARD_D1".into(), memory_bytes, cores, processes: None }
}

/// A group of each control in one directory, with the files that the kernel would make.
fn groups(base: &Path, version: Version) -> Groups {
    let made = CONTROLS.map(|control| {
        std::fs::create_dir_all(base.join("n")).expect("a directory in place of a group");
        std::fs::write(base.join("n").join(control.setting(version, None).0), "").expect("a setting");
        Group::make_at(Place { directory: base.to_owned(), version }, "n", control)
    });
    let [memory, time, processes] = made;
    Groups { memory, time, processes, binds: false }
}

#[test]
fn a_limit_is_set_only_where_the_machine_has_more() {
    for (version, names, none, events) in [
        (Version::One, ["memory.limit_in_bytes", "cpu.cfs_quota_us"], ["-1", "-1"], "memory.oom_control"),
        (Version::Two, ["memory.max", "cpu.max"], ["max", "max 100000"], "memory.events"),
    ] {
        let base = tempfile::tempdir().expect("a directory");
        let groups = groups(base.path(), version);
        let events = base.path().join("n").join(events);
        let files = || names.map(|name| fs::read_to_string(base.path().join("n").join(name)).unwrap_or_default());
        let order = testing::order(1);
        let hold = |limits: Option<&Limits>| {
            let (held, [memory, processors, _]) = groups.hold(&order, limits, MACHINE);
            (held, [memory, processors])
        };

        let (held, told) = hold(Some(&limits(8 << 30, 16)));
        assert_eq!(told, ["no limit, as this machine has no more than STANDARD_D1"; 2]);
        assert_eq!((files(), held.memory.is_none()), (none.map(String::from), true));

        fs::write(&events, "low 0\noom_kill 3\n").expect("written");
        let (held, told) = hold(Some(&limits(7 << 29, 2)));
        assert_eq!(told[0], "at most 3.5 GiB, the memory of STANDARD_D1");
        assert_eq!(told[1], "at most the time of 2, as STANDARD_D1 has, on any of the machine's");
        let [memory, time] = files();
        assert_eq!(memory, (7u64 << 29).to_string());
        assert!(time.starts_with("200000"), "{time}");
        assert_eq!(groups.exceeded(&held), None);
        fs::write(&events, "low 0\noom_kill 4\n").expect("written");
        let why = groups.exceeded(&held).expect("somebody was killed");
        assert!(why.contains("3.5 GiB") && why.contains("larger vmSize"), "{why}");

        // The next job, in a container, is its engine's business.
        let (_, told) = hold(None);
        assert_eq!((told, files()), (["no limit", "no limit"].map(String::from), none.map(String::from)));
    }
}

#[test]
fn a_group_without_a_control_holds_the_other() {
    let base = tempfile::tempdir().expect("a directory");
    fs::create_dir(base.path().join("n")).expect("a group");
    fs::write(base.path().join("n/memory.max"), "").expect("a setting");
    let place = || Place { directory: base.path().to_owned(), version: Version::Two };
    let [memory, time, processes] = CONTROLS.map(|control| Group::make_at(place(), "n", control));
    let why = time.as_ref().expect_err("there is no cpu.max").clone();
    assert!(why.contains("takes no limit (cpu)"), "{why}");
    assert_eq!(fs::read_to_string(base.path().join("cgroup.subtree_control")).ok().as_deref(), Some("+pids"));
    assert!(processes.is_err());
    let groups = Groups { memory, time, processes, binds: false };
    assert_eq!(groups.entrances(), [base.path().join("n/cgroup.procs")]);
    let (_, told) = groups.hold(&testing::order(1), Some(&limits(1 << 30, 2)), MACHINE);
    assert!(told[0].starts_with("at most 1 GiB") && told[1].starts_with("NO limit: the control group "), "{told:?}");
}

#[test]
fn a_job_has_as_many_processes_as_its_node_gives() {
    for version in [Version::One, Version::Two] {
        let base = tempfile::tempdir().expect("a directory");
        let groups = groups(base.path(), version);
        let (file, events) = (base.path().join("n/pids.max"), base.path().join("n/pids.events"));
        let order = testing::order(1);
        fs::write(&events, "max 2\n").expect("written");
        let (held, told) = groups.hold(&order, Some(&Limits { processes: Some(100), ..limits(1 << 30, 2) }), MACHINE);
        assert_eq!(told[2], "at most 100, threads included");
        assert_eq!(fs::read_to_string(&file).expect("set"), (100 + GUARDS).to_string());
        assert_eq!(groups.out_of_processes(&held), None);
        fs::write(&events, "max 3\n").expect("written");
        let why = groups.out_of_processes(&held).expect("one was refused");
        assert!(why.contains("may have 100 processes") && why.contains("--max-processes"), "{why}");
        let (_, told) = groups.hold(&order, None, MACHINE);
        assert_eq!((told[2].as_str(), fs::read_to_string(&file).expect("set").as_str()), ("no limit", "max"));
    }
    assert_eq!(most_processes(&limits(0, 6), u64::MAX), 4096 + 6 * 1024);
    assert_eq!(most_processes(&limits(0, 64), 32768), 16384, "half of what the machine has");
}

#[test]
fn people_are_told_what_holds() {
    let limits = limits(1 << 30, 2);
    let say = |set: Result<(), &str>, bound: Result<&[u16], &str>| {
        let bound = bound.map_err(str::to_owned);
        words(&set.map_err(str::to_owned), bound.as_ref().map(|numbers| *numbers), 2, &limits)
    };
    assert_eq!(say(Ok(()), Ok(&[0, 3])), "at most 2, as STANDARD_D1 has: number 0, 3");
    assert_eq!(say(Ok(()), Err("…")), "at most the time of 2, as STANDARD_D1 has, on any of the machine's");
    let bound = say(Err("there is no group"), Ok(&[0, 3]));
    assert!(bound.ends_with("unless a program binds itself to others, as there is no group"), "{bound}");
    assert_eq!(
        say(Err("there is no group"), Err("all are taken")),
        "NO limit: there is no group; bound to none, as all are taken"
    );
}

#[test]
fn a_small_machine_gives_all_it_has() {
    let small = Capacity { memory_bytes: 4 << 30, cores: 2 };
    assert_eq!(bounds(Some(&limits(4 << 30, 6)), small), Bounds::default());
    assert_eq!(bounds(None, MACHINE), Bounds::default());
    let some = Bounds { memory_bytes: Some(4 << 30), cores: Some(6) };
    assert_eq!(bounds(Some(&limits(4 << 30, 6)), MACHINE), some);
}
