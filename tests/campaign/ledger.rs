//! Record of the campaign: every acknowledged job, and the first terminal state observed of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::Value;

use super::desk::Desk;

#[derive(Default)]
pub struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    /// Job name and its number of numbered lines per rank.
    acknowledged: BTreeMap<String, u64>,
    /// The job when it was first seen in a terminal state.
    ended: BTreeMap<String, Value>,
    /// Time of that observation, in milliseconds since boot: wall clocks are set during the campaign.
    seen_to_end: BTreeMap<String, u64>,
    /// Violations: terminal states that changed, jobs that vanished.
    broken: BTreeSet<String>,
    /// Every node that ever existed.
    nodes: BTreeSet<String>,
}

impl Ledger {
    pub fn acknowledge(&self, name: &str, steps: u64) {
        self.pages().acknowledged.insert(name.to_owned(), steps);
    }

    /// Records a violation.
    pub fn report(&self, finding: String) {
        self.pages().broken.insert(finding);
    }

    pub fn saw_nodes(&self, nodes: impl IntoIterator<Item = String>) {
        self.pages().nodes.extend(nodes);
    }

    /// Compares the server's current state with the record. Returns `false` if the server did not answer.
    pub fn look(&self, desk: &Desk) -> bool {
        // Read before the request: a job acknowledged meanwhile need not be in the response.
        let promised: Vec<String> = self.pages().acknowledged.keys().cloned().collect();
        let Some(jobs) = desk.jobs() else { return false };
        let jobs: BTreeMap<&str, &Value> = jobs.iter().filter_map(|job| Some((job["name"].as_str()?, job))).collect();
        let mut pages = self.pages();
        for name in promised {
            let Some(job) = jobs.get(name.as_str()) else {
                pages.broken.insert(format!("{name} was acknowledged and is not there"));
                continue;
            };
            let state = job["properties"]["executionState"].as_str().unwrap_or_default().to_owned();
            match pages.ended.get(&name).cloned() {
                Some(first) if first["properties"]["executionInfo"] != job["properties"]["executionInfo"] => {
                    let (was, is) = (&first["properties"]["executionInfo"], &job["properties"]["executionInfo"]);
                    pages.broken.insert(format!("{name} ended twice: {was} and then {is}"));
                }
                None if state == "succeeded" || state == "failed" => {
                    pages.seen_to_end.insert(name.clone(), uptime_ms());
                    pages.ended.insert(name, (*job).clone());
                }
                _ => {}
            }
        }
        true
    }

    pub fn unfinished(&self) -> Vec<String> {
        let pages = self.pages();
        pages.acknowledged.keys().filter(|name| !pages.ended.contains_key(*name)).cloned().collect()
    }

    pub fn acknowledged(&self) -> BTreeMap<String, u64> {
        self.pages().acknowledged.clone()
    }

    pub fn ended(&self) -> BTreeMap<String, Value> {
        self.pages().ended.clone()
    }

    /// See the field.
    pub fn seen_to_end(&self) -> BTreeMap<String, u64> {
        self.pages().seen_to_end.clone()
    }

    pub fn ended_well(&self) -> usize {
        self.pages().ended.values().filter(|job| job["properties"]["executionState"] == "succeeded").count()
    }

    pub fn broken(&self) -> Vec<String> {
        self.pages().broken.iter().cloned().collect()
    }

    pub fn nodes(&self) -> Vec<String> {
        self.pages().nodes.iter().cloned().collect()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().expect("no one panics while writing")
    }
}

/// Time since boot as ranks read it, to a hundredth of a second.
fn uptime_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
    let seconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds");
    (seconds * 1000.0) as u64
}
