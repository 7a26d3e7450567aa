//! Final checks of the campaign. Each violation is one sentence; an empty list is success.

use std::collections::{BTreeMap, BTreeSet};

use corro_launch::kill_tagged::processes_with_tag;
use serde_json::Value;

use super::attack::{self, Target};
use super::calm::CalmJob;
use super::desk::Desk;
use super::harness::Site;
use super::ledger::Ledger;
use super::work::Streamed;

/// Inputs of the final checks.
pub struct Subject<'a> {
    pub desk: &'a Desk,
    pub ledger: &'a Ledger,
    pub target: &'a Target,
    pub calm: &'a CalmJob,
    pub streams: &'a [Streamed],
}

pub fn prove(site: &mut Site, subject: &Subject<'_>) -> Vec<String> {
    let Subject { desk, ledger, target, calm, streams } = *subject;
    let mut findings = calm.findings(site);
    findings.extend(ledger.broken());
    findings.extend(doubled(desk, ledger));
    findings.extend(torn_logs(desk, ledger));
    findings.extend(bad_streams(desk, ledger, streams));
    findings.extend(unreasonable_ends(ledger));
    let answers: Vec<String> = ledger.ended().values().map(Value::to_string).collect();
    findings.extend(target.findings(&answers.concat()));
    ledger.saw_nodes(site.agents().into_iter().map(|(node, _)| node));
    let address = site.address();
    let code = site.interrupt_server();
    if code != Some(0) {
        findings.push(format!("the server ended with {code:?} after Ctrl-C"));
    }
    findings.extend(orphans(site, ledger));
    findings.extend(target.children().into_iter().map(|pid| format!("process {pid}, which hid from its job, is left")));
    // Everything must also hold after a restart.
    site.up_at(&address);
    if !ledger.look(desk) {
        findings.push("the server does not list its jobs after its last start".to_owned());
    }
    findings.extend(ledger.broken());
    findings
}

pub fn summary(ledger: &Ledger, streams: &[Streamed]) -> String {
    let ended = ledger.ended();
    let mut by_end: BTreeMap<String, usize> = BTreeMap::new();
    for job in ended.values() {
        *by_end.entry(end_of(job)).or_default() += 1;
    }
    let ends: Vec<String> = by_end.iter().map(|(end, count)| format!("{end} {count}")).collect();
    let whole = streams.iter().filter(|stream| stream.output.status.success()).count();
    let acknowledged = ledger.acknowledged().len();
    format!(
        "jobs acknowledged: {acknowledged}, ended: {} ({})\nlogs followed to their end: {whole} of {}\nnodes: {}",
        ended.len(),
        ends.join(", "),
        streams.len(),
        ledger.nodes().len()
    )
}

fn end_of(job: &Value) -> String {
    let code = job["properties"]["executionInfo"]["errors"][0]["code"].as_str();
    code.unwrap_or(job["properties"]["executionState"].as_str().unwrap_or("?")).to_owned()
}

/// Two ranks of one job on one node at once, or a rank that started after its job had ended.
fn doubled(desk: &Desk, ledger: &Ledger) -> Vec<String> {
    let at_once = desk.notes("doubled").into_iter().map(|note| format!("ran twice at once: {}", note.join(" ")));
    let ended = ledger.seen_to_end();
    let late = desk.notes("begun").into_iter().filter_map(move |note| {
        let [job, rank, _, began] = &note[..] else { return Some(format!("a torn note: {note:?}")) };
        let began: f64 = began.parse().expect("seconds");
        let late = (began * 1000.0) as u64;
        let late = late.saturating_sub(*ended.get(job)?);
        (late > 0).then(|| format!("{job}: rank {rank} began {late} ms after the job was seen to have ended"))
    });
    at_once.chain(late).collect()
}

/// A rank that ran to its end has all its lines in the log, each once and complete. No rank has a duplicate line.
fn torn_logs(desk: &Desk, ledger: &Ledger) -> Vec<String> {
    let mut findings = Vec::new();
    let (steps, ended) = (ledger.acknowledged(), ledger.ended());
    let mut done: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for note in desk.notes("done") {
        done.entry(note[0].clone()).or_default().push(note);
    }
    for (name, job) in ended.iter().filter(|(name, _)| !name.starts_with(attack::PREFIX)) {
        let log = String::from_utf8_lossy(&desk.log(job)).into_owned();
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
            let Some(run) = runs.iter().rev().find(|note| note[1] == rank.to_string()) else {
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
fn bad_streams(desk: &Desk, ledger: &Ledger, streams: &[Streamed]) -> Vec<String> {
    let ended = ledger.ended();
    let finding = |stream: &Streamed| {
        let (job, output) = (&stream.job, &stream.output);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Some(format!("{job}: its follower ended with {:?}: {said}", output.status.code()));
        }
        let log = ended.get(job).map(|job| desk.log(job)).unwrap_or_default();
        let (got, has) = (output.stdout.len(), log.len());
        (output.stdout != log).then(|| format!("{job}: a follower got {got} bytes, the log has {has}, and they differ"))
    };
    streams.iter().filter_map(finding).collect()
}

/// A job may fail only because its rank or node was killed, a disk was full or a user terminated it. A malicious one may also
/// be refused by its agent.
fn unreasonable_ends(ledger: &Ledger) -> Vec<String> {
    let ended = ledger.ended();
    let known = ["succeeded", "JobFailed", "JobTerminated", "NodeLost", "NodeStorageFailed"];
    let refused = ["LogWriteFailed", "UnmanagedMountError"];
    let odd = ended.iter().filter(|(name, job)| {
        let (end, is_attack) = (end_of(job), name.starts_with(attack::PREFIX));
        !(known.contains(&end.as_str()) || is_attack && refused.contains(&end.as_str()))
    });
    odd.map(|(name, job)| format!("{name} ended oddly: {}", job["properties"]["executionInfo"])).collect()
}

/// Remaining processes of any node that ever existed.
fn orphans(site: &Site, ledger: &Ledger) -> Vec<String> {
    let agents = site.agents().into_iter().map(|(node, pid)| format!("the agent {pid} of {node} is left"));
    let left = ledger.nodes().into_iter().flat_map(|node| {
        let pids = processes_with_tag(&format!("{node}/"));
        pids.into_iter().map(move |pid| format!("process {pid} of node {node} is left"))
    });
    agents.chain(left).collect()
}
