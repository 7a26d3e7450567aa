//! Service principals and their role assignments. Only owners manage them. A password is generated here, returned once,
//! and stored as a digest.

use std::time::Duration;

use corro_model::arm::{
    CallerIdentity, MAX_YEARS, Principal, PrincipalCreateParameters, PrincipalCredential, RoleAssignment,
};
use corro_model::ids::arm::{self, WorkspaceResource};
use corro_model::rbac::{Assignment, Right, Role, Scope};
use corro_model::{ApiError, GroupKey, Secret, Timestamp};
use corro_store::encryption::{digest, random};
use corro_store::{OperationGoal, OperationRecord, PrincipalRecord, State, Txn};
use serde_json::json;

use crate::app::access::caller::{Caller, scope_of_key};
use crate::app::access::installation::ADMINISTRATOR;
use crate::app::{App, guid};
use crate::digest::hex;

const MAX_PRINCIPALS: usize = 1000;
const MAX_SCOPES: usize = 100;

/// Display name of a principal; its id if it was deleted.
pub fn principal_name(state: &State, id: &str) -> String {
    state.principals.get(id).map_or_else(|| id.to_owned(), |record| record.name.clone())
}

impl App {
    /// Drops the items that the caller may not read. `id` returns an item's ARM id.
    pub fn filter_readable<T>(&self, items: Vec<T>, id: fn(&T) -> &str) -> Vec<T> {
        items.into_iter().filter(|item| self.request.caller.may(Right::Read, &Scope::of_path(id(item)))).collect()
    }

    /// The principal on whose behalf the request runs.
    pub fn caller_identity(&self) -> CallerIdentity {
        let id = &self.request.caller.id;
        CallerIdentity { app_id: id.clone(), display_name: principal_name(&self.snapshot(), id) }
    }

    /// Requires write access to the workspace of a resource that the request body refers to: a job reads what its
    /// cluster mounts. Checked before the lookup, like the request's own path, so that a refusal does not reveal what
    /// exists.
    pub fn authorize_linked_resource(
        &self,
        field: &str,
        named: &WorkspaceResource<'_>,
        kind: &str,
    ) -> Result<(), ApiError> {
        let WorkspaceResource { group, workspace, name, .. } = named;
        if self.request.caller.may(Right::Write, &Scope::Workspace(group.to_lowercase(), workspace.to_lowercase())) {
            return Ok(());
        }
        let id = &self.request.caller.id;
        let linked = format!("{}/{kind}/{name}", arm::workspace(&self.installation.subscription, group, workspace));
        let message = format!(
            "The client '{id}' with object id '{id}' does not have authorization to perform action 'Microsoft.BatchAI/workspaces/{kind}/write' over the linked scope '{linked}', which {field} names."
        );
        Err(ApiError::new(403, "LinkedAuthorizationFailed", message).about(field))
    }

    /// Scope of the resource that an operation is about. `None` (no check) for unknown operations and for the caller's
    /// own.
    pub fn operation_scope(&self, operation: &str) -> Option<Scope> {
        let snapshot = self.snapshot();
        snapshot
            .operations
            .get(operation)
            .filter(|record| record.by != self.request.caller.id)
            .map(|record| scope_of_operation(record))
    }

    pub async fn create_principal(&self, body: PrincipalCreateParameters) -> Result<PrincipalCredential, ApiError> {
        let name = check_display_name(&body.display_name)?;
        let role = Role::parse(&body.role)?;
        if body.scopes.len() > MAX_SCOPES {
            return Err(ApiError::invalid("scopes", format!("there are more than {MAX_SCOPES} scopes")));
        }
        let scopes: Result<Vec<Scope>, _> =
            body.scopes.iter().map(|scope| Scope::parse(scope, &self.installation.subscription)).collect();
        let scopes = scopes?;
        if body.skip_assignment && !scopes.is_empty() {
            let message = "scopes cannot be combined with skipAssignment, which assigns no role: leave one out";
            return Err(ApiError::invalid("scopes", message));
        }
        // A principal without a role is managed by the owners of the subscription.
        let scopes = if scopes.is_empty() { vec![Scope::Subscription] } else { scopes };
        if let Some(scope) = scopes.iter().find(|scope| !self.request.caller.may(Right::Admin, scope)) {
            let id = &self.request.caller.id;
            let message = format!(
                "The client '{id}' with object id '{id}' does not have authorization to assign roles over scope '{}'.",
                scope.id(&self.installation.subscription)
            );
            return Err(ApiError::new(403, "AuthorizationFailed", message).about("scopes"));
        }
        let (app_id, password, created) = (guid(), new_password(), self.now());
        let expires = body.years.map(|years| after_years(created, years)).transpose()?;
        let record = PrincipalRecord {
            name: name.clone(),
            secret_digest: digest(password.expose()),
            created,
            expires,
            revocations: 0,
            assignments: match body.skip_assignment {
                true => Vec::new(),
                false => scopes.into_iter().map(|scope| Assignment { role, scope }).collect(),
            },
        };
        let id = app_id.clone();
        let commit = self.store.commit(move |txn| {
            record.assignments.iter().try_for_each(|given| check_scope_exists(txn.state(), &given.scope))?;
            let taken = txn.state().principals.values().any(|other| other.name.eq_ignore_ascii_case(&record.name));
            if taken {
                let message = format!(
                    "A principal named '{}' already exists: delete it, reset its credentials, or choose another name",
                    record.name
                );
                return Err(ApiError::conflict("PrincipalAlreadyExists", message));
            }
            if txn.state().principals.len() >= MAX_PRINCIPALS {
                let message = format!("The limit of {MAX_PRINCIPALS} principals is reached: delete unused ones");
                return Err(ApiError::conflict("TooManyPrincipals", message));
            }
            txn.put(id, record);
            Ok(())
        });
        commit.await?;
        if self.snapshot().principals.len() == 2 {
            tracing::info!(
                "there is more than one principal now: jobs that start from now on run with --isolation strict, unless the \
                 operator of their node chose otherwise"
            );
        }
        Ok(self.credential(app_id, name, password))
    }

