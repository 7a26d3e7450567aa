//! Authentication to a real API server: TLS with its own authority, client certificates, tokens renewed in a file or given by
//! an exec plugin.

use std::fs;

use base64::Engine;
use serde_json::{Value, json};

use super::KubernetesSite;
use super::api::kubeconfig;
use super::harness::wait_for;
use super::tls_proxy::TlsProxy;

fn data(pem: &str) -> Value {
    json!(base64::engine::general_purpose::STANDARD.encode(pem))
}

#[test]
fn the_api_is_reached_with_certificates_and_tokens_that_do_not_last() {
    let mut proxy = None;
    let mut cluster = KubernetesSite::start_with_kubeconfig(|site, api| {
        let proxy = proxy.insert(TlsProxy::start(api.address));
        api.state().token = Some("first");
        site.write("token", "first\n");
        site.write("me.crt", &proxy.certificate);
        let server = format!("https://{}", proxy.address);
        kubeconfig(
            json!({"server": server, "certificate-authority-data": data(&proxy.authority)}),
            json!({"client-certificate": "me.crt", "client-key-data": data(&proxy.key), "tokenFile": "token"}),
        )
    });
    let proxy = proxy.expect("it is made");
    let api = cluster.api.clone();
    cluster.site.prepare(1);
    api.state().token = Some("second");
    cluster.resize(2);
    wait_for("the refusal to be reported", || cluster.errors().contains("no such account"));
    cluster.site.write("token", "second\n");
    cluster.site.wait_for_nodes(2);

    let plugin = "echo $WHO >> asked; [ -n \"$KUBERNETES_EXEC_INFO\" ] && printf '{\"status\": {\"token\": \"%s\"}}' $(cat token)";
    cluster.site.write("plugin", format!("cd {}; {plugin}", cluster.site.path().display()));
    cluster.site.write("ca.pem", &proxy.authority);
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": [cluster.site.path().join("plugin")], "env": [{"name": "WHO", "value": "corro"}]});
    let user = json!({"client-certificate": "me.crt", "client-key-data": data(&proxy.key), "exec": exec});
    let server = format!("https://{}", proxy.address);
    let by_plugin = kubeconfig(json!({"server": server, "certificate-authority": "ca.pem"}), user.clone());
    cluster.site.write("kubeconfig", by_plugin);
    cluster.restart();
    cluster.resize(3);
    cluster.site.wait_for_nodes(3);
    let asked = |cluster: &KubernetesSite| fs::read_to_string(cluster.site.path().join("asked")).expect("it was asked");
    assert_eq!(asked(&cluster), "corro\n", "one token is for many calls");
    cluster.site.write("token", "third\n");
    api.state().token = Some("third");
    cluster.resize(2);
    wait_for("two pods to be left", || api.pod_names().len() == 2);
    assert!(asked(&cluster).len() > "corro\n".len(), "one that is refused is not used again");

    // An impostor of the API server gets no token.
    let impostor = TlsProxy::start(api.address);
    let server = format!("https://{}", impostor.address);
    cluster.site.write("kubeconfig", kubeconfig(json!({"server": server, "certificate-authority": "ca.pem"}), user));
    cluster.restart();
    cluster.resize(3);
    wait_for("the impostor to be reported", || cluster.errors().contains("invalid peer certificate"));
    assert_eq!(api.pod_names().len(), 2);
}
