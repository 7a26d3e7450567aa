//! What was asked and refused, and who was shown keys: lines in the history beside those of the changes themselves, which
//! the store writes with each change. Bounded, so that nobody can push the past out or fill the disk by knocking: what is
//! too much is counted and told with the next line.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use corro_model::ApiError;
use corro_model::rights::Scope;
use corro_store::Store;
use serde_json::json;

/// Lines a second over a long time, and at once.
const RATE: f64 = 2.0;
const BURST: f64 = 500.0;
/// Longer paths are cut.
const MAX_PATH: usize = 300;

#[derive(Clone, Default)]
pub struct Audit {
    budget: Arc<Mutex<Budget>>,
}

#[derive(Default)]
struct Budget {
    spent: f64,
    at: Option<Instant>,
    unsaid: u64,
}

/// One request that is worth a line.
pub struct Asked<'a> {
    /// The principal's id; `None` for whoever has not logged in.
    pub caller: Option<&'a str>,
    pub address: &'a str,
    pub method: &'a str,
    /// Without its query, which may hold signatures.
    pub path: &'a str,
    pub status: u16,
    pub code: &'a str,
}

/// Who is noted when nobody is known.
pub const ANONYMOUS: &str = "anonymous";

impl Audit {
    /// Writes the line in the background; a store that cannot is reported in the log and changes no answer.
    pub fn note(&self, store: &Store, asked: &Asked<'_>) {
        let Some(unsaid) = self.budget.lock().expect("no one panics while holding the budget").spend(Instant::now())
        else {
            return;
        };
        let what = if asked.status < 400 { "request.granted" } else { "request.refused" };
        let path: String = asked.path.chars().take(MAX_PATH).collect();
        let resource = match Scope::of_path(asked.path) {
            Scope::Subscription => String::new(),
            Scope::Group(group) => group,
            Scope::Workspace(group, workspace) => format!("{group}/{workspace}"),
        };
        let mut detail = json!({"method": asked.method, "path": path, "status": asked.status, "code": asked.code});
        if unsaid > 0 {
            detail["unsaid"] = json!(unsaid);
        }
        let store = store.acting_from(asked.caller.unwrap_or(ANONYMOUS), asked.address);
        tokio::spawn(async move {
            let noted = store.commit(move |txn| {
                txn.note(what, &resource, detail);
                Ok::<_, ApiError>(())
            });
            if let Err(error) = noted.await {
                tracing::error!(%error, "a line of the audit log cannot be written");
            }
        });
    }
}

impl Budget {
    /// How many lines were left out since the last one; `None` when this one is left out too.
    fn spend(&mut self, now: Instant) -> Option<u64> {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.at = Some(now);
        self.spent = (self.spent - passed * RATE).max(0.0);
        if self.spent + 1.0 > BURST {
            self.unsaid += 1;
            return None;
        }
        self.spent += 1.0;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn knocking_writes_a_few_lines_and_counts_the_rest() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let said = (0..10_000).filter(|_| budget.spend(start).is_some()).count();
        assert_eq!(said, BURST as usize);
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(10_000 - BURST as u64));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(0));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), None);
    }
}