    /// Finds a principal by app id or by name.
    pub fn principal(&self, which: &str) -> Result<Principal, ApiError> {
        let snapshot = self.snapshot();
        let (id, record) = find_principal(&snapshot, &self.request.caller, which)?;
        Ok(self.principal_response(&id, &record))
    }

    pub fn principals(&self) -> Vec<Principal> {
        let snapshot = self.snapshot();
        let administered = snapshot.principals.iter().filter(|(_, record)| administers(&self.request.caller, record));
        administered.map(|(id, record)| self.principal_response(id, record)).collect()
    }

    /// Generates a new password. Tokens issued for the old one become invalid.
    pub async fn reset_principal(&self, which: String, years: Option<i64>) -> Result<PrincipalCredential, ApiError> {
        let (password, caller) = (new_password(), self.request.caller.clone());
        let expires = years.map(|years| after_years(self.now(), years)).transpose()?;
        let secret_digest = digest(password.expose());
        let commit = self.store.commit(move |txn| {
            let (app_id, record) = find_principal(txn.state(), &caller, &which)?;
            refuse_administrator(&record)?;
            txn.update::<PrincipalRecord>(&app_id, |record| {
                record.secret_digest = secret_digest;
                record.expires = expires;
            });
            Ok::<_, ApiError>((app_id, record.name))
        });
        let (app_id, display_name) = commit.await?;
        Ok(self.credential(app_id, display_name, password))
    }

    fn credential(&self, app_id: String, display_name: String, password: Secret) -> PrincipalCredential {
        let (name, tenant) = (format!("http://{display_name}"), self.installation.tenant.to_string());
        PrincipalCredential { app_id, display_name, name, password, tenant }
    }

    /// Invalidates all tokens, connections and links of the principal. Its password stays valid.
    pub async fn revoke_tokens(&self, which: String) -> Result<(), ApiError> {
        let caller = self.request.caller.clone();
        let commit = self.store.commit_relief(move |txn| {
            let (app_id, _) = find_principal(txn.state(), &caller, &which)?;
            txn.update::<PrincipalRecord>(&app_id, |record| record.revocations += 1);
            txn.add_history("principal.revoked", &app_id, json!({}));
            Ok::<_, ApiError>(())
        });
        commit.await
    }

    /// Returns `false` if there is no such principal.
    pub async fn delete_principal(&self, which: String) -> Result<bool, ApiError> {
        let caller = self.request.caller.clone();
        let commit = self.store.commit_relief(move |txn| {
            let Ok((app_id, record)) = find_principal(txn.state(), &caller, &which) else { return Ok(false) };
            refuse_administrator(&record)?;
            txn.remove::<PrincipalRecord>(&app_id);
            Ok::<_, ApiError>(true)
        });
        commit.await
    }

    fn principal_response(&self, id: &str, record: &PrincipalRecord) -> Principal {
        let assignment = |given: &Assignment| RoleAssignment {
            role: given.role.as_str().to_owned(),
            scope: given.scope.id(&self.installation.subscription),
        };
        Principal {
            app_id: id.to_owned(),
            object_id: id.to_owned(),
            display_name: record.name.clone(),
            service_principal_names: vec![id.to_owned(), format!("http://{}", record.name)],
            tenant: self.installation.tenant.to_string(),
            created: record.created,
            expires: record.expires,
            role_assignments: record.assignments.iter().map(assignment).collect(),
        }
    }
}

