//! Bodies that say something impossible: refused whole, with the field, and without repeating what may be secret.

use serde_json::{Value, json};

use super::{Bench, cluster, job};

async fn refuses(bench: &Bench, path: &str, body: Value, target: Value) -> String {
    let answer = bench.ask("PUT", path, body.clone()).await;
    assert_eq!((answer.status, &answer.body["error"]["target"]), (400, &target), "{body} {answer:?}");
    answer.body["error"]["message"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn locations_are_names_of_regions_everywhere() {
    let bench = Bench::new().await;
    bench.furnish("g", "w").await;
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", bench.group("g"));
    for bad in ["../x", "a/b", "é", &"x".repeat(5000)] {
        refuses(&bench, &bench.group("new"), json!({"location": bad}), json!("location")).await;
        refuses(&bench, &bench.workspace("g", "new"), json!({"location": bad}), json!("location")).await;
        let body = json!({"location": bad, "sku": {"name": "Standard_LRS"}});
        refuses(&bench, &account, body, json!("location")).await;
    }
    let group = bench.group("spaced");
    let made = bench.ask("PUT", &group, json!({"location": "East US"})).await.is(201);
    assert_eq!(made.body["location"], "eastus");
    bench.ask("PUT", &group, json!({"location": "eastus"})).await.is(200);
    bench.ask("PUT", &group, json!({"location": " EAST us"})).await.is(200);
    bench.ask("PUT", &group, json!({"location": "westus"})).await.refused(409, "InvalidResourceGroupLocation");
}

#[tokio::test]
async fn tags_have_a_bound_everywhere() {
    let bench = Bench::new().await;
    bench.furnish("g", "w").await;
    let account = format!("{}/providers/Microsoft.Storage/storageAccounts/someaccount", bench.group("g"));
    let tags = |count: usize| (0..count).map(|number| (number.to_string(), json!(""))).collect::<Value>();
    let body = |count: usize| json!({"location": "eastus", "sku": {"name": "Standard_LRS"}, "tags": tags(count)});
    for path in [bench.group("new"), bench.workspace("g", "new"), account] {
        for count in [51, 60_000] {
            let message = refuses(&bench, &path, body(count), json!("tags")).await;
            assert!(message.contains(&format!("{count} tags are given: use at most 50")), "{message}");
        }
        assert!((200..300).contains(&bench.ask("PUT", &path, body(50)).await.status));
        let change = json!({"tags": tags(51)});
        assert_eq!(bench.ask("PATCH", &path, change).await.body["error"]["target"], "tags", "{path}");
    }
}

#[tokio::test]
async fn lists_are_no_objects_and_no_text_holds_a_nul() {
    let bench = Bench::new().await;
    let own = bench.furnish("g", "w").await;
    let message = refuses(&bench, &bench.workspace("g", "new"), json!(["eastus", {}]), Value::Null).await;
    assert!(message.contains("a list, expected an object") && !message.contains("struct"), "{message}");
    let mut wanted = cluster();
    wanted["properties"]["nodeSetup"] = json!([]);
    refuses(&bench, &format!("{own}/clusters/new"), wanted, json!("properties.nodeSetup")).await;
    let path = format!("{own}/experiments/e/jobs/j");
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["environmentVariables"] = json!([{"name": "A", "value": "a\0b"}]);
    refuses(&bench, &path, wanted, json!("properties.environmentVariables[0].value")).await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["customToolkitSettings"]["commandLine"] = json!("echo \0");
    refuses(&bench, &path, wanted, json!("properties.customToolkitSettings.commandLine")).await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    wanted["properties"]["customToolkitSettings"]["commandLine"] = json!(r"printf '\u0000'");
    bench.ask("PUT", &path, wanted).await.is(202);
    refuses(&bench, &bench.group("new"), json!({"location": 7}), json!("location")).await;
    refuses(&bench, &bench.group("new"), json!(7), Value::Null).await;
}

#[tokio::test]
async fn addresses_with_secrets_in_them_are_not_repeated() {
    let bench = Bench::new().await;
    let own = bench.furnish("g", "w").await;
    let mut wanted = job(&format!("{own}/clusters/c"));
    let share = json!({"azureFileUrl": "https://me:canary1@a.b/?sig=canary2", "relativeMountPath": "x"});
    wanted["properties"]["mountVolumes"] = json!({"azureFileShares": [share]});
    let at = json!("properties.mountVolumes.azureFileShares[0].azureFileUrl");
    let message = refuses(&bench, &format!("{own}/experiments/e/jobs/j"), wanted, at).await;
    assert!(!message.contains("canary"), "{message}");
}

#[tokio::test]
async fn a_file_server_with_another_password_is_another() {
    let bench = Bench::new().await;
    let own = bench.furnish("g", "w").await;
    let server = |password: &str, size: &str| {
        json!({"properties": {
            "vmSize": size, "dataDisks": {"diskSizeInGB": 1, "diskCount": 1, "storageAccountType": "Standard_LRS"},
            "sshConfiguration": {"userAccountSettings": {"adminUserName": "me", "adminUserPassword": password}}
        }})
    };
    let path = format!("{own}/fileServers/f");
    bench.ask("PUT", &path, server("one", "Standard_D1")).await.is(202);
    bench.ask("PUT", &path, server("one", "STANDARD_D1")).await.is(200);
    let message = bench.ask("PUT", &path, server("two", "Standard_D1")).await.refused(409, "FileServerAlreadyExists");
    assert!(message.contains("the value of a secret differs") && !message.contains("two"), "{message}");
}
