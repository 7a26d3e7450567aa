//! What was asked and refused, logins that failed, and who was shown keys or given links: lines in the history beside those of the changes themselves, which
//! the store writes with each change. Bounded, so that nobody can push the past out or fill the disk by knocking: what is
//! too much is counted and told with the next line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corro_model::ApiError;
use corro_model::rights::Scope;
use corro_store::Store;
use serde_json::json;

/// Lines a second over a long time, and at once.
const LINES_PER_SECOND: f64 = 2.0;
const MAX_BURST_LINES: f64 = 500.0;
/// Longer paths are cut.
const MAX_PATH_CHARS: usize = 300;

/// Whoever follows a log is handed links again and again: one line for so long.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// Handings-out that are remembered; with more, some are told twice.
const MAX_RECENT: usize = 1000;

#[derive(Clone, Default)]
pub struct AuditLog {
    /// Strangers have one of their own, so that they cannot use up what tells of the others.
    unauthenticated: Arc<Mutex<Budget>>,
    authenticated: Arc<Mutex<Budget>>,
    recent: Arc<Mutex<HashMap<String, Instant>>>,
}

#[derive(Default)]
struct Budget {
    spent: f64,
    at: Option<Instant>,
    suppressed: u64,
}

/// One request that is worth a line.
pub struct AuditedRequest<'a> {
    /// The principal's id; `None` for whoever has not logged in.
    pub caller: Option<&'a str>,
    pub address: &'a str,
    pub method: &'a str,
    /// Without its query, which may hold signatures.
    pub path: &'a str,
    pub status: u16,
    pub code: &'a str,
    /// The principal that a login was tried for, when there is one of that id.
    pub tried: Option<&'a str>,
}

/// Who is noted when nobody is known.
pub const ANONYMOUS: &str = "anonymous";

impl AuditLog {
    /// Writes the line in the background; a store that cannot is reported in the log and changes no answer.
    pub fn record(&self, store: &Store, request: &AuditedRequest<'_>) {
        let budget = if request.caller.is_some() { &self.authenticated } else { &self.unauthenticated };
        let Some(suppressed) = budget.lock().expect("no one panics while holding the budget").spend(Instant::now())
        else {
            return;
        };
        let what = if request.status < 400 { "request.granted" } else { "request.refused" };
        let path: String = request.path.chars().take(MAX_PATH_CHARS).collect();
        let resource = match Scope::of_path(request.path) {
            Scope::Subscription => String::new(),
            Scope::Group(group) => group,
            Scope::Workspace(group, workspace) => format!("{group}/{workspace}"),
        };
        let mut detail =
            json!({"method": request.method, "path": path, "status": request.status, "code": request.code});
        if let Some(tried) = request.tried {
            detail["tried"] = json!(tried);
        }
        if suppressed > 0 {
            detail["unsaid"] = json!(suppressed);
        }
        let store = store.acting_from(request.caller.unwrap_or(ANONYMOUS), request.address);
        tokio::spawn(async move {
            let noted = store.commit(move |txn| {
                txn.note(what, &resource, detail);
                Ok::<_, ApiError>(())
            });
            // The store tells of a full disk once.
            if let Err(error) = noted.await
                && error.status != ApiError::INSUFFICIENT_STORAGE
            {
                tracing::error!(%error, "a line of the audit log cannot be written");
            }
        });
    }

    /// The same for what is asked for often: one line for each caller, address and path in ten minutes.
    pub fn record_once(&self, store: &Store, request: &AuditedRequest<'_>) {
        if self.is_first_in_interval(request, Instant::now()) {
            self.record(store, request);
        }
    }

    fn is_first_in_interval(&self, request: &AuditedRequest<'_>, now: Instant) -> bool {
        let key =
            format!("{} {} {}", request.caller.unwrap_or(ANONYMOUS), request.address, request.path.to_lowercase());
        let mut recent = self.recent.lock().expect("no one panics while holding the recent requests");
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < REPEAT_INTERVAL;
        if recent.get(&key).is_some_and(is_recent) {
            return false;
        }
        if recent.len() >= MAX_RECENT {
            recent.retain(|_, at| is_recent(at));
            if recent.len() >= MAX_RECENT {
                recent.clear();
            }
        }
        recent.insert(key, now);
        true
    }
}

impl Budget {
    /// How many lines were left out since the last one; `None` when this one is left out too.
    fn spend(&mut self, now: Instant) -> Option<u64> {
        let passed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        self.at = Some(now);
        self.spent = (self.spent - passed * LINES_PER_SECOND).max(0.0);
        if self.spent + 1.0 > MAX_BURST_LINES {
            self.suppressed += 1;
            return None;
        }
        self.spent += 1.0;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_and_again_is_told_once_in_a_while() {
        let audit = AuditLog::default();
        let start = Instant::now();
        let ask = |path: &str, after: Duration| {
            let (caller, address) = (Some("alice"), "127.0.0.1");
            let request = AuditedRequest { caller, address, method: "POST", path, status: 200, code: "", tried: None };
            audit.is_first_in_interval(&request, start + after)
        };
        assert!(
            ask("/jobs/a", Duration::ZERO) && !ask("/Jobs/a", REPEAT_INTERVAL / 2) && ask("/jobs/a", REPEAT_INTERVAL)
        );
        for number in 0..3 * MAX_RECENT {
            assert!(ask(&format!("/jobs/{number}"), REPEAT_INTERVAL));
            assert!(audit.recent.lock().expect("free").len() <= MAX_RECENT);
        }
    }

    #[test]
    fn knocking_writes_a_few_lines_and_counts_the_rest() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let said = (0..10_000).filter(|_| budget.spend(start).is_some()).count();
        assert_eq!(said, MAX_BURST_LINES as usize);
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(10_000 - MAX_BURST_LINES as u64));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(0));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), None);
    }
}
