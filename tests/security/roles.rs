//! Role-based access: every operation with every role at every scope, filtered lists, and the end of a login. The table of
//! rights is repeated here, so that the two must agree.

use corro_model::ops::{ALL, Method};
use serde_json::{Value, json};

use super::harness::{CommandOutput, GROUP, IN_WORKSPACE, Site};

/// Required role of each operation: `-` a login, `l` anything inside, `r` Reader, `w` Contributor, `o` Owner somewhere, `h`
/// Owner of more than a workspace, `a` Owner of exactly this scope.
const NEEDS: &[(&str, char)] = &[
    ("Tenants_List", '-'),
    ("Subscriptions_List", '-'),
    ("Subscriptions_Get", '-'),
    ("Subscriptions_ListLocations", '-'),
    ("Providers_List", '-'),
    ("Providers_Get", '-'),
    ("Providers_Register", 'l'),
    ("Providers_Unregister", 'w'),
    ("Resources_List", 'l'),
    ("Resources_ListByResourceGroup", 'l'),
    ("ResourceGroups_CreateOrUpdate", 'w'),
    ("ResourceGroups_Update", 'w'),
    ("ResourceGroups_Get", 'r'),
    ("ResourceGroups_CheckExistence", 'r'),
    ("ResourceGroups_List", 'l'),
    ("ResourceGroups_Delete", 'w'),
    ("ResourceGroups_OperationResult", '-'),
    ("StorageAccounts_Create", 'w'),
    ("StorageAccounts_GetProperties", 'r'),
    ("StorageAccounts_ListByResourceGroup", 'l'),
    ("StorageAccounts_List", 'l'),
    ("StorageAccounts_ListKeys", 'w'),
    ("StorageAccounts_RegenerateKey", 'w'),
    ("StorageAccounts_Update", 'w'),
    ("StorageAccounts_Delete", 'w'),
    ("StorageAccounts_CheckNameAvailability", 'l'),
    ("Usages_ListByLocation", 'r'),
    ("Usages_ListEverywhere", 'r'),
    ("Workspaces_Create", 'w'),
    ("Workspaces_Update", 'w'),
    ("Workspaces_Get", 'r'),
    ("Workspaces_Delete", 'w'),
    ("Workspaces_ListByResourceGroup", 'l'),
    ("Workspaces_List", 'l'),
    ("Experiments_Create", 'w'),
    ("Experiments_Get", 'r'),
    ("Experiments_ListByWorkspace", 'r'),
    ("Experiments_Delete", 'w'),
    ("Clusters_Create", 'w'),
    ("Clusters_Get", 'r'),
    ("Clusters_Update", 'w'),
    ("Clusters_ListByWorkspace", 'r'),
    ("Clusters_Delete", 'w'),
    ("Clusters_ListRemoteLoginInformation", 'r'),
    ("FileServers_Create", 'w'),
    ("FileServers_Get", 'r'),
    ("FileServers_ListByWorkspace", 'r'),
    ("FileServers_Delete", 'w'),
    ("Jobs_Create", 'w'),
    ("Jobs_Get", 'r'),
    ("Jobs_ListByExperiment", 'r'),
    ("Jobs_Delete", 'w'),
    ("Jobs_Terminate", 'w'),
    ("Jobs_ListOutputFiles", 'r'),
    ("Jobs_ListRemoteLoginInformation", 'r'),
    ("Operations_List", '-'),
    ("Operations_Result", '-'),
    ("Operations_Status", '-'),
    ("Usages_List", 'r'),
    ("Corro_Principals_Create", 'o'),
    ("Corro_Principals_List", 'o'),
    ("Corro_Principals_Get", 'o'),
    ("Corro_Principals_Delete", 'o'),
    ("Corro_Principals_ResetCredentials", 'o'),
    ("Corro_Principals_RevokeTokens", 'o'),
    ("Corro_History", 'h'),
    ("Corro_Nodes_List", 'l'),
    ("Corro_Clusters_List", 'l'),
    ("Corro_Jobs_List", 'l'),
    ("Corro_Experiments_List", 'l'),
    ("Corro_Caller_Get", '-'),
    ("Corro_Server_Get", '-'),
    ("Corro_Search", 'l'),
    ("Corro_Shares_List", 'l'),
    ("Corro_Shares_Create", 'w'),
    ("Corro_Shares_Link", 'w'),
    ("Corro_Clusters_History", 'r'),
    ("Corro_Nodes_Preempt", 'w'),
    ("Corro_Nodes_Resources", 'r'),
    ("Corro_Jobs_Resources", 'r'),
    ("Corro_Jobs_Processes", 'r'),
    ("Corro_Jobs_RecordTimeline", 'w'),
    ("Corro_Jobs_Timeline", 'r'),
    ("Corro_Jobs_Why", 'r'),
    ("Corro_Jobs_Annotate", 'w'),
    ("Corro_Experiments_Notify", 'w'),
    ("Corro_Jobs_Tunnel", 'w'),
    ("Corro_Jobs_Metrics", 'r'),
    ("Corro_Usage", 'l'),
    ("Corro_HostTokens_Create", 'a'),
    ("Corro_HostTokens_List", 'a'),
    ("Corro_HostTokens_Delete", 'a'),
    ("Corro_Hosts_List", 'r'),
    ("Corro_Hosts_Get", 'r'),
    ("Corro_Hosts_Cordon", 'a'),
    ("Corro_Hosts_Uncordon", 'a'),
    ("Corro_Hosts_Drain", 'a'),
    ("Corro_Hosts_Remove", 'a'),
];

