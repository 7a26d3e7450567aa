//! The principal on whose behalf a request runs, its roles, and the client program it uses.

use corro_model::rbac::{self, Assignment, Right, Role, Scope};

/// Principal that a request is authorised as.
#[derive(Clone, Debug)]
pub struct Caller {
    pub id: String,
    /// Id of the credential it authenticated with (see [`tokens`](super::tokens)). Empty for the server itself.
    pub credential: String,
    /// Expiry of its access token, in Unix seconds.
    pub expires_at: i64,
    pub assignments: Vec<Assignment>,
}

impl Caller {
    /// Caller for the server's own work; owns the subscription.
    pub fn server() -> Caller {
        let (id, credential) = (corro_store::SERVER.to_owned(), String::new());
        Caller { id, credential, expires_at: i64::MAX, assignments: vec![owner_of_subscription()] }
    }

    pub fn may(&self, right: Right, scope: &Scope) -> bool {
        rbac::allows(&self.assignments, right, scope)
    }
}

/// Role assignment of the administrator: owner of the subscription.
pub fn owner_of_subscription() -> Assignment {
    Assignment { role: Role::Owner, scope: Scope::Subscription }
}

/// Scope that contains the resource with this store key. Keys are paths: `group/workspace/…`.
pub fn scope_of_key(key: &str) -> Scope {
    let mut names = key.split('/').map(str::to_owned);
    match (names.next(), names.next()) {
        (Some(group), Some(workspace)) => Scope::Workspace(group, workspace),
        (Some(group), None) => Scope::Group(group),
        (None, _) => Scope::Subscription,
    }
}

/// Client program of a request, as far as responses depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientProgram {
    #[default]
    Other,
    /// A client of the retired Azure service, with its network address.
    Azure(String),
}
