//! Role-based access control: roles, scopes, and the right that each operation requires. Pure; the server's router
//! calls [`allows`] once per request, and tests cover the whole table.

use serde::{Deserialize, Serialize};

use crate::ApiError;
use crate::names::{NameKind, check_name};
use crate::ops::Method;

/// Role of a principal in a scope. Each role includes the rights of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Role {
    /// Read everything except secrets.
    Reader,
    /// Create, change and delete resources, and read account keys.
    Contributor,
    /// Assign roles and read the audit history inside the scope.
    Owner,
}

/// Right that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Any authenticated principal: the response shows nothing private.
    Anyone,
    /// List of what the caller may read: requires any role inside the scope, and the list is filtered.
    List,
    /// Long-running operation: requires read access to its target.
    Poll,
    Read,
    Write,
    /// Role assignments and audit history: requires Owner somewhere inside the scope; the result is filtered.
    Govern,
    /// Owner of the scope itself.
    Admin,
}

/// Scope of a role assignment in the resource tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    Subscription,
    /// Names in lower case.
    Group(String),
    Workspace(String, String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub role: Role,
    pub scope: Scope,
}

/// Whether `assignments` grant `right` on `scope`.
pub fn allows(assignments: &[Assignment], right: Right, scope: &Scope) -> bool {
    let has = |least: Role| assignments.iter().any(|given| given.role >= least && given.scope.contains(scope));
    match right {
        Right::Anyone => true,
        Right::List => has(Role::Reader) || assignments.iter().any(|given| scope.contains(&given.scope)),
        Right::Poll | Right::Read => has(Role::Reader),
        Right::Write => has(Role::Contributor),
        Right::Govern => {
            let owner = |given: &Assignment| given.role >= Role::Owner && scope.contains(&given.scope);
            has(Role::Owner) || assignments.iter().any(owner)
        }
        Right::Admin => has(Role::Owner),
    }
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Reader, Role::Contributor, Role::Owner];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Reader => "Reader",
            Role::Contributor => "Contributor",
            Role::Owner => "Owner",
        }
    }

    pub fn parse(text: &str) -> Result<Role, ApiError> {
        Role::ALL.into_iter().find(|role| role.as_str().eq_ignore_ascii_case(text.trim())).ok_or_else(|| {
            ApiError::invalid("role", format!("'{text}' is not a role: use Reader, Contributor or Owner"))
        })
    }
}

impl Scope {
    /// Scope of a resource id or request path: the nearest workspace, group or subscription.
    pub fn of_path(path: &str) -> Scope {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        // By position: a group may be called `workspaces`.
        let after = |idx: usize, word: &str| {
            segments.get(idx).filter(|segment| segment.eq_ignore_ascii_case(word))?;
            let name = percent_encoding::percent_decode_str(segments.get(idx + 1)?).decode_utf8_lossy();
            (!name.is_empty()).then(|| name.to_lowercase())
        };
        match (after(2, "resourceGroups"), after(6, "workspaces")) {
            (Some(group), Some(workspace)) => Scope::Workspace(group, workspace),
            (Some(group), None) => Scope::Group(group),
            (None, _) => Scope::Subscription,
        }
    }

    /// Parses a scope that a user gave: exactly a subscription, a group or a workspace.
    pub fn parse(text: &str, subscription: &str) -> Result<Scope, ApiError> {
        let wrong = || {
            let shape = "/subscriptions/ID[/resourceGroups/GROUP[/providers/Microsoft.BatchAI/workspaces/WORKSPACE]]";
            ApiError::invalid("scopes", format!("'{text}' is not a scope for role assignments: write {shape}"))
        };
        let segments: Vec<&str> = text.trim().trim_matches('/').split('/').collect();
        let is = |idx: usize, word: &str| segments.get(idx).is_some_and(|s: &&str| s.eq_ignore_ascii_case(word));
        let whole = match segments.len() {
            2 => true,
            4 => is(2, "resourceGroups"),
            8 => is(2, "resourceGroups") && is(4, "providers") && is(5, "Microsoft.BatchAI") && is(6, "workspaces"),
            _ => false,
        };
        if !whole || !is(0, "subscriptions") || segments.iter().any(|segment| segment.is_empty()) {
            return Err(wrong());
        }
        if !is(1, subscription) {
            let message = format!("'{}' is not this server's subscription, which is {subscription}", segments[1]);
            return Err(ApiError::invalid("scopes", message));
        }
        let scope = Scope::of_path(text.trim());
        let (group, workspace) = match &scope {
            Scope::Subscription => (None, None),
            Scope::Group(group) => (Some(group), None),
            Scope::Workspace(group, workspace) => (Some(group), Some(workspace)),
        };
        let named = group.map(|name| (NameKind::Group, name)).into_iter();
        let mut named = named.chain(workspace.map(|name| (NameKind::Workspace, name)));
        // Rejects names that cannot exist, such as `..` or an escaped slash.
        named.try_for_each(|(kind, name)| check_name(kind, name)).map_err(|_| wrong())?;
        Ok(scope)
    }