const ROLES: [&str; 3] = ["Reader", "Contributor", "Owner"];

struct User {
    role: usize,
    /// 0 the subscription, 1 the group, 2 the workspace, 3 another group.
    scope: usize,
    token: String,
}

fn token(site: &Site, id: &str, password: &str) -> Option<String> {
    let form = format!("grant_type=client_credentials&client_id={id}&resource=x&client_secret={password}");
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let response = site.request("POST", "/adfs/oauth2/token", &kind, form.as_bytes());
    response.json()["access_token"].as_str().map(str::to_owned)
}

fn request(site: &Site, token: &str, method: &str, path: &str) -> super::harness::http::Response {
    let bearer = format!("Bearer {token}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    // An invalid body for every operation, so that permitted callers change nothing.
    site.request(method, &format!("{path}?api-version=2018-05-01"), &headers, b"[1]")
}

/// The path of an operation, and its scope: 0 the subscription, 1 the group, 2 the workspace.
fn target(site: &Site, template: &str) -> (String, usize) {
    let subscription = site.profile()["subscription"].as_str().expect("text").to_owned();
    let scope = match (template.contains("{group}"), template.contains("{workspace}")) {
        (_, true) => 2,
        (true, false) => 1,
        _ => 0,
    };
    let path = template
        .replace("{subscription}", &subscription)
        .replace("{group}", GROUP)
        .replace("{workspace}", "batchaidev")
        .replace("{location}", "eastus");
    // All other names do not exist, so that deleting them deletes nothing.
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { "nothere" } else { segment });
    (segments.collect::<Vec<_>>().join("/"), scope)
}

