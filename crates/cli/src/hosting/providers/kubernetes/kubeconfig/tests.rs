//! Files as kubectl and the clouds write them.

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

fn way(text: &str, context: Option<&str>) -> Result<Way, String> {
    Kubeconfig::parse(text, Path::new("/home/me/.kube")).expect("a kubeconfig").way(context)
}

/// A file whose cluster or user has this.
fn with(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://k', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]"
    )
}

#[test]
fn a_context_says_where_and_who() {
    let expected = Way {
        server: "https://10.0.0.1:6443".to_owned(),
        namespace: Some("trainings".to_owned()),
        authority: Some(Content::Here(b"ca".to_vec())),
        identity: Some((Content::In("/home/me/.kube/me.crt".into()), Content::Here(b"key".to_vec()))),
        login: Login::Token(Secret::new("t")),
    };
    assert_eq!(way(PLAIN, None), Ok(expected));
    let bare = way(PLAIN, Some("bare")).expect("a context");
    assert_eq!((bare.namespace, bare.identity, bare.login), (None, None, Login::None));
}

#[test]
fn who_asks_may_be_told_in_five_ways() {
    let login = |user: &str| way(&with("", user), None).expect("a way").login;
    assert_eq!(login("tokenFile: run/token, token: t"), Login::TokenFile("/home/me/.kube/run/token".into()));
    assert_eq!(login("username: u, password: p"), Login::Password("u".to_owned(), Secret::new("p")));
    let Login::Plugin(plugin) = login(
        "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: aws, args: [eks, get-token], \
         env: [{name: AWS_PROFILE, value: lab}], interactiveMode: IfAvailable, provideClusterInfo: false}",
    ) else {
        panic!("it is a plugin")
    };
    assert_eq!((plugin.command.as_str(), plugin.args.map(|args| args.len())), ("aws", Some(2)));
    assert_eq!(plugin.env.expect("variables")[0].name, "AWS_PROFILE");
    let Login::Plugin(plugin) = login("exec: {apiVersion: v1, command: bin/login, args: null, env: null}") else {
        panic!("it is a plugin")
    };
    assert_eq!(plugin.command, "/home/me/.kube/bin/login", "it lies beside the file");
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (text, says) in [
        ("null", "no current context"),
        ("current-context: ''\nclusters: null", "no current context"),
        ("current-context: gone\ncontexts: [{name: here, context: null}]", "no context 'gone' (there are: here)"),
        ("current-context: c\ncontexts: [{name: c, context: {cluster: gone}}]", "no cluster 'gone'"),
        (&with("insecure-skip-tls-verify: true", ""), "cluster 'k': insecure-skip-tls-verify"),
        (&with("tls-server-name: x", ""), "tls-server-name"),
        (&with("proxy-url: 'http://p'", ""), "HTTPS_PROXY"),
        (&with("", "client-key: k.pem"), "user 'u': client-key has no client-certificate"),
        (&with("", "auth-provider: {name: gcp}"), "auth-provider"),
        (&with("", "as: root, token: t"), "as is not understood"),
        (&with("", "exec: {apiVersion: v1, command: x, interactiveMode: Always}"), "wants to ask somebody"),
    ] {
        let error = way(text, None).err().unwrap_or_else(|| panic!("taken: {text}"));
        assert!(error.contains(says), "{error}");
    }
    for wrong in ["- a\n- b", "clusters: 5", "clusters: [{name: c, cluster: {certificate-authority-data: '!'}}]"] {
        assert!(Kubeconfig::parse(wrong, Path::new("/")).is_err(), "{wrong}");
    }
}

#[test]
fn of_several_files_the_first_that_says_something_counts() {
    let parse = |text: &str, directory: &str| Kubeconfig::parse(text, Path::new(directory)).expect("a kubeconfig");
    let empty = parse("", "/a");
    let own = parse("users: [{name: me, user: {tokenFile: t}}]\ncurrent-context: bare", "/b");
    let all = empty.and(own).and(parse(PLAIN, "/c"));
    assert_eq!(all.way(None).map(|way| way.login), Ok(Login::None));
    assert_eq!(all.way(Some("lab")).map(|way| way.login), Ok(Login::TokenFile("/b/t".into())));
}