/// Whether the caller is owner of every scope in which the principal has a role.
fn administers(caller: &Caller, record: &PrincipalRecord) -> bool {
    let inside = |given: &Assignment| caller.may(Right::Admin, &given.scope);
    caller.may(Right::Admin, &Scope::Subscription)
        || !record.assignments.is_empty() && record.assignments.iter().all(inside)
}

/// Finds a principal that the caller administers; others are reported as not found.
fn find_principal(state: &State, caller: &Caller, which: &str) -> Result<(String, PrincipalRecord), ApiError> {
    let mut administered = state.principals.iter().filter(|(_, record)| administers(caller, record));
    let found = administered.find(|(id, record)| {
        id.eq_ignore_ascii_case(which) || record.name.eq_ignore_ascii_case(which.trim_start_matches("http://"))
    });
    let missing = || ApiError::new(404, "PrincipalNotFound", format!("There is no principal '{which}'"));
    found.map(|(id, record)| (id.clone(), (**record).clone())).ok_or_else(missing)
}

/// Roles are assigned only at scopes that exist: a role at an unused name would apply to anything created under it
/// later.
fn check_scope_exists(state: &State, scope: &Scope) -> Result<(), ApiError> {
    let missing = |what: String| {
        let message = format!("there is no {what}: create it first, or give another scope");
        Err(ApiError::invalid("scopes", message))
    };
    let (group, workspace) = match scope {
        Scope::Subscription => return Ok(()),
        Scope::Group(group) => (group, None),
        Scope::Workspace(group, workspace) => (group, Some(workspace)),
    };
    let key = GroupKey::new(group);
    if state.groups.get(&key).is_none_or(|group| group.deleting) {
        return missing(format!("resource group '{group}'"));
    }
    match workspace {
        Some(name) if state.workspaces.get(&key.workspace(name)).is_none_or(|w| w.provisioning.is_deleting()) => {
            missing(format!("workspace '{name}' in resource group '{group}'"))
        }
        _ => Ok(()),
    }
}

/// Removes every role assignment at or below a deleted scope, so that it does not apply to a later resource of the same
/// name.
pub fn revoke_roles_in_scope(txn: &mut Txn, gone: &Scope) {
    let is_gone = |given: &Assignment| gone.contains(&given.scope);
    let holders = txn.state().principals.iter().filter(|(_, record)| record.assignments.iter().any(is_gone));
    let holders: Vec<String> = holders.map(|(id, _)| id.clone()).collect();
    for id in holders {
        txn.update::<PrincipalRecord>(&id, |record| record.assignments.retain(|given| !is_gone(given)));
        txn.add_history("principal.unassigned", &id, json!({ "scope": gone }));
    }
}

fn refuse_administrator(record: &PrincipalRecord) -> Result<(), ApiError> {
    if record.name == ADMINISTRATOR {
        let message = "The administrator is built in and cannot be changed: 'corro up' and 'corro server' store its login on the server's machine";
        return Err(ApiError::conflict("AdministratorStays", message));
    }
    Ok(())
}

fn check_display_name(name: &str) -> Result<String, ApiError> {
    let name = name.trim().trim_start_matches("http://").trim();
    let plain = name.chars().all(|c| !c.is_control());
    if name.is_empty() || name.chars().count() > 120 || !plain || name.eq_ignore_ascii_case(ADMINISTRATOR) {
        let message =
            format!("'{}' cannot be a principal's name: use 1 to 120 printable characters", name.escape_debug());
        return Err(ApiError::invalid("displayName", message));
    }
    Ok(name.to_owned())
}

fn after_years(now: Timestamp, years: i64) -> Result<Timestamp, ApiError> {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600 + 6 * 3600);
    match u32::try_from(years) {
        Ok(years) if (1..=MAX_YEARS).contains(&i64::from(years)) => Ok(now.plus(YEAR * years)),
        _ => Err(ApiError::invalid("years", format!("'{years}' is not a number of years from 1 to {MAX_YEARS}"))),
    }
}

fn new_password() -> Secret {
    Secret::new(hex(&random::<32>()))
}

fn scope_of_operation(record: &OperationRecord) -> Scope {
    use OperationGoal as G;
    let inside = scope_of_key;
    match &record.goal {
        G::ClusterCreated(key) | G::ClusterGone(key) => inside(key.as_str()),
        G::FileServerCreated(key) | G::FileServerGone(key) => inside(key.as_str()),
        G::JobCreated(key) | G::JobEnded(key) | G::JobGone(key) => inside(key.as_str()),
        G::ExperimentGone(key) => inside(key.as_str()),
        G::WorkspaceGone(key) => inside(key.as_str()),
        G::GroupGone(key) => inside(key.as_str()),
        // The account may be deleted already; the group is the second part of the resource id.
        G::AccountGone(_) => {
            let group = record.resource_id.split('$').nth(1).map(str::to_lowercase);
            group.map_or(Scope::Subscription, Scope::Group)
        }
    }
}
