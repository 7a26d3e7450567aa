//! Record of the campaign: every acknowledged job, and the first terminal state observed of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::Value;

use super::client::CampaignClient;

#[derive(Default)]
pub struct History {
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    /// Job name and its number of numbered lines per rank.
    acknowledged: BTreeMap<String, u64>,
    /// The job when it was first seen in a terminal state.
    ended: BTreeMap<String, Value>,
    /// Time of that observation, in milliseconds since boot: wall clocks are set during the campaign.
    first_seen_ended: BTreeMap<String, u64>,
    /// Violations: terminal states that changed, jobs that vanished.
    violations: BTreeSet<String>,
    /// Every node that ever existed.
    nodes: BTreeSet<String>,
}

impl History {
    pub fn acknowledge(&self, name: &str, steps: u64) {
        self.records().acknowledged.insert(name.to_owned(), steps);
    }

    /// Records a violation.
    pub fn report_violation(&self, finding: String) {
        self.records().violations.insert(finding);
    }

    pub fn record_nodes(&self, nodes: impl IntoIterator<Item = String>) {
        self.records().nodes.extend(nodes);
    }

    /// Compares the server's current state with the record. Returns `false` if the server did not answer.
    pub fn poll(&self, client: &CampaignClient) -> bool {
        // Read before the request: a job acknowledged meanwhile need not be in the response.
        let acknowledged: Vec<String> = self.records().acknowledged.keys().cloned().collect();
        let Some(jobs) = client.jobs() else { return false };
        let jobs: BTreeMap<&str, &Value> = jobs.iter().filter_map(|job| Some((job["name"].as_str()?, job))).collect();
        let mut records = self.records();
        for name in acknowledged {
            let Some(job) = jobs.get(name.as_str()) else {
                records.violations.insert(format!("{name} was acknowledged and is not there"));
                continue;
            };
            let state = job["properties"]["executionState"].as_str().unwrap_or_default().to_owned();
            match records.ended.get(&name).cloned() {
                Some(first) if first["properties"]["executionInfo"] != job["properties"]["executionInfo"] => {
                    let (was, is) = (&first["properties"]["executionInfo"], &job["properties"]["executionInfo"]);
                    records.violations.insert(format!("{name} ended twice: {was} and then {is}"));
                }
                None if state == "succeeded" || state == "failed" => {
                    records.first_seen_ended.insert(name.clone(), uptime_ms());
                    records.ended.insert(name, (*job).clone());
                }
                _ => {}
            }
        }
        true
    }

    pub fn unfinished(&self) -> Vec<String> {
        let records = self.records();
        records.acknowledged.keys().filter(|name| !records.ended.contains_key(*name)).cloned().collect()
    }

    pub fn acknowledged(&self) -> BTreeMap<String, u64> {
        self.records().acknowledged.clone()
    }

    pub fn ended(&self) -> BTreeMap<String, Value> {
        self.records().ended.clone()
    }

    /// See the field.
    pub fn first_seen_ended(&self) -> BTreeMap<String, u64> {
        self.records().first_seen_ended.clone()
    }

    pub fn n_succeeded(&self) -> usize {
        self.records().ended.values().filter(|job| job["properties"]["executionState"] == "succeeded").count()
    }

    pub fn violations(&self) -> Vec<String> {
        self.records().violations.iter().cloned().collect()
    }

    pub fn nodes(&self) -> Vec<String> {
        self.records().nodes.iter().cloned().collect()
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Records> {
        self.records.lock().expect("no one panics while writing")
    }
}

/// Time since boot as ranks read it, to a hundredth of a second.
fn uptime_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux has it");
    let seconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("seconds");
    (seconds * 1000.0) as u64
}
