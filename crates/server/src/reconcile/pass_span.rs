//! Trace span of a reconcile pass that changed something. Also records when the ranks of jobs start, from the nodes' observations.

use std::collections::{BTreeMap, BTreeSet};

use corro_model::{ApiError, NodeId, Timestamp};
use corro_store::State;

use super::steps::Step;
use crate::gateway::NodeObservation;
use crate::traces::Traces;
use crate::traces::context::{SpanId, TraceId};
use crate::traces::span::{AttributeValue, Span, SpanKind, UnixNanos};

pub struct PassSpan {
    traces: Traces,
    full: bool,
    began: UnixNanos,
    steps: BTreeMap<&'static str, usize>,
}

impl PassSpan {
    /// `None` when traces are off.
    pub fn begin(traces: &Traces, full: bool) -> Option<PassSpan> {
        let pass_span = || PassSpan { traces: traces.clone(), full, began: UnixNanos::now(), steps: BTreeMap::new() };
        traces.is_on().then(pass_span)
    }

    pub fn record_rank_starts(
        &self,
        changed: &BTreeSet<NodeId>,
        observations: &BTreeMap<NodeId, NodeObservation>,
        state: &State,
        now: Timestamp,
    ) {
        let started: BTreeMap<_, _> = match changed.is_empty() {
            true => return,
            false => state.active_jobs().filter_map(|(_, job)| Some((job.attempt(), job.state().started()?))).collect(),
        };
        let observations_of_changed = changed.iter().filter_map(|node| observations.get(node));
        for task in observations_of_changed.filter_map(|observation| observation.observed.task.as_ref()) {
            if let Some(started) = started.get(&task.attempt) {
                self.traces.record_rank_start(task, *started, now);
            }
        }
    }

    pub fn record_steps(&mut self, steps: &[Step]) {
        for step in steps {
            *self.steps.entry(step.kind()).or_default() += 1;
        }
    }

    /// Records the span, unless the pass decided nothing.
    pub fn end(self, failure: Option<&ApiError>) {
        let trace = TraceId::random();
        let is_sampled = self.traces.sampler().is_some_and(|sampler| sampler.should_sample(trace, None));
        if self.steps.is_empty() || !is_sampled {
            return;
        }
        let count: usize = self.steps.values().sum();
        let kinds: Vec<String> = self.steps.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
        let attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("corro.steps", (count as i64).into()),
            ("corro.steps.kinds", kinds.join(",").into()),
            ("corro.whole", self.full.into()),
        ];
        let (id, parent, name, kind) = (SpanId::random(), None, "reconcile".to_owned(), SpanKind::Internal);
        let failure = failure.map(|error| error.code.clone());
        let (began, ended) = (self.began, UnixNanos::now());
        self.traces.record(Span { trace, id, parent, name, kind, began, ended, attributes, failure });
    }
}
