//! Who did what: the history is read here, and every change carries the name of whoever asked for it.

pub mod audit;
pub mod events;
pub mod node_hours;

use corro_model::ApiError;
use corro_model::history::{HistoryEntry, HistoryFilter};
use corro_model::rights::{Right, Role, Scope};

use crate::app::access::caller::{Caller, ClientProgram};
use crate::app::{App, RequestContext};

impl App {
    /// The same rules, applied on behalf of `caller`, who uses `client`: what is changed through it is noted as theirs.
    pub fn acting_as(&self, caller: Caller, address: &str, client: ClientProgram) -> Self {
        let store = self.store.acting_from(&caller.id, address);
        let request = RequestContext { caller: caller.into(), client, warnings: Default::default() };
        Self { store, request, ..self.clone() }
    }

    /// What happened, newest first, inside what the caller owns.
    pub async fn history(&self, filter: HistoryFilter) -> Result<Vec<HistoryEntry>, ApiError> {
        let filter = HistoryFilter { resource: self.owned_resource(filter.resource)?, ..filter };
        self.read_history(filter).await
    }

    /// For whoever may read the resource that the filter names.
    pub(in crate::app) async fn read_history(&self, filter: HistoryFilter) -> Result<Vec<HistoryEntry>, ApiError> {
        let store = self.store.clone();
        let read = tokio::task::spawn_blocking(move || store.history(&filter)).await;
        let read = read.map_err(|_| ApiError::new(503, "ServerStopping", "The server is stopping"))?;
        read.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the history cannot be read");
            error.into()
        })
    }

    /// Owners of a part of the tree read about that part: the one they name, or the only one they have.
    fn owned_resource(&self, resource: Option<String>) -> Result<Option<String>, ApiError> {
        if self.request.caller.may(Right::Admin, &Scope::Subscription) {
            return Ok(resource);
        }
        // An account's lines stand beside those of a workspace of the same name, so they are for owners of the group.
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
