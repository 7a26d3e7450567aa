//! Which step of the training this is, without being told: a name that comes again begins another step. Entered by [`super::Status`].

use std::sync::Arc;

/// Counts how often one name came: the mark. Names that come once (weights at the start, numbered ones) make no good marks,
/// so when the mark does not come for long, the name at hand takes its place. How long grows, until it is longer than a step.
#[derive(Debug)]
pub struct Steps {
    mark: Option<Arc<str>>,
    n_since: usize,
    patience: usize,
    pub count: u64,
}

const FIRST_PATIENCE: usize = 8;
const MOST_PATIENCE: usize = 1 << 16;

impl Steps {
    pub fn new() -> Steps {
        Steps { mark: None, n_since: 0, patience: FIRST_PATIENCE, count: 0 }
    }

    /// A tensor of this name was reduced.
    pub fn note(&mut self, name: &Arc<str>) {
        self.n_since += 1;
        match &self.mark {
            Some(mark) if Arc::ptr_eq(mark, name) || mark == name => {
                // The first time a mark comes again, two steps are known: this one and the one before it.
                self.count += if self.count == 0 { 2 } else { 1 };
                self.n_since = 0;
            }
            Some(_) if self.n_since <= self.patience => {}
            known => {
                if known.is_some() {
                    self.patience = (self.patience * 2).min(MOST_PATIENCE);
                }
                self.mark = Some(name.clone());
                self.n_since = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(names: impl IntoIterator<Item = String>) -> u64 {
        let mut steps = Steps::new();
        names.into_iter().for_each(|name| steps.note(&name.into()));
        steps.count
    }

    #[test]
    fn a_name_that_comes_again_is_a_step() {
        assert_eq!(after((0..10).map(|_| "loss".to_owned())), 10);
        assert_eq!(after((0..10).flat_map(|_| (0..5).map(|n| format!("gradient.{n}")))), 10);
        assert_eq!(after(["once".to_owned()]), 0);
    }

    #[test]
    fn what_came_once_at_the_start_is_forgotten() {
        let start = (0..3).map(|n| format!("weights.{n}"));
        let steps = (0..100).flat_map(|_| (0..160).map(|n| format!("gradient.{n}")));
        let count = after(start.chain(steps));
        assert!((94..=100).contains(&count), "{count}");
    }

    #[test]
    fn numbered_names_are_no_steps() {
        assert_eq!(after((0..1000).map(|n| format!("allreduce.noname.{n}"))), 0);
    }
}
