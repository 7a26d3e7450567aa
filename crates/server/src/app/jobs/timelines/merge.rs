//! Merges the timelines of all ranks into one Chrome trace. Pure. Input from ranks is untrusted: malformed timelines
//! are skipped.

use std::collections::{BTreeMap, HashMap};

use corro_model::NodeId;
use corro_model::batchai::TraceEvent;
use serde::Deserialize;
use serde_json::{Value, json};

/// Timeline of one rank in Horovod's format: a list of events, of which the first has the start time.
pub struct RankTimeline {
    pub node: NodeId,
    pub rank: usize,
    pub text: String,
}

/// Returns the merged trace and the number of dropped events.
pub fn merge(mut recorded: Vec<RankTimeline>) -> (Vec<TraceEvent>, u64) {
    recorded.sort_by_key(|one| one.rank);
    let ranks: Vec<(RankTimeline, Vec<Event>)> = recorded
        .into_iter()
        .filter_map(|one| serde_json::from_str(&one.text).ok().map(|events| (one, events)))
        .collect();
    let first = ranks.iter().map(|(_, events)| start_time(events)).min().unwrap_or_default();
    let mut trace = TraceBuilder::default();
    for (one, events) in ranks {
        let name = format!("rank {} on {}", one.rank, one.node);
        trace.out.push(metadata_event("process_name", one.rank, 0, json!(name)));
        trace.out.push(TraceEvent {
            args: BTreeMap::from([("sort_index".to_owned(), json!(one.rank))]),
            ..metadata_event("process_sort_index", one.rank, 0, Value::Null)
        });
        let offset = start_time(&events).saturating_sub(first);
        trace.add(one.rank, offset, events);
    }
    (trace.out, trace.dropped)
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    name: String,
    ph: String,
    #[serde(default)]
    ts: u64,
    pid: usize,
    #[serde(default)]
    args: BTreeMap<String, Value>,
}

#[derive(Default)]
struct TraceBuilder {
    out: Vec<TraceEvent>,
    dropped: u64,
}

impl TraceBuilder {
    /// Adds the events of a rank. Horovod has one process per tensor with begin and end events; here each tensor is a
    /// thread of the rank's process, with complete spans.
    fn add(&mut self, rank: usize, offset: u64, events: Vec<Event>) {
        let end = events.iter().map(|event| event.ts).max().unwrap_or_default();
        let mut open: HashMap<usize, Vec<(String, u64)>> = HashMap::new();
        for Event { name, ph, ts, pid, args } in events {
            match (ph.as_str(), name.as_str()) {
                ("M", "process_name") if pid > 0 => {
                    let tensor = args.get("name").cloned().unwrap_or(Value::Null);
                    self.out.push(metadata_event("thread_name", rank, pid, tensor));
                }
                ("i", "EVENTS_DROPPED") => {
                    self.dropped += args.get("count").and_then(Value::as_u64).unwrap_or_default();
                }
                ("B", _) => open.entry(pid).or_default().push((name, ts)),
                ("E", _) => {
                    if let Some((name, since)) = open.get_mut(&pid).and_then(Vec::pop) {
                        self.span(rank, pid, (name, since), ts, offset, args);
                    }
                }
                _ => {}
            }
        }
        let mut rest: Vec<(usize, (String, u64))> =
            open.into_iter().flat_map(|(pid, open)| open.into_iter().map(move |one| (pid, one))).collect();
        rest.sort();
        for (pid, one) in rest {
            self.span(rank, pid, one, end, offset, BTreeMap::new());
        }
    }

    fn span(
        &mut self,
        rank: usize,
        tid: usize,
        (name, since): (String, u64),
        ts: u64,
        offset: u64,
        args: BTreeMap<String, Value>,
    ) {
        let (dur, ts) = (Some(ts.saturating_sub(since)), Some(since.saturating_add(offset)));
        self.out.push(TraceEvent { name, ph: "X".into(), ts, dur, pid: rank, tid, args });
    }
}

fn metadata_event(what: &str, pid: usize, tid: usize, name: Value) -> TraceEvent {
    let args = if name.is_null() { BTreeMap::new() } else { BTreeMap::from([("name".to_owned(), name)]) };
    TraceEvent { name: what.into(), ph: "M".into(), pid, tid, args, ..TraceEvent::default() }
}

fn start_time(events: &[Event]) -> u64 {
    let start = |event: &Event| event.args.get("start_time_since_epoch_in_micros")?.as_u64();
    events.first().and_then(start).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(rank: usize, began: u64, events: Value) -> RankTimeline {
        let mut all = vec![
            json!({"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": began}}),
        ];
        all.extend(events.as_array().cloned().unwrap_or_default());
        let node = NodeId::parse("tvm-257509324_1-20180718t174802z-p").expect("an id");
        RankTimeline { node, rank, text: Value::Array(all).to_string() }
    }

    #[test]
    fn ranks_share_one_clock_and_begin_events_are_paired_with_end_events() {
        let events = json!([
            {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "loss"}},
            {"ph": "E", "ts": 1, "pid": 1},
            {"name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": 10, "pid": 1},
            {"ph": "E", "ts": 30, "pid": 1},
            {"name": "ALLREDUCE", "ph": "B", "ts": 30, "pid": 1},
            {"name": "GLOO_ALLREDUCE", "ph": "B", "ts": 31, "pid": 1},
            {"ph": "E", "ts": 40, "pid": 1},
            {"ph": "E", "ts": 41, "pid": 1, "args": {"dtype": "float32"}},
            {"name": "ALLREDUCE", "ph": "B", "ts": 50, "pid": 1},
            {"name": "EVENTS_DROPPED", "ph": "i", "ts": 60, "pid": 0, "s": "g", "args": {"count": 3}}]);
        let broken = RankTimeline { text: "[{".into(), ..recorded(2, 0, json!([])) };
        let (trace, dropped) =
            merge(vec![broken, recorded(1, 1_000_500, events.clone()), recorded(0, 1_000_000, events)]);
        assert_eq!(dropped, 6);
        let spans = |rank: usize| {
            let of_rank = trace.iter().filter(move |event| event.pid == rank && event.ph == "X");
            of_rank.map(|event| (event.name.as_str(), event.ts.unwrap(), event.dur.unwrap())).collect::<Vec<_>>()
        };
        let expected =
            [("NEGOTIATE_ALLREDUCE", 10, 20), ("GLOO_ALLREDUCE", 31, 9), ("ALLREDUCE", 30, 11), ("ALLREDUCE", 50, 10)];
        assert_eq!(spans(0), expected);
        assert_eq!(spans(1), expected.map(|(name, ts, dur)| (name, ts + 500, dur)));
        let threads: Vec<&Value> =
            trace.iter().filter(|event| event.name == "thread_name").map(|event| &event.args["name"]).collect();
        assert_eq!(threads, ["loss", "loss"]);
        assert_eq!(trace[0].args["name"], "rank 0 on tvm-257509324_1-20180718t174802z-p");
    }
}
