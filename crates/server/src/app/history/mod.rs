//! History of changes: queries with access checks, and the attribution of changes to callers.

pub mod audit;
pub mod events;
pub mod node_hours;

use corro_model::ApiError;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::rbac::{Right, Role, Scope};

use crate::app::access::caller::{Caller, ClientProgram};
use crate::app::{App, RequestContext};

impl App {
    /// The same rules on behalf of `caller`: changes are recorded as made by it.
    pub fn acting_as(&self, caller: Caller, address: &str, client: ClientProgram) -> Self {
        let store = self.store.acting_from(&caller.id, address);
        let request = RequestContext { caller: caller.into(), client, warnings: Default::default() };
        Self { store, request, ..self.clone() }
    }

    /// History lines in scopes that the caller owns, newest first.
    pub async fn history(&self, filter: HistoryFilter) -> Result<Vec<HistoryEntry>, ApiError> {
        let filter = HistoryFilter { resource: self.owned_resource(filter.resource)?, ..filter };
        self.read_history(filter).await
    }

    /// Reads the history without access checks; the caller must be allowed to read the resource of the filter.
    pub(in crate::app) async fn read_history(&self, filter: HistoryFilter) -> Result<Vec<HistoryEntry>, ApiError> {
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || store.history(&filter)).await;
        let read = read.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))?;
        read.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the history cannot be read");
            error.into()
        })
    }

    /// Resource to which the query is restricted: the given one if the caller owns its group, or the only group that it
    /// owns.
    fn owned_resource(&self, resource: Option<String>) -> Result<Option<String>, ApiError> {
        if self.request.caller.may(Right::Admin, &Scope::Subscription) {
            return Ok(resource);
        }
        // Lines about an account and a workspace of the same name are indistinguishable, so they require ownership of
        // the group.
        let groups = self.request.caller.assignments.iter().filter_map(|given| match &given.scope {
            Scope::Group(group) if given.role == Role::Owner => Some(group.clone()),
            _ => None,
        });
        let groups: Vec<String> = groups.collect();
        let refused = |over: &str| {
            let id = &self.request.caller.id;
            let message = format!(
                "The client '{id}' with object id '{id}' does not have authorization to read the history of {over}: owners of the subscription read all of it, owners of a resource group that of the group."
            );
            Err(ApiError::new(403, "AuthorizationFailed", message).about("resource"))
        };
        match (resource, &groups[..]) {
            (_, []) => refused("any resource group"),
            (None, [group]) => Ok(Some(group.clone())),
            (None, _) => {
                let names = groups.join(", ");
                Err(ApiError::invalid("resource", format!("name the resource group to read about: one of {names}")))
            }
            (Some(resource), _) => {
                let group = resource.trim_matches('/').split('/').next().unwrap_or_default().to_lowercase();
                match groups.contains(&group) {
                    true => Ok(Some(resource)),
                    false => refused(&format!("'{resource}'")),
                }
            }
        }
    }
}