    /// Resource id of the scope.
    pub fn id(&self, subscription: &str) -> String {
        match self {
            Scope::Subscription => format!("/subscriptions/{subscription}"),
            Scope::Group(group) => format!("/subscriptions/{subscription}/resourceGroups/{group}"),
            Scope::Workspace(group, workspace) => {
                let group = format!("/subscriptions/{subscription}/resourceGroups/{group}");
                format!("{group}/providers/Microsoft.BatchAI/workspaces/{workspace}")
            }
        }
    }

    pub fn contains(&self, other: &Scope) -> bool {
        match (self, other) {
            (Scope::Subscription, _) => true,
            (Scope::Group(group), Scope::Group(inner) | Scope::Workspace(inner, _)) => group == inner,
            (Scope::Workspace(..), Scope::Workspace(..)) => self == other,
            _ => false,
        }
    }
}

/// Right that an operation requires. Read requests follow from the method. A POST must be listed here; one that is not
/// requires the highest right.
pub fn right_of(id: &str, method: Method) -> Right {
    match id {
        // Read by every client after login; the server has exactly one of each.
        "Tenants_List" | "Subscriptions_List" | "Subscriptions_Get" | "Subscriptions_ListLocations" => Right::Anyone,
        "Providers_List" | "Providers_Get" | "Operations_List" => Right::Anyone,
        "ResourceGroups_List"
        | "Resources_List"
        | "Resources_ListByResourceGroup"
        | "StorageAccounts_List"
        | "StorageAccounts_ListByResourceGroup"
        | "StorageAccounts_CheckNameAvailability"
        | "Workspaces_List"
        | "Workspaces_ListByResourceGroup" => Right::List,
        "ResourceGroups_OperationResult" | "Operations_Result" | "Operations_Status" => Right::Poll,
        "Jobs_ListOutputFiles" | "Clusters_ListRemoteLoginInformation" | "Jobs_ListRemoteLoginInformation" => {
            Right::Read
        }
        "Jobs_Terminate" | "StorageAccounts_ListKeys" | "StorageAccounts_RegenerateKey" | "Providers_Unregister" => {
            Right::Write
        }
        "Providers_Register" => Right::List,
        "Corro_Nodes_List" | "Corro_Clusters_List" | "Corro_Jobs_List" | "Corro_Usage" => Right::List,
        "Corro_Search" | "Corro_Shares_List" | "Corro_Experiments_List" => Right::List,
        "Corro_Caller_Get" | "Corro_Server_Get" => Right::Anyone,
        "Corro_Shares_Link" | "Corro_Shares_Create" => Right::Write,
        "Corro_Clusters_History" | "Corro_Nodes_Resources" | "Corro_Jobs_Resources" => Right::Read,
        "Corro_Nodes_Preempt" => Right::Write,
        "Corro_Jobs_Processes" | "Corro_Jobs_Why" | "Corro_Jobs_Metrics" | "Corro_Jobs_Timeline" => Right::Read,
        "Corro_Jobs_RecordTimeline" | "Corro_Jobs_Annotate" | "Corro_Experiments_Notify" => Right::Write,
        // Whoever may submit jobs can run programs that reach the same ports.
        "Corro_Jobs_Tunnel" => Right::Write,
        // Hosts belong to the whole subscription.
        "Corro_Hosts_List" | "Corro_Hosts_Get" => Right::Read,
        _ if id.starts_with("Corro_Host") => Right::Admin,
        _ if id.starts_with("Corro_") => Right::Govern,
        _ => match method {
            Method::Get | Method::Head => Right::Read,
            Method::Put | Method::Patch | Method::Delete => Right::Write,
            Method::Post => Right::Admin,
        },
    }
}

