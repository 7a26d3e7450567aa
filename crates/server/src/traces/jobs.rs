//! One trace per job: a root span from submission to end, with a child span per state (queued, preparing, running, terminating), so
//! that an operator sees how long jobs wait and run. Each span is recorded when it ends. Ids are derived from the job's GUID:
//! spans recorded before and after a restart of the server belong to the same trace.

use corro_model::node::{ObservedTask, TaskPhase};
use corro_model::state::JobState;
use corro_model::{JobKey, Timestamp};
use corro_store::{JobRecord, Record, State, Store};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::Traces;
use super::context::{SpanId, TraceId};
use super::span::{AttributeValue, Span, SpanKind};

/// Start of an attempt's first rank, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankStart {
    At(Timestamp),
    Never,
    /// The attempt was placed before this server started.
    Unknown,
}

/// Records the spans of every committed job transition until the server stops.
pub async fn record_committed_transitions(traces: Traces, store: Store, mut stop: watch::Receiver<bool>) {
    if !traces.is_on() {
        return;
    }
    let mut commits = store.commit_events();
    loop {
        let commit = tokio::select! {
            commit = commits.recv() => commit,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match commit {
            Ok(commit) => {
                for (_, key) in commit.rows.iter().filter(|(kind, _)| *kind == JobRecord::KIND) {
                    let (before, after) = commit.records::<JobRecord>(key);
                    traces.record_job_transition(key, before.as_deref(), after.as_deref());
                }
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => break,
        }
    }
}

impl Traces {
    /// Records the spans that these jobs finished between two states.
    pub fn record_job_transitions(&self, keys: impl Iterator<Item = JobKey>, before: &State, after: &State) {
        for key in keys {
            let record = |state: &State| state.jobs.get(&key).cloned();
            self.record_job_transition(key.as_str(), record(before).as_deref(), record(after).as_deref());
        }
    }

    fn record_job_transition(&self, key: &str, before: Option<&JobRecord>, after: Option<&JobRecord>) {
        let Some(inner) = &self.0 else { return };
        let (Some(before), Some(after)) = (before, after) else { return };
        if before.state() == after.state() || !inner.sampler.should_sample(TraceId::for_job(&before.guid), None) {
            return;
        }
        let attempt = before.attempt();
        let known = inner.rank_starts().get(&attempt).copied();
        let placed_here = before.state().started().is_some_and(|started| started >= inner.recording_since);
        let rank_start = match known {
            Some(at) => RankStart::At(at),
            None if placed_here => RankStart::Never,
            None => RankStart::Unknown,
        };
        if after.state().nodes().is_empty() {
            inner.rank_starts().remove(&attempt);
        }
        finished_spans(key, before, after, rank_start).into_iter().for_each(|span| self.record(span));
    }

    /// Remembers the start of an attempt's ranks from a node's observation of its task.
    pub fn record_rank_start(&self, task: &ObservedTask, started: Timestamp, now: Timestamp) {
        let Some(inner) = self.0.as_ref().filter(|inner| started >= inner.recording_since) else { return };
        let first_exit = task.exits.iter().map(|exit| exit.at).min();
        let at = match task.phase {
            TaskPhase::Running => Some(now),
            TaskPhase::Ended { .. } => first_exit.map(|at| at.clamp(started, now)),
            _ => None,
        };
        if let Some(at) = at {
            let mut starts = inner.rank_starts();
            let known = starts.entry(task.attempt.clone()).or_insert(at);
            *known = at.min(*known);
        }
    }
}

/// The spans that end with the transition of a job from `before` to `after`. Pure.
pub fn finished_spans(key: &str, before: &JobRecord, after: &JobRecord, rank_start: RankStart) -> Vec<Span> {
    let (trace, until) = (TraceId::for_job(&before.guid), end_of_previous_state(before, after));
    let root = SpanId::from_digest(&format!("{} job", before.guid));
    let failure = failure_code(after);
    let part = |name: &str, began: Timestamp, ended: Timestamp, failure: Option<String>| {
        // A queued job waits for its next attempt.
        let attempt = before.attempts + u32::from(name == "queued");
        Span {
            trace,
            id: SpanId::from_digest(&format!("{} {name} {attempt}", before.guid)),
            parent: Some(root),
            name: name.to_owned(),
            kind: SpanKind::Internal,
            began: began.into(),
            ended: ended.into(),
            attributes: vec![("corro.attempt", i64::from(attempt).into())],
            failure,
        }
    };
    let mut spans = Vec::new();
    let since = before.since();
    match before.state() {
        JobState::Queued => spans.push(part("queued", since, until, failure.clone())),
        JobState::Terminating { .. } => spans.push(part("terminating", since, until, None)),
        JobState::Running { started, .. } => match rank_start {
            RankStart::At(at) => {
                let at = at.clamp(*started, until);
                spans.push(part("preparing", *started, at, None));
                spans.push(part("running", at, until, failure.clone()));
            }
            RankStart::Never => spans.push(part("preparing", *started, until, failure.clone())),
            RankStart::Unknown => {
                let mut whole = part("running", *started, until, failure.clone());
                whole.attributes.push(("corro.with_preparation", true.into()));
                spans.push(whole);
            }
        },
        JobState::Succeeded { .. } | JobState::Failed { .. } => {}
    }
    if let Some(last) = spans.last_mut().filter(|_| !before.state().nodes().is_empty()) {
        last.attributes.push(("corro.nodes", (before.state().nodes().len() as i64).into()));
    }
    if after.state().is_terminal() {
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("corro.job", key.into()),
            ("corro.job.id", before.guid.as_str().into()),
            ("corro.cluster", before.cluster.to_string().into()),
            ("corro.state", after.state().name().into()),
            ("corro.attempts", i64::from(after.attempts).into()),
        ];
        if let Some(code) = after.state().execution_info().and_then(|info| info.exit_code) {
            attributes.push(("corro.exit_code", i64::from(code).into()));
        }
        let (name, parent, kind) = (format!("job {}", before.name), None, SpanKind::Internal);
        let (began, ended) = (before.submitted().into(), until.into());
        spans.push(Span { trace, id: root, parent, name, kind, began, ended, attributes, failure });
    }
    spans
}

/// End of the previous state.
fn end_of_previous_state(before: &JobRecord, after: &JobRecord) -> Timestamp {
    match after.state() {
        JobState::Succeeded { ended, .. } | JobState::Failed { ended, .. } => *ended,
        _ => after.since(),
    }
    .max(before.since())
}

/// Error code of the failure. Output of ranks never appears in traces.
fn failure_code(after: &JobRecord) -> Option<String> {
    match after.state() {
        JobState::Failed { errors, .. } => {
            Some(errors.first().map_or_else(|| "JobFailed".to_owned(), |error| error.code.clone()))
        }
        JobState::Queued => Some(after.lost_attempts.last()?.reason.code.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn summary(spans: &[Span]) -> Vec<(String, u64, u64)> {
        let second = |nanos: super::super::span::UnixNanos| {
            (nanos.0 - super::super::span::UnixNanos::from(NOW).0) / 1_000_000_000
        };
        spans.iter().map(|span| (span.name.clone(), second(span.began), second(span.ended))).collect()
    }

    #[test]
    fn a_jobs_states_are_consecutive_child_spans() {
        let mut state = state(manual(1), 1);
        submit(&mut state, "a", 1, "PT1H");
        let queued = state.jobs[&key("a")].clone();
        change(&mut state, |txn| txn.place(&key("a"), vec![node_id(1)], at(5)).expect("it is idle"));
        let running = state.jobs[&key("a")].clone();
        end(&mut state, "a", at(60));
        let ended = state.jobs[&key("a")].clone();

        let waited = finished_spans("g/w/cifar/a", &queued, &running, RankStart::Never);
        assert_eq!(summary(&waited), [("queued".to_owned(), 0, 5)]);
        let ran = finished_spans("g/w/cifar/a", &running, &ended, RankStart::At(at(7)));
        let expected = [("preparing", 5, 7), ("running", 7, 60), ("job A", 0, 60)];
        assert_eq!(summary(&ran), expected.map(|(name, from, to)| (name.to_owned(), from, to)));
        let job = ran.last().expect("the job itself");
        assert!(job.parent.is_none() && job.failure.is_none());
        assert!(job.attributes.contains(&("corro.exit_code", 0.into())), "{job:?}");
        assert!(waited.iter().chain(&ran[..2]).all(|part| part.parent == Some(job.id) && part.trace == job.trace));
        assert_eq!(ran[0].attributes[0], waited[0].attributes[0], "one attempt");

        let unseen = finished_spans("g/w/cifar/a", &running, &ended, RankStart::Unknown);
        assert_eq!(summary(&unseen)[0], ("running".to_owned(), 5, 60));
        assert_eq!(
            summary(&finished_spans("g/w/cifar/a", &running, &ended, RankStart::Never))[0],
            ("preparing".to_owned(), 5, 60)
        );
    }
}
