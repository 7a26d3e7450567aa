//! Every operation that changes something writes a history entry with its caller. Walks the table of operations: a new one that is
//! neither tested here nor listed as read-only fails the test.

use corro_model::history::HistoryFilter;
use corro_model::ops::{ALL, Method};
use corro_model::state::NodeEvent;
use corro_model::{ApiError, GroupKey, NodeId, Timestamp};
use corro_store::{HostRecord, HostTokenRecord, NodeRecord};
use serde_json::{Value, json};

use super::{TestServer, cluster, job};
use crate::app::hosts::JoinEndpoint;

/// Operations other than GET that change nothing.
const CHANGE_NOTHING: [&str; 9] = [
    "Providers_Register",
    "Providers_Unregister",
    // Disclosed keys and SAS URLs are audited all the same.
    "StorageAccounts_ListKeys",
    "Corro_Shares_Link",
    "Jobs_ListOutputFiles",
    "StorageAccounts_CheckNameAvailability",
    "Clusters_ListRemoteLoginInformation",
    "Jobs_ListRemoteLoginInformation",
    "Corro_Jobs_RecordTimeline",
];

#[tokio::test]
async fn every_change_is_in_the_history_with_its_caller() {
    let test_server = TestServer::new().await;
    let admin = test_server.app.authenticate(&test_server.token).expect("the administrator").id;
    let (group, ws) = (test_server.group("g"), test_server.workspace("g", "w"));
    let account = format!("{group}/providers/Microsoft.Storage/storageAccounts/someaccount");
    let (experiment, c, server) =
        (format!("{ws}/experiments/e"), format!("{ws}/clusters/c"), format!("{ws}/fileServers/f"));
    let (one, principals) =
        (format!("{experiment}/jobs/j"), format!("{}/providers/Corro/principals", test_server.subscription()));
    let ada = format!("{principals}/ada");
    let [tokens, host] =
        ["hostTokens", "hosts/h"].map(|rest| format!("{}/providers/Corro/{rest}", test_server.subscription()));
    put_host(&test_server).await;
    let node = NodeId::new(1, 1, Timestamp::from_millis(0));
    let mut low = cluster();
    low["properties"]["vmPriority"] = json!("lowpriority");
    let file_server = json!({"properties": {
        "vmSize": "Standard_D1", "sshConfiguration": {"userAccountSettings": {"adminUserName": "a", "adminUserPassword": "b"}},
        "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"}
    }});
    let notifications = json!({"webhook": {"url": "https://hooks.example/x"}});
    let tags = || json!({"tags": {"a": "b"}});
    let nothing = || Value::Null;
    let steps: Vec<(&str, String, Value)> = vec![
        ("ResourceGroups_CreateOrUpdate", group.clone(), json!({"location": "eastus"})),
        ("ResourceGroups_Update", group.clone(), tags()),
        ("StorageAccounts_Create", account.clone(), json!({"location": "eastus", "sku": {"name": "Standard_LRS"}})),
        ("StorageAccounts_Update", account.clone(), tags()),
        ("StorageAccounts_RegenerateKey", format!("{account}/regenerateKey"), json!({"keyName": "key1"})),
        ("Corro_Shares_Create", format!("{account}/shares/data"), nothing()),
        ("Workspaces_Create", ws.clone(), json!({"location": "eastus"})),
        ("Workspaces_Update", ws.clone(), tags()),
        ("Experiments_Create", experiment.clone(), nothing()),
        ("Corro_Experiments_Notify", format!("{experiment}/notifications"), notifications),
        ("Clusters_Create", c.clone(), low),
        ("Clusters_Update", c.clone(), json!({"properties": {"scaleSettings": {"manual": {"targetNodeCount": 2}}}})),
        ("Corro_Nodes_Preempt", format!("{c}/nodes/{node}/preempt"), json!({})),
        ("FileServers_Create", server.clone(), file_server),
        ("Jobs_Create", one.clone(), job(&c)),
        ("Corro_Jobs_Annotate", format!("{one}/annotations"), json!({"note": "a note"})),
        ("Jobs_Terminate", format!("{one}/terminate"), nothing()),
        ("Jobs_Delete", one.clone(), nothing()),
        ("FileServers_Delete", server, nothing()),
        ("Clusters_Delete", c.clone(), nothing()),
        ("Experiments_Delete", experiment.clone(), nothing()),
        ("Workspaces_Delete", ws.clone(), nothing()),
        ("Corro_Principals_Create", principals.clone(), json!({"displayName": "ada", "role": "Reader"})),
        ("Corro_Principals_ResetCredentials", format!("{ada}/resetCredentials"), nothing()),
        ("Corro_Principals_RevokeTokens", format!("{ada}/revokeTokens"), nothing()),
        ("Corro_Principals_Delete", ada.clone(), nothing()),
        ("Corro_HostTokens_Create", tokens.clone(), json!({})),
        ("Corro_HostTokens_Delete", format!("{tokens}/t"), nothing()),
        ("Corro_Hosts_Cordon", format!("{host}/cordon"), nothing()),
        ("Corro_Hosts_Drain", format!("{host}/drain"), json!({})),
        ("Corro_Hosts_Uncordon", format!("{host}/uncordon"), nothing()),
        ("Corro_Hosts_Remove", host.clone(), nothing()),
        ("StorageAccounts_Delete", account.clone(), nothing()),
        ("ResourceGroups_Delete", group.clone(), nothing()),
    ];
    for (id, method, _) in ALL.iter().filter(|(_, method, _)| !matches!(method, Method::Get | Method::Head)) {
        let known = CHANGE_NOTHING.contains(id) || steps.iter().any(|(step, ..)| step == id);
        assert!(known, "{id} ({method:?}) is not tried here: add a step, or say that it changes nothing");
    }
    for (id, path, body) in steps {
        let (_, method, _) = ALL.iter().find(|(known, ..)| *known == id).unwrap_or_else(|| panic!("{id} is gone"));
        if id == "Corro_Nodes_Preempt" {
            put_node(&test_server, node.clone()).await;
        }
        let before = last_number(&test_server).await;
        let answer = test_server.request(method.as_str(), &path, body).await;
        assert!(answer.status < 300, "{id}: {answer:?}");
        let filter = HistoryFilter { after: Some(before), ..HistoryFilter::newest(100) };
        let lines = test_server.app.history(filter).await.expect("a history");
        let noted = lines.iter().any(|line| line.actor == admin && !line.what.starts_with("request."));
        assert!(noted, "{id} left no line of its caller: {lines:?}");
        assert!(
            lines.iter().all(|line| !line.resource.is_empty() && line.time > Timestamp::default()),
            "{id}: {lines:?}"
        );
    }
}

