//! Tests of the limits, written to plain directories in place of cgroups of both versions.

use std::path::Path;

use super::cgroup_path::CgroupParent;
use super::controller::CgroupVersion;
use super::*;
use crate::testing;

const MACHINE: Capacity = Capacity { memory_bytes: 8 << 30, cores: 16 };

fn limits(memory_bytes: u64, cores: u32) -> Limits {
    Limits { vm_size: "STANDARD_D1".into(), memory_bytes, cores, processes: None }
}

/// A cgroup for each controller in one directory, with the files that the kernel would create.
fn cgroups(base: &Path, version: CgroupVersion) -> Cgroups {
    let cgroups = CONTROLLERS.map(|controller| {
        std::fs::create_dir_all(base.join("n")).expect("a directory in place of a group");
        std::fs::write(base.join("n").join(controller.limit_file(version, None).0), "").expect("a setting");
        Cgroup::make_at(CgroupParent { directory: base.to_owned(), version }, "n", controller)
    });
    let [memory, cpu, pids] = cgroups;
    Cgroups { memory, cpu, pids, pins_cpus: false }
}

#[test]
fn a_limit_is_set_only_where_the_machine_has_more() {
    for (version, names, none, events) in [
        (CgroupVersion::V1, ["memory.limit_in_bytes", "cpu.cfs_quota_us"], ["-1", "-1"], "memory.oom_control"),
        (CgroupVersion::V2, ["memory.max", "cpu.max"], ["max", "max 100000"], "memory.events"),
    ] {
        let base = tempfile::tempdir().expect("a directory");
        let cgroups = cgroups(base.path(), version);
        let events = base.path().join("n").join(events);
        let files = || names.map(|name| fs::read_to_string(base.path().join("n").join(name)).unwrap_or_default());
        let order = testing::order(1);
        let apply = |limits: Option<&Limits>| {
            let (applied, [memory, cpu, _]) = cgroups.apply(&order, limits, MACHINE);
            (applied, [memory, cpu])
        };

        let (applied, description) = apply(Some(&limits(8 << 30, 16)));
        assert_eq!(description, ["no limit, as this machine has no more than STANDARD_D1"; 2]);
        assert_eq!((files(), applied.memory.is_none()), (none.map(String::from), true));

        fs::write(&events, "low 0\noom_kill 3\n").expect("written");
        let (applied, description) = apply(Some(&limits(7 << 29, 2)));
        assert_eq!(description[0], "at most 3.5 GiB, the memory of STANDARD_D1");
        assert_eq!(description[1], "at most the time of 2, as STANDARD_D1 has, on any of the machine's");
        let [memory, cpu] = files();
        assert_eq!(memory, (7u64 << 29).to_string());
        assert!(cpu.starts_with("200000"), "{cpu}");
        assert_eq!(cgroups.out_of_memory(&applied), None);
        fs::write(&events, "low 0\noom_kill 4\n").expect("written");
        let why = cgroups.out_of_memory(&applied).expect("somebody was killed");
        assert!(why.contains("3.5 GiB") && why.contains("larger vmSize"), "{why}");

        // A job in a container is limited by its engine.
        let (_, description) = apply(None);
        assert_eq!((description, files()), (["no limit", "no limit"].map(String::from), none.map(String::from)));
    }
}

#[test]
fn a_missing_controller_does_not_affect_the_others() {
    let base = tempfile::tempdir().expect("a directory");
    fs::create_dir(base.path().join("n")).expect("a group");
    fs::write(base.path().join("n/memory.max"), "").expect("a setting");
    let parent = || CgroupParent { directory: base.path().to_owned(), version: CgroupVersion::V2 };
    let [memory, cpu, pids] = CONTROLLERS.map(|controller| Cgroup::make_at(parent(), "n", controller));
    let why = cpu.as_ref().expect_err("there is no cpu.max").clone();
    assert!(why.contains("cannot set a limit in cgroup"), "{why}");
    assert_eq!(fs::read_to_string(base.path().join("cgroup.subtree_control")).ok().as_deref(), Some("+pids"));
    assert!(pids.is_err());
    let cgroups = Cgroups { memory, cpu, pids, pins_cpus: false };
    assert_eq!(cgroups.procs_files(), [base.path().join("n/cgroup.procs")]);
    let (_, description) = cgroups.apply(&testing::order(1), Some(&limits(1 << 30, 2)), MACHINE);
    assert!(
        description[0].starts_with("at most 1 GiB")
            && description[1].starts_with("NO limit: cannot set a limit in cgroup "),
        "{description:?}"
    );
}

#[test]
fn the_limit_on_processes_is_set_and_reported() {
    for version in [CgroupVersion::V1, CgroupVersion::V2] {
        let base = tempfile::tempdir().expect("a directory");
        let cgroups = cgroups(base.path(), version);
        let (file, events) = (base.path().join("n/pids.max"), base.path().join("n/pids.events"));
        let order = testing::order(1);
        fs::write(&events, "max 2\n").expect("written");
        let (applied, description) =
            cgroups.apply(&order, Some(&Limits { processes: Some(100), ..limits(1 << 30, 2) }), MACHINE);
        assert_eq!(description[2], "at most 100, threads included");
        assert_eq!(fs::read_to_string(&file).expect("set"), (100 + GUARD_ALLOWANCE).to_string());
        assert_eq!(cgroups.out_of_processes(&applied), None);
        fs::write(&events, "max 3\n").expect("written");
        let why = cgroups.out_of_processes(&applied).expect("one was refused");
        assert!(why.contains("may have 100 processes") && why.contains("--max-processes"), "{why}");
        let (_, description) = cgroups.apply(&order, None, MACHINE);
        assert_eq!((description[2].as_str(), fs::read_to_string(&file).expect("set").as_str()), ("no limit", "max"));
    }
    assert_eq!(max_processes(&limits(0, 6), u64::MAX), 4096 + 6 * 1024);
    assert_eq!(max_processes(&limits(0, 64), 32768), 16384, "half of what the machine has");
}

#[test]
fn the_description_says_what_is_enforced() {
    let limits = limits(1 << 30, 2);
    let describe = |set: Result<(), &str>, bound: Result<&[u16], &str>| {
        let bound = bound.map_err(str::to_owned);
        describe_cpu_limit(&set.map_err(str::to_owned), bound.as_ref().map(|numbers| *numbers), 2, &limits)
    };
    assert_eq!(describe(Ok(()), Ok(&[0, 3])), "at most 2, as STANDARD_D1 has: number 0, 3");
    assert_eq!(describe(Ok(()), Err("…")), "at most the time of 2, as STANDARD_D1 has, on any of the machine's");
    let bound = describe(Err("there is no group"), Ok(&[0, 3]));
    assert!(bound.ends_with("unless a program pins itself to others, as there is no group"), "{bound}");
    assert_eq!(
        describe(Err("there is no group"), Err("all are taken")),
        "NO limit: there is no group; not pinned, as all are taken"
    );
}

#[test]
fn a_small_machine_has_no_bounds() {
    let small = Capacity { memory_bytes: 4 << 30, cores: 2 };
    assert_eq!(bounds(Some(&limits(4 << 30, 6)), small), Bounds::default());
    assert_eq!(bounds(None, MACHINE), Bounds::default());
    let some = Bounds { memory_bytes: Some(4 << 30), cores: Some(6) };
    assert_eq!(bounds(Some(&limits(4 << 30, 6)), MACHINE), some);
}