#[test]
fn every_operation_with_every_role_at_every_scope() {
    let site = Site::start();
    site.prepare(0);
    site.corro("group create -n other -l eastus").ok();
    let (subscription, workspace) = (site.subscription(), site.workspace());
    let scopes = [
        subscription.clone(),
        format!("{subscription}/resourceGroups/{GROUP}"),
        workspace,
        format!("{subscription}/resourceGroups/other"),
    ];
    let mut users = Vec::new();
    for (role, name) in ROLES.iter().enumerate() {
        for (scope, id) in scopes.iter().enumerate() {
            let made =
                site.corro(&format!("ad sp create-for-rbac -n u{role}{scope} --role {name} --scopes {id}")).json();
            let (id, password) = (made["appId"].as_str().expect("text"), made["password"].as_str().expect("text"));
            users.push(User { role, scope, token: token(&site, id, password).expect("a token") });
        }
    }
    let mut wrong = Vec::new();
    for (id, method, template) in ALL {
        let need = NEEDS.iter().find(|(known, _)| known == id);
        let need = need.unwrap_or_else(|| panic!("{id} is new: say in NEEDS who may use it")).1;
        // These would really be deleted; they are tried on missing resources.
        let (path, place) = target(&site, template);
        if *method == Method::Delete && !path.contains("nothere") {
            continue;
        }
        for user in &users {
            let inside = user.scope <= place;
            let allowed = match need {
                '-' => true,
                'l' => user.scope != 3 || place == 0,
                'r' => inside,
                'w' => inside && user.role >= 1,
                'o' => user.role >= 2,
                'a' => inside && user.role >= 2,
                'h' => user.role >= 2 && user.scope != 2,
                other => panic!("{other}"),
            };
            let response = request(&site, &user.token, method.as_str(), &path);
            let refused = response.status == 403;
            if refused == allowed || response.status == 401 || response.status >= 500 {
                wrong.push(format!("{} at {}: {id} answers {}", ROLES[user.role], scopes[user.scope], response.status));
            }
            if refused && *method != Method::Head {
                let text = response.text();
                assert!(text.contains("AuthorizationFailed") && text.contains("does not have authorization"), "{text}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn as_user(site: &Site, config: &str, line: &str) -> CommandOutput {
    let mut command = site.command("corro");
    command.args(line.split_whitespace()).env("CORRO_CONFIG_DIR", site.path().join(config));
    CommandOutput::from(command.output().expect("it runs"))
}

fn log_in(site: &Site, config: &str, made: &Value) -> CommandOutput {
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    let line = format!("login --service-principal -u {} -p {}", text("appId"), text("password"));
    as_user(site, config, &format!("{line} --tenant {} --server {}", text("tenant"), site.url))
}

#[test]
fn a_second_user_sees_only_its_resources_and_can_be_revoked() {
    let site = Site::start();
    site.prepare(0);
    site.corro("group create -n secret -l eastus").ok();
    site.corro("batchai workspace create -g secret -n hidden").ok();
    let scope = format!("{}/resourceGroups/{GROUP}", site.subscription());
    let made = site.corro(&format!("ad sp create-for-rbac -n alice --role reader --scopes {scope}")).json();
    let keys: Vec<&String> = made.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["appId", "displayName", "name", "password", "tenant"]);
    let password = made["password"].as_str().expect("text").to_owned();
    site.corro("ad sp create-for-rbac -n alice").fails(1, &["A principal named 'alice' already exists"]);
    site.corro("ad sp create-for-rbac -n bob --role king").fails(1, &["'king' is not a role: use Reader"]);
    site.corro("ad sp create-for-rbac -n bob --scopes nonsense").fails(1, &["'nonsense' is not a scope"]);

    let shown = log_in(&site, "alice", &made).json();
    assert_eq!(shown[0]["user"]["name"], made["appId"]);
    let account = as_user(&site, "alice", "account show").json();
    assert_eq!((&account["tenantId"], &account["isDefault"]), (&made["tenant"], &json!(true)));
    let names = |line: &str| -> Vec<String> {
        let found = as_user(&site, "alice", line).json();
        found.as_array().expect("a list").iter().map(|item| item["name"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(names("group list"), [GROUP]);
    assert_eq!(names("batchai workspace list"), ["batchaidev"]);
    assert_eq!(names("storage account list"), ["mystorageaccount"]);
    as_user(&site, "alice", &format!("batchai cluster show {IN_WORKSPACE} -n nc6cluster")).ok();
    as_user(&site, "alice", &format!("batchai experiment create {IN_WORKSPACE} -n e2")).fails(
        1,
        &[
            "does not have authorization to perform action 'Microsoft.BatchAI/workspaces/experiments/write'",
            "hint: ask an owner",
        ],
    );
    as_user(&site, "alice", "batchai workspace show -g secret -n hidden").fails(1, &["does not have authorization"]);
    as_user(&site, "alice", &format!("storage account keys list -g {GROUP} -n mystorageaccount"))
        .fails(1, &["Microsoft.Storage/storageAccounts/listKeys/action"]);
    as_user(&site, "alice", "ad sp list").fails(1, &["does not have authorization"]);

    // Passwords are shown once, and a new one revokes the logins of the old one.
    let listed = site.corro("ad sp list").ok().stdout + &site.corro("ad sp show --id alice").ok().stdout;
    assert!(listed.contains("alice") && !listed.contains(&password), "{listed}");
    let id = made["appId"].as_str().expect("text");
    let old = token(&site, id, &password).expect("a token");
    let groups = format!("{}/resourceGroups", site.subscription());
    assert_eq!(request(&site, &old, "GET", &groups).status, 200);
    let renewed = site.corro("ad sp reset-credentials -n alice").json();
    assert_eq!(request(&site, &old, "GET", &groups).status, 401);
    assert_eq!(token(&site, id, &password), None);
    as_user(&site, "alice", "group list").fails(1, &["refused the login", "hint: log in again"]);
    log_in(&site, "alice", &made).fails(1, &["refused the login"]);
    log_in(&site, "alice", &renewed).ok();
    let new = token(&site, id, renewed["password"].as_str().expect("text")).expect("a token");
    site.corro("ad sp delete --id alice").ok();
    assert_eq!(request(&site, &new, "GET", &groups).status, 401);
    site.corro("ad sp delete --id alice").fails(1, &["There is no principal 'alice'"]);
    as_user(&site, "alice", "logout").ok();
    as_user(&site, "alice", "group list").fails(1, &["No Corro server is configured"]);
    // The administrator cannot be deleted.
    site.corro("ad sp delete --id administrator").fails(1, &["cannot be changed"]);
    site.corro("group list").ok();
}

#[test]
fn revocations_survive_a_restart() {
    let mut site = Site::start();
    let made = site.corro("ad sp create-for-rbac -n alice --role reader").json();
    let [id, password] = ["appId", "password"].map(|name| made[name].as_str().expect("text").to_owned());
    let groups = format!("{}/resourceGroups", site.subscription());
    let (revoked, kept) = (token(&site, &id, &password).expect("a token"), site.token());
    site.corro("ad sp revoke-tokens --id alice").ok();
    assert_eq!(request(&site, &revoked, "GET", &groups).status, 401);
    site.kill_server();
    site.up();
    assert_eq!(request(&site, &revoked, "GET", &groups).status, 401);
    assert_eq!(request(&site, &kept, "GET", &groups).status, 200, "what was not revoked stays good");
    let new = token(&site, &id, &password).expect("the password is good");
    assert_eq!(request(&site, &new, "GET", &groups).status, 200);
}
