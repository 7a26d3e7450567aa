//! Scripts of sweeps, and what is known about their trials.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::project::ProjectSite;

/// Prints its quality as a metric for three epochs, after the file `go` exists if the gate is closed. A poor trial then runs on until it is stopped.
pub const TRAIN: &str = r#"
import os, pathlib, sys, time
quality = float(sys.argv[sys.argv.index("--quality") + 1])
assert os.environ["CORRO_PARAM_QUALITY"] == sys.argv[sys.argv.index("--quality") + 1]
while "--gate" in sys.argv and not pathlib.Path("../go").exists():
    time.sleep(0.02)
for epoch in range(1, 4):
    print(f"epoch={epoch} val_acc={quality * epoch / 3} loss={1 - quality}", flush=True)
pathlib.Path("model.txt").write_text(f"trained with {quality}")
while quality < 0.5:
    time.sleep(0.02)
"#;

/// States of the trials of a sweep, by the value of their parameter.
pub fn states(project: &ProjectSite, sweep: &str, parameter: &str) -> BTreeMap<String, String> {
    let shown = project.corro(&["sweep", "show", sweep, "-o", "json"]);
    if shown.code != 0 {
        return BTreeMap::new();
    }
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let trials = shown.json();
    let trials = trials.as_array().expect("a list").iter();
    trials.map(|trial| (text(&trial["parameters"][parameter]), text(&trial["state"]))).collect()
}

/// Names of all jobs of the experiment, sorted.
pub fn job_names(project: &ProjectSite) -> Vec<String> {
    let jobs = project.jobs();
    let mut names: Vec<String> = jobs.iter().map(|job| job["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}
