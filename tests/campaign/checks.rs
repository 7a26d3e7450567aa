//! Final checks of the campaign. Each violation is one sentence; an empty list is success.

use std::collections::{BTreeMap, BTreeSet};

use corro_launch::kill_tagged::processes_with_tag;
use serde_json::Value;

use super::attack::{self, Target};
use super::client::CampaignClient;
use super::control_job::ControlJob;
use super::harness::Site;
use super::history::History;
use super::workload::StreamedLog;

/// Inputs of the final checks.
pub struct CheckInput<'a> {
    pub client: &'a CampaignClient,
    pub history: &'a History,
    pub target: &'a Target,
    pub control_job: &'a ControlJob,
    pub streams: &'a [StreamedLog],
}

pub fn check_all(site: &mut Site, input: &CheckInput<'_>) -> Vec<String> {
    let CheckInput { client, history, target, control_job, streams } = *input;
    let mut findings = control_job.findings(site);
    findings.extend(history.violations());
    findings.extend(duplicate_runs(client, history));
    findings.extend(corrupt_logs(client, history));
    findings.extend(differing_streams(client, history, streams));
    findings.extend(unexpected_ends(history));
    let answers: Vec<String> = history.ended().values().map(Value::to_string).collect();
    findings.extend(target.findings(&answers.concat()));
    history.record_nodes(site.agents().into_iter().map(|(node, _)| node));
    let address = site.address();
    let code = site.interrupt_server();
    if code != Some(0) {
        findings.push(format!("the server ended with {code:?} after Ctrl-C"));
    }
    findings.extend(orphans(site, history));
    findings.extend(target.children().into_iter().map(|pid| format!("process {pid}, which hid from its job, is left")));
    // Everything must also hold after a restart.
    site.up_at(&address);
    if !history.poll(client) {
        findings.push("the server does not list its jobs after its last start".to_owned());
    }
    findings.extend(history.violations());
    findings
}

pub fn summary(history: &History, streams: &[StreamedLog]) -> String {
    let ended = history.ended();
    let mut by_end: BTreeMap<String, usize> = BTreeMap::new();
    for job in ended.values() {
        *by_end.entry(end_of(job)).or_default() += 1;
    }
    let ends: Vec<String> = by_end.iter().map(|(end, count)| format!("{end} {count}")).collect();
    let whole = streams.iter().filter(|stream| stream.output.status.success()).count();
    let acknowledged = history.acknowledged().len();
    format!(
        "jobs acknowledged: {acknowledged}, ended: {} ({})\nlogs followed to their end: {whole} of {}\nnodes: {}",
        ended.len(),
        ends.join(", "),
        streams.len(),
        history.nodes().len()
    )
}

fn end_of(job: &Value) -> String {
    let code = job["properties"]["executionInfo"]["errors"][0]["code"].as_str();
    code.unwrap_or(job["properties"]["executionState"].as_str().unwrap_or("?")).to_owned()
}

/// Two ranks of one job on one node at once, or a rank that started after its job had ended.
fn duplicate_runs(client: &CampaignClient, history: &History) -> Vec<String> {
    let at_once =
        client.records("doubled").into_iter().map(|record| format!("ran twice at once: {}", record.join(" ")));
    let ended = history.first_seen_ended();
    let late = client.records("begun").into_iter().filter_map(move |record| {
        let [job, rank, _, began] = &record[..] else { return Some(format!("a torn record: {record:?}")) };
        let began: f64 = began.parse().expect("seconds");
        let late = (began * 1000.0) as u64;
        let late = late.saturating_sub(*ended.get(job)?);
        (late > 0).then(|| format!("{job}: rank {rank} began {late} ms after the job was seen to have ended"))
    });
    at_once.chain(late).collect()
}

/// A rank that ran to its end has all its lines in the log, each once and complete. No rank has a duplicate line.
fn corrupt_logs(client: &CampaignClient, history: &History) -> Vec<String> {
    let mut findings = Vec::new();
    let (steps, ended) = (history.acknowledged(), history.ended());
    let mut done: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for record in client.records("done") {
        done.entry(record[0].clone()).or_default().push(record);
    }
    for (name, job) in ended.iter().filter(|(name, _)| !name.starts_with(attack::PREFIX)) {
        let log = String::from_utf8_lossy(&client.log(job)).into_owned();
        let mut lines = BTreeSet::new();
        for line in log.lines() {
            if line.split(' ').count() != 4 || !line.starts_with(&format!("{name} ")) {
                findings.push(format!("{name}: a torn line in its log: {line:?}"));
            } else if !lines.insert(line) {
                findings.push(format!("{name}: twice in its log: {line:?}"));
            }
        }
        if job["properties"]["executionState"] != "succeeded" {
            continue;
        }
        let runs = done.get(name).map(Vec::as_slice).unwrap_or_default();
        let nodes = job["properties"]["nodeCount"].as_u64().unwrap_or(0);
        for rank in 0..nodes {
            // The last run counts.
            let Some(run) = runs.iter().rev().find(|record| record[1] == rank.to_string()) else {
                findings.push(format!("{name} succeeded, but its rank {rank} never came to its end"));
                continue;
            };
            for i in 0..steps[name] {
                if !lines.contains(format!("{name} {rank} {} {i}", run[2]).as_str()) {
                    findings.push(format!("{name}: line {i} of rank {rank} is not in its log"));
                }
            }
        }
    }
    findings
}

/// A log followed to its end equals the bytes on the share.
fn differing_streams(client: &CampaignClient, history: &History, streams: &[StreamedLog]) -> Vec<String> {
    let ended = history.ended();
    let finding = |stream: &StreamedLog| {
        let (job, output) = (&stream.job, &stream.output);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Some(format!("{job}: its follower ended with {:?}: {said}", output.status.code()));
        }
        let log = ended.get(job).map(|job| client.log(job)).unwrap_or_default();
        let (got, has) = (output.stdout.len(), log.len());
        (output.stdout != log).then(|| format!("{job}: a follower got {got} bytes, the log has {has}, and they differ"))
    };
    streams.iter().filter_map(finding).collect()
}

/// A job may fail only because its rank or node was killed, a disk was full or a user terminated it. A malicious one may also
/// be refused by its agent.
fn unexpected_ends(history: &History) -> Vec<String> {
    let ended = history.ended();
    let known = ["succeeded", "JobFailed", "JobTerminated", "NodeLost", "NodeStorageFailed"];
    let refused = ["LogWriteFailed", "UnmanagedMountError"];
    let odd = ended.iter().filter(|(name, job)| {
        let (end, is_attack) = (end_of(job), name.starts_with(attack::PREFIX));
        !(known.contains(&end.as_str()) || is_attack && refused.contains(&end.as_str()))
    });
    odd.map(|(name, job)| format!("{name} ended oddly: {}", job["properties"]["executionInfo"])).collect()
}

/// Remaining processes of any node that ever existed.
fn orphans(site: &Site, history: &History) -> Vec<String> {
    let agents = site.agents().into_iter().map(|(node, pid)| format!("the agent {pid} of {node} is left"));
    let left = history.nodes().into_iter().flat_map(|node| {
        let pids = processes_with_tag(&format!("{node}/"));
        pids.into_iter().map(move |pid| format!("process {pid} of node {node} is left"))
    });
    agents.chain(left).collect()
}