async fn last_number(test_server: &TestServer) -> u64 {
    let last = test_server.app.history(HistoryFilter::newest(1)).await.expect("a history");
    last.first().map_or(0, |entry| entry.number)
}

/// Creates a join token and a host that joined with it.
async fn put_host(test_server: &TestServer) {
    test_server.app.fleet.hosts.enable_join(JoinEndpoint { url: "http://localhost:1".into(), ca_fingerprint: None });
    let now = Timestamp::from_millis(1);
    let token = HostTokenRecord { secret_digest: String::new(), created: now, expires: now, hosts: 1 };
    let host =
        json!({"name": "h", "credential_digest": "", "joined": now, "token": "t", "inventory": {}, "heard": now});
    let host: HostRecord = serde_json::from_value(host).expect("a literal");
    let commit = test_server.app.store.commit(move |txn| {
        txn.put("t".to_owned(), token);
        txn.put("h".to_owned(), host);
        Ok::<_, ApiError>(())
    });
    commit.await.expect("committed");
}

/// Creates a node as the reconciler would.
async fn put_node(test_server: &TestServer, id: NodeId) {
    let commit = test_server.app.store.commit(move |txn| {
        let (key, now) = (GroupKey::new("g").workspace("w").cluster("c"), Timestamp::from_millis(1));
        txn.put(id.clone(), NodeRecord::allocating(key, 1, String::new(), now));
        txn.node_event(&id, NodeEvent::Joined, now).expect("it was allocating");
        Ok::<_, ApiError>(())
    });
    commit.await.expect("committed");
}
