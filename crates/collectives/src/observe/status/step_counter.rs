//! Heuristic count of training steps from tensor names: a reduction whose name recurs starts a new step.

use std::sync::Arc;

/// Counts the occurrences of one tensor name, the marker. Names that occur once (initial weights, numbered names) are bad markers: if the
/// marker has not recurred within `max_gap` reductions, the current name replaces it. `max_gap` then doubles, until it exceeds a step.
#[derive(Debug)]
pub struct StepCounter {
    marker: Option<Arc<str>>,
    /// Reductions since the marker occurred.
    gap: usize,
    max_gap: usize,
    pub count: u64,
}

const INITIAL_MAX_GAP: usize = 8;
const MAX_GAP_LIMIT: usize = 1 << 16;

impl StepCounter {
    pub fn new() -> StepCounter {
        StepCounter { marker: None, gap: 0, max_gap: INITIAL_MAX_GAP, count: 0 }
    }

    /// Records the reduction of a tensor.
    pub fn on_tensor(&mut self, name: &Arc<str>) {
        self.gap += 1;
        match &self.marker {
            Some(marker) if Arc::ptr_eq(marker, name) || marker == name => {
                // At the first recurrence of a marker two steps are known: this one and the previous one.
                self.count += if self.count == 0 { 2 } else { 1 };
                self.gap = 0;
            }
            Some(_) if self.gap <= self.max_gap => {}
            known => {
                if known.is_some() {
                    self.max_gap = (self.max_gap * 2).min(MAX_GAP_LIMIT);
                }
                self.marker = Some(name.clone());
                self.gap = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(names: impl IntoIterator<Item = String>) -> u64 {
        let mut steps = StepCounter::new();
        names.into_iter().for_each(|name| steps.on_tensor(&name.into()));
        steps.count
    }

    #[test]
    fn a_recurring_name_is_a_step() {
        assert_eq!(after((0..10).map(|_| "loss".to_owned())), 10);
        assert_eq!(after((0..10).flat_map(|_| (0..5).map(|n| format!("gradient.{n}")))), 10);
        assert_eq!(after(["once".to_owned()]), 0);
    }

    #[test]
    fn names_that_occur_once_at_the_start_are_replaced() {
        let start = (0..3).map(|n| format!("weights.{n}"));
        let steps = (0..100).flat_map(|_| (0..160).map(|n| format!("gradient.{n}")));
        let count = after(start.chain(steps));
        assert!((94..=100).contains(&count), "{count}");
    }

    #[test]
    fn numbered_names_do_not_count_as_steps() {
        assert_eq!(after((0..1000).map(|n| format!("allreduce.noname.{n}"))), 0);
    }
}
