//! A job's life as one trace: the job itself from its submission to its end, and below it what it was at which time (queued, preparing,
//! running, terminating), so that a site sees how long jobs wait and how long they run. Each part is told when it is over. Names
//! follow from the job's id: parts told before and after a restart of the server belong together.

use corro_model::node::{ObservedTask, TaskPhase};
use corro_model::state::JobState;
use corro_model::{JobKey, Timestamp};
use corro_store::{JobRecord, Record, State};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use super::Traces;
use super::context::{SpanId, TraceId};
use super::span::{Kind, Span, Value};
use crate::app::App;

/// When the ranks of an attempt began, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    At(Timestamp),
    Never,
    /// It was before this server began.
    Unknown,
}

/// Tells of jobs whatever is committed, until the server stops.
pub async fn watch(app: App, mut stop: watch::Receiver<bool>) {
    if !app.traces.is_on() {
        return;
    }
    let mut touches = app.store.touches();
    loop {
        let touched = tokio::select! {
            touched = touches.recv() => touched,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match touched {
            Ok(touched) => {
                for (_, key) in touched.rows.iter().filter(|(kind, _)| *kind == JobRecord::KIND) {
                    let (before, after) = touched.records::<JobRecord>(key);
                    app.traces.tell_job(key, before.as_deref(), after.as_deref());
                }
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => break,
        }
    }
}

impl Traces {
    /// What these jobs went through between two states.
    pub fn tell_jobs(&self, keys: impl Iterator<Item = JobKey>, before: &State, after: &State) {
        for key in keys {
            let record = |state: &State| state.jobs.get(&key).cloned();
            self.tell_job(key.as_str(), record(before).as_deref(), record(after).as_deref());
        }
    }

    fn tell_job(&self, key: &str, before: Option<&JobRecord>, after: Option<&JobRecord>) {
        let Some(inner) = &self.0 else { return };
        let (Some(before), Some(after)) = (before, after) else { return };
        if before.state() == after.state() || !inner.sampler.takes(TraceId::of_job(&before.guid), None) {
            return;
        }
        let attempt = before.attempt();
        let known = inner.began().get(&attempt).copied();
        let placed_here = before.state().started().is_some_and(|started| started >= inner.since);
        let beginning = match known {
            Some(at) => Beginning::At(at),
            None if placed_here => Beginning::Never,
            None => Beginning::Unknown,
        };
        if after.state().nodes().is_empty() {
            inner.began().remove(&attempt);
        }
        spans(key, before, after, beginning).into_iter().for_each(|span| self.tell(span));
    }

    /// What a node says about its part of an attempt.
    pub fn note_task(&self, task: &ObservedTask, started: Timestamp, now: Timestamp) {
        let Some(inner) = self.0.as_ref().filter(|inner| started >= inner.since) else { return };
        let first_exit = task.exits.iter().map(|exit| exit.at).min();
        let at = match task.phase {
            TaskPhase::Running => Some(now),
            TaskPhase::Ended { .. } => first_exit.map(|at| at.clamp(started, now)),
            _ => None,
        };
        if let Some(at) = at {
            let mut began = inner.began();
            let known = began.entry(task.attempt.clone()).or_insert(at);
            *known = at.min(*known);
        }
    }
}

/// What is over, now that a job has gone from one state to another. Pure.
pub fn spans(key: &str, before: &JobRecord, after: &JobRecord, beginning: Beginning) -> Vec<Span> {
    let (trace, until) = (TraceId::of_job(&before.guid), end_of(before, after));
    let root = SpanId::of(&format!("{} job", before.guid));
    let failure = failure_of(after);
    let part = |name: &str, began: Timestamp, ended: Timestamp, failure: Option<String>| {
        // Waiting is for the attempt to come.
        let attempt = before.attempts + u32::from(name == "queued");
        Span {
            trace,
            id: SpanId::of(&format!("{} {name} {attempt}", before.guid)),
            parent: Some(root),
            name: name.to_owned(),
            kind: Kind::Internal,
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
        JobState::Running { started, .. } => match beginning {
            Beginning::At(at) => {
                let at = at.clamp(*started, until);
                spans.push(part("preparing", *started, at, None));
                spans.push(part("running", at, until, failure.clone()));
            }
            Beginning::Never => spans.push(part("preparing", *started, until, failure.clone())),
            Beginning::Unknown => {
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
        let mut attributes: Vec<(&'static str, Value)> = vec![
            ("corro.job", key.into()),
            ("corro.job.id", before.guid.as_str().into()),
            ("corro.cluster", before.cluster.to_string().into()),
            ("corro.state", after.state().name().into()),
            ("corro.attempts", i64::from(after.attempts).into()),
        ];
        if let Some(code) = after.state().execution_info().and_then(|info| info.exit_code) {
            attributes.push(("corro.exit_code", i64::from(code).into()));
        }
        let (name, parent, kind) = (format!("job {}", before.name), None, Kind::Internal);
        let (began, ended) = (before.submitted().into(), until.into());
        spans.push(Span { trace, id: root, parent, name, kind, began, ended, attributes, failure });
    }
    spans
}

/// When what it was before was over.
fn end_of(before: &JobRecord, after: &JobRecord) -> Timestamp {
    match after.state() {
        JobState::Succeeded { ended, .. } | JobState::Failed { ended, .. } => *ended,
        _ => after.since(),
    }
    .max(before.since())
}

/// In the service's words; what ranks wrote stays in their logs.
fn failure_of(after: &JobRecord) -> Option<String> {
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

    fn told(spans: &[Span]) -> Vec<(String, u64, u64)> {
        let second =
            |nanos: super::super::span::Nanos| (nanos.0 - super::super::span::Nanos::from(NOW).0) / 1_000_000_000;
        spans.iter().map(|span| (span.name.clone(), second(span.began), second(span.ended))).collect()
    }

    #[test]
    fn a_life_has_parts_that_follow_each_other_below_the_job() {
        let mut state = state(manual(1), 1);
        submit(&mut state, "a", 1, "PT1H");
        let queued = state.jobs[&key("a")].clone();
        change(&mut state, |txn| txn.place(&key("a"), vec![node_id(1)], at(5)).expect("it is idle"));
        let running = state.jobs[&key("a")].clone();
        end(&mut state, "a", at(60));
        let ended = state.jobs[&key("a")].clone();

        let waited = spans("g/w/cifar/a", &queued, &running, Beginning::Never);
        assert_eq!(told(&waited), [("queued".to_owned(), 0, 5)]);
        let ran = spans("g/w/cifar/a", &running, &ended, Beginning::At(at(7)));
        let expected = [("preparing", 5, 7), ("running", 7, 60), ("job A", 0, 60)];
        assert_eq!(told(&ran), expected.map(|(name, from, to)| (name.to_owned(), from, to)));
        let job = ran.last().expect("the job itself");
        assert!(job.parent.is_none() && job.failure.is_none());
        assert!(job.attributes.contains(&("corro.exit_code", 0.into())), "{job:?}");
        assert!(waited.iter().chain(&ran[..2]).all(|part| part.parent == Some(job.id) && part.trace == job.trace));
        assert_eq!(ran[0].attributes[0], waited[0].attributes[0], "one attempt");

        let unseen = spans("g/w/cifar/a", &running, &ended, Beginning::Unknown);
        assert_eq!(told(&unseen)[0], ("running".to_owned(), 5, 60));
        assert_eq!(told(&spans("g/w/cifar/a", &running, &ended, Beginning::Never))[0], ("preparing".to_owned(), 5, 60));
    }
}
