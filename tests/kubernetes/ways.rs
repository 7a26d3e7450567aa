//! Authentication to a real API server: TLS with its own authority, client certificates, tokens renewed in a file or given by
//! an exec plugin.

use std::fs;

use base64::Engine;
use serde_json::{Value, json};

use super::Stage;
use super::api::kubeconfig;
use super::door::Door;
use super::harness::wait_for;

fn data(pem: &str) -> Value {
    json!(base64::engine::general_purpose::STANDARD.encode(pem))
}

#[test]
fn the_api_is_reached_with_certificates_and_tokens_that_do_not_last() {
    let mut door = None;
    let mut stage = Stage::start_by(|site, api| {
        let door = door.insert(Door::before(api.address));
        api.state().token = Some("first");
        site.write("token", "first\n");
        site.write("me.crt", &door.certificate);
        let server = format!("https://{}", door.address);
        kubeconfig(
            json!({"server": server, "certificate-authority-data": data(&door.authority)}),
            json!({"client-certificate": "me.crt", "client-key-data": data(&door.key), "tokenFile": "token"}),
        )
    });
    let door = door.expect("it is made");
    let api = stage.api.clone();
    stage.site.prepare(1);
    api.state().token = Some("second");
    stage.resize(2);
    wait_for("the refusal to be told", || stage.errors().contains("no such account"));
    stage.site.write("token", "second\n");
    stage.site.wait_for_nodes(2);

    let plugin = "echo $WHO >> asked; [ -n \"$KUBERNETES_EXEC_INFO\" ] && printf '{\"status\": {\"token\": \"%s\"}}' $(cat token)";
    stage.site.write("plugin", format!("cd {}; {plugin}", stage.site.path().display()));
    stage.site.write("ca.pem", &door.authority);
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": [stage.site.path().join("plugin")], "env": [{"name": "WHO", "value": "corro"}]});
    let user = json!({"client-certificate": "me.crt", "client-key-data": data(&door.key), "exec": exec});
    let server = format!("https://{}", door.address);
    let by_plugin = kubeconfig(json!({"server": server, "certificate-authority": "ca.pem"}), user.clone());
    stage.site.write("kubeconfig", by_plugin);
    stage.restart();
    stage.resize(3);
    stage.site.wait_for_nodes(3);
    let asked = |stage: &Stage| fs::read_to_string(stage.site.path().join("asked")).expect("it was asked");
    assert_eq!(asked(&stage), "corro\n", "one token is for many calls");
    stage.site.write("token", "third\n");
    api.state().token = Some("third");
    stage.resize(2);
    wait_for("two pods to be left", || api.pod_names().len() == 2);
    assert!(asked(&stage).len() > "corro\n".len(), "one that is refused is not used again");

    // An impostor of the API server gets no token.
    let stranger = Door::before(api.address);
    let server = format!("https://{}", stranger.address);
    stage.site.write("kubeconfig", kubeconfig(json!({"server": server, "certificate-authority": "ca.pem"}), user));
    stage.restart();
    stage.resize(3);
    wait_for("the stranger to be told of", || stage.errors().contains("invalid peer certificate"));
    assert_eq!(api.pod_names().len(), 2);
}
