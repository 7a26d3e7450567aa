//! Table of the collective engines of `corro job top`: progress and waiting time of each rank, and the straggler. Pure.

use corro_model::batchai::{Collective, EngineStats, JobProcesses};

use crate::output::units::{format_bytes, format_millis};

/// Lines of the table; none if no rank uses Corro's Horovod.
pub fn render(processes: &JobProcesses) -> Vec<String> {
    let all = processes.nodes.iter().flat_map(|node| &node.processes);
    let mut engines: Vec<&EngineStats> = all.flat_map(|process| &process.engines).collect();
    engines.sort_by_key(|engine| engine.rank);
    if engines.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), header()];
    lines.extend(engines.iter().map(|engine| engine_line(engine, processes.straggler)));
    if let Some(rank) = processes.straggler {
        lines.extend([String::new(), format!("The others wait for rank {rank}.")]);
    }
    lines
}

fn header() -> String {
    let titles = ["RANK", "STEP", "OPERATIONS", "REDUCED", "PER SECOND", "WAITS"];
    let [rank, step, operations, reduced, rate, waits] = titles;
    format!("{rank:<6}{step:>9}{operations:>12}{reduced:>12}{rate:>12}{waits:>8}  COLLECTIVE")
}

fn engine_line(engine: &EngineStats, straggler: Option<usize>) -> String {
    let mark = if Some(engine.rank) == straggler { "*" } else { "" };
    let rank = format!("{}{mark}", engine.rank);
    let rate = (engine.window.bytes as f64 / (engine.window.ms.max(1) as f64 / 1_000.0)) as u64;
    let waits = format!("{:.0} %", engine.window.waited_share() * 100.0);
    let totals = &engine.totals;
    format!(
        "{rank:<6}{:>9}{:>12}{:>12}{:>12}{waits:>8}  {}",
        totals.steps,
        totals.operations,
        format_bytes(totals.bytes),
        format_bytes(rate),
        current_activity(engine)
    )
}

/// The collective in progress, or waited for, if that lasts a second; else the last one.
fn current_activity(engine: &EngineStats) -> String {
    let is_long = |what: &&Collective| what.ms_ago >= 1_000;
    if let Some(what) = engine.working_on.as_ref().filter(is_long) {
        return format!("in {} for {}", describe(what), format_millis(what.ms_ago));
    }
    if let Some(what) = engine.waits_for.as_ref().filter(is_long) {
        return format!("waits for {} for {}", describe(what), format_millis(what.ms_ago));
    }
    engine
        .last
        .as_ref()
        .map_or_else(|| "none yet".to_owned(), |what| format!("{}, {} ago", describe(what), format_millis(what.ms_ago)))
}

fn describe(what: &Collective) -> String {
    let kind = what.kind.as_deref().map_or_else(String::new, |kind| format!("{} ", kind.to_lowercase()));
    let more = what.tensors.filter(|tensors| *tensors > 1).map_or_else(String::new, |n| format!(" and {} more", n - 1));
    format!("{kind}{}{more}", what.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_engine_has_a_line_and_the_straggler_a_mark() {
        let engine = |rank: usize, waited: u64, more: serde_json::Value| {
            let totals = json!({"ms": 60_000, "steps": 120, "operations": 360, "tensors": 360, "bytes": 1 << 30, "waitedMs": waited, "workedMs": 1});
            let window = json!({"ms": 10_000, "steps": 20, "operations": 60, "tensors": 60, "bytes": 10 << 20, "waitedMs": waited, "workedMs": 1});
            let mut engine = json!({"rank": rank, "size": 2, "totals": totals, "window": window, "seenMsAgo": 40});
            engine.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            json!({"rank": rank, "pid": 1, "state": "S", "cpuPercent": 0.0, "memoryBytes": 0, "threads": 1, "processes": 1, "engines": [engine]})
        };
        let last = json!({"name": "grad.7", "kind": "ALLREDUCE", "tensors": 3, "bytes": 4096, "msAgo": 200});
        let processes: JobProcesses = serde_json::from_value(json!({"attempt": 1, "straggler": 1, "nodes": [
            {"nodeId": "tvm-257509324_1-20180718t174802z-p", "answered": true, "processes": [
                engine(1, 100, json!({"last": last})),
                engine(0, 4_500, json!({"last": last, "waitsFor": {"name": "grad.8", "msAgo": 2_500}}))]}]}))
        .expect("a literal");
        assert_eq!(
            render(&processes),
            [
                "",
                "RANK       STEP  OPERATIONS     REDUCED  PER SECOND   WAITS  COLLECTIVE",
                "0           120         360     1.0 GiB     1.0 MiB    45 %  waits for grad.8 for 2.5 s",
                "1*          120         360     1.0 GiB     1.0 MiB     1 %  allreduce grad.7 and 2 more, 0.2 s ago",
                "",
                "The others wait for rank 1.",
            ]
        );
        assert_eq!(render(&JobProcesses { nodes: Vec::new(), ..processes }), Vec::<String>::new());
    }
}
