//! Audit log of requests: refused requests, failed logins, and who was given keys or links. Written to the history
//! beside the changes, which the store records itself. Rate-limited, so that a flood of requests can neither displace
//! older history nor fill the disk; suppressed lines are counted in the next one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corro_model::ApiError;
use corro_model::rbac::Scope;
use corro_store::Store;
use serde_json::json;

/// Sustained rate and burst of audit lines.
const LINES_PER_SECOND: f64 = 2.0;
const MAX_BURST_LINES: f64 = 500.0;
/// Longer paths are truncated.
const MAX_PATH_CHARS: usize = 300;

/// Interval in which the same caller, address and path are recorded once: a client that follows a log gets new links
/// all the time.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// Capacity of the table of recent requests; beyond it some are recorded twice.
const MAX_RECENT: usize = 1000;

#[derive(Clone, Default)]
pub struct AuditLog {
    /// Separate budgets, so that unauthenticated requests cannot suppress lines about authenticated ones.
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

/// Request to record.
pub struct AuditedRequest<'a> {
    /// Id of the principal; `None` if not authenticated.
    pub caller: Option<&'a str>,
    pub address: &'a str,
    pub method: &'a str,
    /// Without the query, which may contain signatures.
    pub path: &'a str,
    pub status: u16,
    pub code: &'a str,
    /// Existing principal that a failed login named.
    pub tried: Option<&'a str>,
}

/// Actor of unauthenticated requests.
pub const ANONYMOUS: &str = "anonymous";

impl AuditLog {
    /// Records a request in the background. A failure is logged and does not affect the response.
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
                txn.add_history(what, &resource, detail);
                Ok::<_, ApiError>(())
            });
            // The store logs a full disk once itself.
            if let Err(error) = noted.await
                && error.status != ApiError::INSUFFICIENT_STORAGE
            {
                tracing::error!(%error, "cannot write an audit line");
            }
        });
    }

    /// Like [`Self::record`], but once per caller, address and path in `REPEAT_INTERVAL`.
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
    /// Number of lines suppressed since the last one; `None` if this one is suppressed too.
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
    fn repeated_requests_are_recorded_once_per_interval() {
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
    fn a_flood_is_limited_to_the_burst_and_the_rest_is_counted() {
        let mut budget = Budget::default();
        let start = Instant::now();
        let recorded = (0..10_000).filter(|_| budget.spend(start).is_some()).count();
        assert_eq!(recorded, MAX_BURST_LINES as usize);
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(10_000 - MAX_BURST_LINES as u64));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), Some(0));
        assert_eq!(budget.spend(start + Duration::from_secs(1)), None);
    }
}
