//! Dependencies between crates and modules, as the design has them: the table of allowed edges between crates is compared with
//! what cargo reports (a new edge is a design decision and changes the table), sibling modules do not import each other
//! in circles, every crate root says what the crate is for, and other people's crates obey `deny.toml`.

#[path = "arrows/dependencies.rs"]
mod dependencies;
#[path = "arrows/modules.rs"]
mod modules;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crate, and the workspace crates it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("base", &[]),
    ("docs", &[]),
    ("elastic", &[]),
    ("test-support", &[]),
    ("metrics", &["model"]),
    ("sched", &["model"]),
    ("store", &["base", "model"]),
    ("shares", &["base", "model"]),
    ("client", &["base", "model"]),
    ("mount", &["base", "model", "client"]),
    ("launch", &["base", "elastic"]),
    ("file-service", &["model", "shares"]),
    ("server", &["base", "docs", "elastic", "model", "metrics", "sched", "store", "shares", "file-service"]),
    ("agent", &["base", "model", "metrics", "shares", "client", "mount", "launch"]),
    ("hosting", &["base", "model", "client", "server", "agent"]),
    (
        "cli",
        &["base", "docs", "elastic", "model", "client", "server", "hosting", "agent", "mount", "launch", "trainer"],
    ),
    ("collectives", &["base"]),
    ("horovod-py", &["base", "collectives", "elastic"]),
    ("trainer", &["base", "collectives"]),
];

#[test]
fn arrows_between_crates_are_those_of_the_design() {
    for package in crates() {
        let name = package["name"].as_str().expect("a name");
        let short = name.strip_prefix("corro-").unwrap_or_else(|| panic!("{name} is not called corro-…"));
        let allowed = ALLOWED.iter().find(|(known, _)| *known == short);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} is not in the design's table of crates"));
        for dependency in package["dependencies"].as_array().expect("a list") {
            let normal = dependency["kind"].is_null();
            let target = dependency["name"].as_str().expect("a name").strip_prefix("corro-");
            if let (true, Some(target)) = (normal, target) {
                assert!(allowed.contains(&target), "{short} -> {target} is not an arrow of the design");
            }
        }
    }
}

#[test]
fn every_crate_opens_by_saying_what_it_is_for() {
    for package in crates() {
        let targets = package["targets"].as_array().expect("a list").iter();
        let roots = targets
            .filter(|target| ["lib", "cdylib", "bin"].iter().any(|kind| target["kind"] == serde_json::json!([kind])));
        let paths: Vec<&str> = roots.map(|target| target["src_path"].as_str().expect("a path")).collect();
        assert!(!paths.is_empty(), "{} has neither a library nor a program", package["name"]);
        for path in paths {
            let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let opening = text.lines().next().unwrap_or_default().strip_prefix("//! ");
            assert!(opening.is_some_and(|words| words.len() > 20), "{path} does not open by saying what it is for");
        }
    }
}

/// The workspace's packages below `crates/`.
fn crates() -> Vec<Value> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let root = metadata["workspace_root"].as_str().expect("a path").to_owned() + "/crates/";
    let packages = metadata["packages"].as_array().expect("a list").iter();
    let ours: Vec<Value> = packages
        .filter(|package| package["manifest_path"].as_str().is_some_and(|path| path.starts_with(&root)))
        .cloned()
        .collect();
    assert!(ours.len() >= 9, "cargo knows only {} crates of ours", ours.len());
    ours
}
