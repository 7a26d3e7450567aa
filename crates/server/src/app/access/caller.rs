//! The principal on whose behalf a request runs, its roles, and the client program it uses.

use corro_model::rights::{self, Assignment, Right, Role, Scope};

/// On whose behalf something is done.
#[derive(Clone, Debug)]
pub struct Caller {
    pub id: String,
    /// The credential behind it, as [`tokens`](super::tokens) marks it; empty for the server.
    pub credential: String,
    /// Unix seconds at which its token ends.
    pub expires_at: i64,
    pub assignments: Vec<Assignment>,
}

impl Caller {
    /// The server itself.
    pub fn server() -> Caller {
        let (id, credential) = (corro_store::SERVER.to_owned(), String::new());
        Caller { id, credential, expires_at: i64::MAX, assignments: vec![owner_of_subscription()] }
    }

    pub fn may(&self, right: Right, scope: &Scope) -> bool {
        rights::allows(&self.assignments, right, scope)
    }
}

/// What the administrator has.
pub fn owner_of_subscription() -> Assignment {
    Assignment { role: Role::Owner, scope: Scope::Subscription }
}

/// Where the thing with this key lies: keys are the names that lead to it.
pub fn scope_of_key(key: &str) -> Scope {
    let mut names = key.split('/').map(str::to_owned);
    match (names.next(), names.next()) {
        (Some(group), Some(workspace)) => Scope::Workspace(group, workspace),
        (Some(group), None) => Scope::Group(group),
        (None, _) => Scope::Subscription,
    }
}

/// Which program a caller uses, as far as answers depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientProgram {
    #[default]
    Other,
    /// One that was made for the retired service, at this address.
    Azure(String),
}