/// Azure's name of an operation: `Microsoft.BatchAI/workspaces/experiments/jobs/terminate/action`.
pub fn action_of(method: Method, template: &str) -> String {
    let segments: Vec<&str> = template.trim_matches('/').split('/').collect();
    let (provider, rest) = match segments.iter().position(|segment| *segment == "providers") {
        Some(at) => (segments.get(at + 1).copied().unwrap_or_default(), segments.get(at + 2..).unwrap_or_default()),
        None => ("Microsoft.Resources", &segments[..]),
    };
    let fixed: Vec<&str> = rest.iter().filter(|segment| !segment.starts_with('{')).copied().collect();
    let verb = match method {
        Method::Get | Method::Head => "read",
        Method::Put | Method::Patch => "write",
        Method::Delete => "delete",
        Method::Post => "action",
    };
    format!("{provider}/{}/{verb}", fixed.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::ALL;

    #[test]
    fn every_post_is_named_and_no_reader_changes_anything() {
        for (id, method, _) in ALL {
            let right = right_of(id, *method);
            let named = !matches!(right, Right::Admin) || id.starts_with("Corro_");
            assert!(named, "{id} is a POST that nobody has given a right: add it to right_of");
            let changes = matches!(method, Method::Put | Method::Patch | Method::Delete);
            assert!(!changes || matches!(right, Right::Write | Right::Govern | Right::Admin), "{id}");
        }
    }

    #[test]
    fn actions_have_the_resource_managers_names() {
        let action = |wanted: &str| {
            let (_, method, path) = ALL.iter().find(|(id, ..)| *id == wanted).expect("an operation");
            action_of(*method, path)
        };
        for (id, expected) in [
            ("Jobs_Terminate", "Microsoft.BatchAI/workspaces/experiments/jobs/terminate/action"),
            ("Clusters_Create", "Microsoft.BatchAI/workspaces/clusters/write"),
            ("StorageAccounts_ListKeys", "Microsoft.Storage/storageAccounts/listKeys/action"),
            ("ResourceGroups_Delete", "Microsoft.Resources/subscriptions/resourceGroups/delete"),
            ("Workspaces_ListByResourceGroup", "Microsoft.BatchAI/workspaces/read"),
        ] {
            assert_eq!(action(id), expected);
        }
    }

    #[test]
    fn roles_hold_inside_their_scope_only() {
        let (group, other) = (Scope::Group("g".into()), Scope::Group("h".into()));
        let (inside, outside) = (Scope::Workspace("g".into(), "w".into()), Scope::Workspace("h".into(), "w".into()));
        let given = |role, scope: &Scope| vec![Assignment { role, scope: scope.clone() }];
        let check = |role, at: &Scope, right, on: &Scope, expected: bool| {
            assert_eq!(allows(&given(role, at), right, on), expected, "{role:?} at {at:?}: {right:?} on {on:?}");
        };
        check(Role::Reader, &group, Right::Read, &inside, true);
        check(Role::Reader, &group, Right::Read, &outside, false);
        check(Role::Reader, &group, Right::Write, &inside, false);
        check(Role::Reader, &group, Right::Read, &Scope::Subscription, false);
        check(Role::Reader, &group, Right::List, &Scope::Subscription, true);
        check(Role::Reader, &inside, Right::List, &group, true);
        check(Role::Reader, &inside, Right::List, &other, false);
        check(Role::Contributor, &inside, Right::Write, &inside, true);
        check(Role::Contributor, &inside, Right::Write, &group, false);
        check(Role::Contributor, &Scope::Subscription, Right::Admin, &Scope::Subscription, false);
        check(Role::Owner, &Scope::Subscription, Right::Admin, &Scope::Subscription, true);
        check(Role::Owner, &group, Right::Admin, &Scope::Subscription, false);
        check(Role::Owner, &group, Right::Admin, &inside, true);
        check(Role::Owner, &group, Right::Govern, &Scope::Subscription, true);
        check(Role::Contributor, &Scope::Subscription, Right::Govern, &Scope::Subscription, false);
        assert!(!allows(&[], Right::List, &Scope::Subscription) && allows(&[], Right::Anyone, &Scope::Subscription));
    }

    #[test]
    fn scopes_are_read_as_resource_ids_in_any_case() {
        let read = |text: &str| Scope::parse(text, "S1").ok();
        assert_eq!(read("/subscriptions/s1"), Some(Scope::Subscription));
        assert_eq!(read("/subscriptions/s1/resourcegroups/My.Group/"), Some(Scope::Group("my.group".into())));
        let workspace = "/subscriptions/s1/resourceGroups/g/providers/microsoft.batchai/Workspaces/W";
        assert_eq!(read(workspace), Some(Scope::Workspace("g".into(), "w".into())));
        assert_eq!(read(&format!("{workspace}/clusters/c")), None);
        let odd = "/subscriptions/s1/resourceGroups/workspaces/providers/Microsoft.BatchAI/workspaces/resourceGroups";
        assert_eq!(read(odd), Some(Scope::Workspace("workspaces".into(), "resourcegroups".into())));
        assert_eq!(Scope::of_path("/subscriptions/s1/resourceGroups/workspaces"), Scope::Group("workspaces".into()));
        let account = "/subscriptions/s1/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/workspaces";
        assert_eq!(Scope::of_path(account), Scope::Group("g".into()));
        for wrong in ["", "/", "g", "/subscriptions", "/subscriptions/s1/groups/g", "/subscriptions/other"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        for odd in ["..", ".", "%2e%2e", "a%2Fb", "a%00", "a%5Cb", "a b", "*"] {
            assert_eq!(read(&format!("/subscriptions/s1/resourceGroups/{odd}")), None, "{odd}");
            assert_eq!(read(&workspace.replace("/W", &format!("/{odd}"))), None, "{odd}");
        }
        for scope in [Scope::Subscription, Scope::Group("g".into()), Scope::Workspace("g".into(), "w".into())] {
            assert_eq!(Scope::parse(&scope.id("S1"), "S1").ok(), Some(scope));
        }
    }
}
