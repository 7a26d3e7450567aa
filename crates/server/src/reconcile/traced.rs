//! A pass as a span, when it did something. Also where traces learn when the ranks of a job began: nodes say so in passing.

use std::collections::{BTreeMap, BTreeSet};

use corro_model::{ApiError, NodeId, Timestamp};
use corro_store::State;

use super::steps::Step;
use crate::gateway::Sighting;
use crate::traces::Traces;
use crate::traces::context::{SpanId, TraceId};
use crate::traces::span::{AttributeValue, Span, SpanKind, UnixNanos};

pub struct Traced {
    traces: Traces,
    whole: bool,
    began: UnixNanos,
    steps: BTreeMap<&'static str, usize>,
}

impl Traced {
    /// Nothing when there are no traces.
    pub fn begin(traces: &Traces, whole: bool) -> Option<Traced> {
        let traced = || Traced { traces: traces.clone(), whole, began: UnixNanos::now(), steps: BTreeMap::new() };
        traces.is_on().then(traced)
    }

    pub fn note_tasks(
        &self,
        news: &BTreeSet<NodeId>,
        sightings: &BTreeMap<NodeId, Sighting>,
        state: &State,
        now: Timestamp,
    ) {
        let started: BTreeMap<_, _> = match news.is_empty() {
            true => return,
            false => state.active_jobs().filter_map(|(_, job)| Some((job.attempt(), job.state().started()?))).collect(),
        };
        let seen = news.iter().filter_map(|node| sightings.get(node));
        for task in seen.filter_map(|sighting| sighting.observed.task.as_ref()) {
            if let Some(started) = started.get(&task.attempt) {
                self.traces.record_rank_start(task, *started, now);
            }
        }
    }

    pub fn decided(&mut self, steps: &[Step]) {
        for step in steps {
            *self.steps.entry(step.word()).or_default() += 1;
        }
    }

    /// A pass that did nothing is not worth telling.
    pub fn end(self, failure: Option<&ApiError>) {
        let trace = TraceId::random();
        let taken = self.traces.sampler().is_some_and(|sampler| sampler.should_sample(trace, None));
        if self.steps.is_empty() || !taken {
            return;
        }
        let count: usize = self.steps.values().sum();
        let words: Vec<String> = self.steps.iter().map(|(word, count)| format!("{word}={count}")).collect();
        let attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("corro.steps", (count as i64).into()),
            ("corro.steps.kinds", words.join(",").into()),
            ("corro.whole", self.whole.into()),
        ];
        let (id, parent, name, kind) = (SpanId::random(), None, "reconcile".to_owned(), SpanKind::Internal);
        let failure = failure.map(|error| error.code.clone());
        let (began, ended) = (self.began, UnixNanos::now());
        self.traces.record(Span { trace, id, parent, name, kind, began, ended, attributes, failure });
    }
}
