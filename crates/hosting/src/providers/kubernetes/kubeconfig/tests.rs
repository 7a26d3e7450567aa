//! Tests with kubeconfig files as kubectl and cloud providers write them.

use super::*;

const PLAIN: &str = "
apiVersion: v1
kind: Config
preferences: {}
current-context: lab
contexts:
- name: lab
  context: {cluster: lab, user: me, namespace: trainings}
- name: bare
  context: {cluster: lab, user: nobody}
clusters:
- name: lab
  cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: Y2E=}
users:
- name: me
  user: {client-certificate: me.crt, client-key-data: a2V5, token: t}
- name: nobody
  user: {}
";

fn config(text: &str, context: Option<&str>) -> Result<ClusterConfig, String> {
    Kubeconfig::parse(text, Path::new("/home/me/.kube")).expect("a kubeconfig").cluster_config(context)
}

/// A file with these fields of a cluster and a user.
fn file_with(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://k', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]"
    )
}

#[test]
fn a_context_selects_cluster_and_user() {
    let config_of_lab = ClusterConfig {
        server: "https://10.0.0.1:6443".to_owned(),
        namespace: Some("trainings".to_owned()),
        ca: Some(FileOrData::Data(b"ca".to_vec())),
        client_cert: Some((FileOrData::File("/home/me/.kube/me.crt".into()), FileOrData::Data(b"key".to_vec()))),
        auth: AuthMethod::Token(Secret::new("t")),
    };
    assert_eq!(config(PLAIN, None), Ok(config_of_lab));
    let bare = config(PLAIN, Some("bare")).expect("a context");
    assert_eq!((bare.namespace, bare.client_cert, bare.auth), (None, None, AuthMethod::None));
}

#[test]
fn all_authentication_methods_are_read() {
    let auth = |user: &str| config(&file_with("", user), None).expect("a configuration").auth;
    assert_eq!(auth("tokenFile: run/token, token: t"), AuthMethod::TokenFile("/home/me/.kube/run/token".into()));
    assert_eq!(auth("username: u, password: p"), AuthMethod::Password("u".to_owned(), Secret::new("p")));
    let AuthMethod::ExecPlugin(plugin) = auth(
        "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [eks, get-token], \
         env: [{name: AWS_PROFILE, value: lab}], interactiveMode: IfAvailable, provideClusterInfo: false}",
    ) else {
        panic!("it is a plugin")
    };
    assert_eq!((plugin.command.as_str(), plugin.args.map(|args| args.len())), ("aws", Some(2)));
    assert_eq!(plugin.env.expect("variables")[0].name, "AWS_PROFILE");
    let AuthMethod::ExecPlugin(plugin) = auth("exec: {apiVersion: v1, command: bin/login, args: null, env: null}")
    else {
        panic!("it is a plugin")
    };
    assert_eq!(plugin.command, "/home/me/.kube/bin/login", "it lies beside the file");
}

#[test]
fn unsupported_fields_are_rejected_by_name() {
    for (text, expected) in [
        ("null", "no current context"),
        ("current-context: ''\nclusters: null", "no current context"),
        ("current-context: gone\ncontexts: [{name: here, context: null}]", "no context 'gone' (there are: here)"),
        ("current-context: c\ncontexts: [{name: c, context: {cluster: gone}}]", "no cluster 'gone'"),
        (&file_with("insecure-skip-tls-verify: true", ""), "cluster 'k': insecure-skip-tls-verify"),
        (&file_with("tls-server-name: x", ""), "tls-server-name"),
        (&file_with("proxy-url: 'http://p'", ""), "HTTPS_PROXY"),
        (&file_with("", "client-key: k.pem"), "user 'u': client-key has no client-certificate"),
        (&file_with("", "auth-provider: {name: gcp}"), "auth-provider"),
        (&file_with("", "as: root, token: t"), "as is not supported"),
        (&file_with("", "exec: {apiVersion: v1, command: x, interactiveMode: Always}"), "needs a terminal"),
    ] {
        let error = config(text, None).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(error.contains(expected), "{error}");
    }
    for wrong in ["- a\n- b", "clusters: 5", "clusters: [{name: c, cluster: {certificate-authority-data: '!'}}]"] {
        assert!(Kubeconfig::parse(wrong, Path::new("/")).is_err(), "{wrong}");
    }
}

#[test]
fn the_first_of_several_files_wins() {
    let parse = |text: &str, directory: &str| Kubeconfig::parse(text, Path::new(directory)).expect("a kubeconfig");
    let empty = parse("", "/a");
    let own = parse("users: [{name: me, user: {tokenFile: t}}]\ncurrent-context: bare", "/b");
    let all = empty.merge(own).merge(parse(PLAIN, "/c"));
    assert_eq!(all.cluster_config(None).map(|config| config.auth), Ok(AuthMethod::None));
    assert_eq!(all.cluster_config(Some("lab")).map(|config| config.auth), Ok(AuthMethod::TokenFile("/b/t".into())));
}
