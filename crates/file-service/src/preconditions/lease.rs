//! State machine of leases. Pure: time and new ids are arguments. A lease is stored among the properties of its file or
//! share, so it survives a restart. Expiry is noticed when the lease is loaded.

use corro_shares::Properties;

/// Property name. Never sent as a header: the lease id is known to its holder only.
const LEASE_PROPERTY: &str = "lease";

/// Whether the properties hold a lease in any state.
pub(crate) fn has_lease(properties: &Properties) -> bool {
    properties.get(LEASE_PROPERTY).is_some()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lease {
    Available,
    Leased {
        id: String,
        term: Term,
    },
    /// Still held until then, and not available to others before.
    Breaking {
        id: String,
        until: i64,
    },
    Broken {
        id: String,
    },
    Expired {
        id: String,
        seconds: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    Infinite,
    Fixed { seconds: i64, until: i64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// For a number of seconds; `None` is infinite.
    Acquire {
        proposed: String,
        seconds: Option<i64>,
    },
    Renew {
        id: String,
    },
    Change {
        id: String,
        proposed: String,
    },
    Release {
        id: String,
    },
    /// After at most so many seconds.
    Break {
        after: Option<i64>,
    },
}

/// Error code of the REST API.
type ErrorCode = &'static str;

impl Lease {
    /// State at `now`. An unreadable value counts as no lease, because a job can write any value.
    pub fn load(properties: &Properties, now: i64) -> Self {
        let words: Vec<&str> = properties.get(LEASE_PROPERTY).unwrap_or_default().split(' ').collect();
        let number = |text: &str| text.parse::<i64>().ok();
        match words[..] {
            ["leased", id, "infinite"] => Lease::Leased { id: id.to_owned(), term: Term::Infinite },
            ["leased", id, seconds, until] => match (number(seconds), number(until)) {
                (Some(seconds), Some(until)) => Lease::from_stored_term(id, seconds, until, now),
                _ => Lease::Available,
            },
            ["breaking", id, until] => match number(until) {
                Some(until) if is_in_future(until, MAX_BREAK_SECONDS, now) => {
                    Lease::Breaking { id: id.to_owned(), until }
                }
                Some(_) => Lease::Broken { id: id.to_owned() },
                None => Lease::Available,
            },
            ["broken", id] => Lease::Broken { id: id.to_owned() },
            _ => Lease::Available,
        }
    }

    fn from_stored_term(id: &str, seconds: i64, until: i64, now: i64) -> Self {
        let id = id.to_owned();
        match is_in_future(until, seconds, now) {
            true => Lease::Leased { id, term: Term::Fixed { seconds, until } },
            false => Lease::Expired { id, seconds },
        }
    }

    pub fn store(&self, properties: &mut Properties) {
        let text = match self {
            Lease::Available => return properties.remove(LEASE_PROPERTY),
            Lease::Leased { id, term: Term::Infinite } => format!("leased {id} infinite"),
            Lease::Leased { id, term: Term::Fixed { seconds, until } } => format!("leased {id} {seconds} {until}"),
            Lease::Breaking { id, until } => format!("breaking {id} {until}"),
            Lease::Broken { id } => format!("broken {id}"),
            Lease::Expired { id, seconds } => format!("leased {id} {seconds} 0"),
        };
        let stored = properties.set(LEASE_PROPERTY, &text);
        debug_assert!(stored, "ids and numbers are printable");
    }

    /// Keeps the lease when all other properties are replaced.
    pub fn copy(from: &Properties, to: &mut Properties) {
        to.remove(LEASE_PROPERTY);
        if let Some(text) = from.get(LEASE_PROPERTY) {
            let stored = to.set(LEASE_PROPERTY, text);
            debug_assert!(stored, "it is a valid property");
        }
    }

    /// Azure's transition table: every state with every action.
    pub fn apply(self, action: Action, now: i64) -> Result<Lease, ErrorCode> {
        use Action as A;
        use Lease as L;
        let taken = |id: String, seconds: Option<i64>| L::Leased { id, term: Term::starting(seconds, now) };
        Ok(match (self, action) {
            (L::Available | L::Broken { .. } | L::Expired { .. }, A::Acquire { proposed, seconds }) => {
                taken(proposed, seconds)
            }
            (L::Leased { id, .. }, A::Acquire { proposed, seconds }) if id == proposed => taken(id, seconds),
            (L::Leased { .. }, A::Acquire { .. }) => return Err("LeaseAlreadyPresent"),
            (L::Breaking { id, .. }, A::Acquire { proposed, .. }) if id == proposed => {
                return Err("LeaseIsBreakingAndCannotBeAcquired");
            }
            (L::Breaking { .. }, A::Acquire { .. }) => return Err("LeaseAlreadyPresent"),

            (L::Leased { id, term }, A::Renew { id: own }) if id == own => L::Leased { id, term: term.renewed(now) },
            (L::Expired { id, seconds }, A::Renew { id: own }) if id == own => taken(id, Some(seconds)),
            (L::Breaking { id, .. } | L::Broken { id }, A::Renew { id: own }) if id == own => {
                return Err("LeaseIsBrokenAndCannotBeRenewed");
            }
            (_, A::Renew { .. }) => return Err("LeaseIdMismatchWithLeaseOperation"),

            // A repeated change succeeds.
            (L::Leased { id, term }, A::Change { id: own, proposed }) if id == own || id == proposed => {
                L::Leased { id: proposed, term }
            }
            (L::Leased { .. }, A::Change { .. }) => return Err("LeaseIdMismatchWithLeaseOperation"),
            (L::Breaking { id, .. }, A::Change { id: own, .. }) if id == own => {
                return Err("LeaseIsBreakingAndCannotBeChanged");
            }
            (L::Breaking { .. }, A::Change { .. }) => return Err("LeaseIdMismatchWithLeaseOperation"),
            (L::Available | L::Broken { .. } | L::Expired { .. }, A::Change { .. }) => {
                return Err("LeaseNotPresentWithLeaseOperation");
            }

            (
                L::Leased { id, .. } | L::Breaking { id, .. } | L::Broken { id } | L::Expired { id, .. },
                A::Release { id: own },
            ) if id == own => L::Available,
            (_, A::Release { .. }) => return Err("LeaseIdMismatchWithLeaseOperation"),

            (L::Available, A::Break { .. }) => return Err("LeaseNotPresentWithLeaseOperation"),
            (L::Leased { id, term: Term::Infinite }, A::Break { after }) => breaking(id, after.unwrap_or(0), now),
            (L::Leased { id, term: Term::Fixed { until, .. } } | L::Breaking { id, until }, A::Break { after }) => {
                let left = until - now;
                breaking(id, after.map_or(left, |after| after.min(left)), now)
            }
            (L::Broken { id } | L::Expired { id, .. }, A::Break { .. }) => L::Broken { id },
        })
    }

    pub fn id(&self) -> Option<&str> {
        match self {
            Lease::Available => None,
            Lease::Leased { id, .. }
            | Lease::Breaking { id, .. }
            | Lease::Broken { id }
            | Lease::Expired { id, .. } => Some(id),
        }
    }

    /// Seconds until a breaking lease becomes available.
    pub fn seconds_left(&self, now: i64) -> i64 {
        match self {
            Lease::Breaking { until, .. } => (until - now).max(0),
            _ => 0,
        }
    }

    pub fn is_held(&self) -> bool {
        matches!(self, Lease::Leased { .. } | Lease::Breaking { .. })
    }

    /// `x-ms-lease-state`
    pub fn state(&self) -> &'static str {
        match self {
            Lease::Available => "available",
            Lease::Leased { .. } => "leased",
            Lease::Breaking { .. } => "breaking",
            Lease::Broken { .. } => "broken",
            Lease::Expired { .. } => "expired",
        }
    }

    /// `x-ms-lease-status`
    pub fn status(&self) -> &'static str {
        if self.is_held() { "locked" } else { "unlocked" }
    }

    /// `x-ms-lease-duration` of a lease that is held.
    pub fn duration(&self) -> Option<&'static str> {
        match self {
            Lease::Leased { term: Term::Infinite, .. } => Some("infinite"),
            Lease::Leased { term: Term::Fixed { .. }, .. } => Some("fixed"),
            _ => None,
        }
    }
}

impl Term {
    fn starting(seconds: Option<i64>, now: i64) -> Self {
        match seconds {
            None => Term::Infinite,
            Some(seconds) => Term::Fixed { seconds, until: now + seconds },
        }
    }

    fn renewed(self, now: i64) -> Self {
        match self {
            Term::Infinite => Term::Infinite,
            Term::Fixed { seconds, .. } => Term::starting(Some(seconds), now),
        }
    }
}

/// Azure's limit for the break period.
const MAX_BREAK_SECONDS: i64 = 60;

/// Whether a term of `length` seconds that ends at `until` has not ended. An end further away than `length` was stored
/// before the clock was set back, and counts as past.
fn is_in_future(until: i64, length: i64, now: i64) -> bool {
    until > now && until - now <= length
}

fn breaking(id: String, after: i64, now: i64) -> Lease {
    match after > 0 {
        true => Lease::Breaking { id, until: now + after },
        false => Lease::Broken { id },
    }
}

#[cfg(test)]
mod tests;
