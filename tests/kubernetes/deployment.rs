//! Checks `deploy/kubernetes/corro.yaml` against the API's real types and against the program: its arguments exist, and its
//! role permits the requests of the provider and nothing more.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::harness::Site;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/corro.yaml");

/// The only object of this type in the file that `is` selects, without a field that the type does not know.
fn the<T: Serialize + DeserializeOwned>(kind: &str, is: impl Fn(&Value) -> bool) -> T {
    let found: Vec<Value> = objects().into_iter().filter(|object| object["kind"] == kind && is(object)).collect();
    let [object] = &found[..] else { panic!("{} objects of kind {kind}", found.len()) };
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(&serde_json::to_value(&typed).expect("JSON"), object, "{kind} has fields that there are not");
    typed
}

fn objects() -> Vec<Value> {
    let text = std::fs::read_to_string(FILE).expect("the deployment");
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).expect("YAML")).collect()
}

/// Verbs and resources that the deployment's role permits.
pub fn permitted() -> BTreeSet<(&'static str, &'static str)> {
    let role: Role = the("Role", |_| true);
    let known = ["create", "delete", "get", "list", "watch"].map(|verb| [(verb, "pods"), (verb, "secrets")]);
    let permits = |(verb, resource): &(&str, &str)| {
        role.rules.iter().flatten().any(|rule| {
            let resources = rule.resources.iter().flatten();
            resources.into_iter().any(|it| it == resource) && rule.verbs.iter().any(|it| it == verb)
        })
    };
    known.into_iter().flatten().filter(permits).collect()
}

#[test]
fn the_role_permits_what_the_provider_does_and_nothing_more() {
    let pods = ["create", "delete", "get", "list", "watch"].map(|verb| (verb, "pods"));
    let expected: BTreeSet<_> = pods.into_iter().chain([("create", "secrets")]).collect();
    assert_eq!(permitted(), expected, "no secret is read, and nobody else's is changed");
    let role: Role = the("Role", |_| true);
    let rules = role.rules.expect("rules");
    assert_eq!(rules.iter().map(|rule| rule.verbs.len()).sum::<usize>(), expected.len(), "every verb is known here");
    assert!(rules.iter().all(|rule| rule.resources.as_ref().is_some_and(|resources| resources.len() == 1)));
}

#[test]
fn the_objects_are_of_the_real_types_and_belong_together() {
    let namespace: Namespace = the("Namespace", |_| true);
    let namespace = namespace.metadata.name.expect("a name");
    for object in objects().iter().filter(|object| object["kind"] != "Namespace") {
        assert_eq!(object["metadata"]["namespace"], *namespace, "{}", object["kind"]);
    }
    let account: ServiceAccount = the("ServiceAccount", |_| true);
    let binding: RoleBinding = the("RoleBinding", |_| true);
    let role: Role = the("Role", |_| true);
    assert_eq!(Some(&binding.role_ref.name), role.metadata.name.as_ref());
    assert_eq!(Some(&binding.subjects.expect("subjects")[0].name), account.metadata.name.as_ref());
    let server: StatefulSet = the("StatefulSet", |_| true);
    let spec = server.spec.expect("a spec");
    assert_eq!(spec.replicas, Some(1), "one server at a time");
    let template = spec.template;
    let pod = template.spec.expect("a pod");
    assert_eq!(pod.service_account_name, account.metadata.name);
    let labels = template.metadata.and_then(|metadata| metadata.labels).expect("labels");
    assert!(spec.selector.match_labels.expect("labels").iter().all(|(key, value)| labels.get(key) == Some(value)));
    let service: Service = the("Service", |_| true);
    let service = service.spec.expect("a spec");
    assert!(service.selector.expect("labels").iter().all(|(key, value)| labels.get(key) == Some(value)));
    let container = &pod.containers[0];
    let ports: Vec<_> = container.ports.iter().flatten().map(|port| port.container_port).collect();
    assert_eq!(ports, service.ports.expect("ports").iter().map(|port| port.port).collect::<Vec<_>>());
    let probe = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.as_ref()).expect("an HTTP probe");
    assert_eq!((probe.path.as_deref(), probe.scheme.as_deref()), (Some("/readyz"), Some("HTTPS")));
    for volume in pod.volumes.iter().flatten() {
        let claim = &volume.persistent_volume_claim.as_ref().expect("a claim").claim_name;
        let _: PersistentVolumeClaim = the("PersistentVolumeClaim", |object| object["metadata"]["name"] == **claim);
    }
}

#[test]
fn the_program_knows_the_command_line() {
    let server: StatefulSet = the("StatefulSet", |_| true);
    let pod = server.spec.expect("a spec").template.spec.expect("a pod");
    let words = pod.containers[0].command.clone().expect("a command");
    let [program, command, flags @ ..] = &words[..] else { panic!("{words:?}") };
    assert_eq!((program.as_str(), command.as_str()), ("corro", "server"));
    let help = Site::unstarted(&[]).corro("server --help").ok().stdout;
    for flag in flags.iter().map(|flag| flag.split('=').next().expect("a name")) {
        assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")), "there is no {flag}");
    }
    let value =
        |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
    let context = pod.security_context.expect("a user");
    assert_eq!(context.run_as_user.map(|user| user.to_string()).as_deref(), Some(value("--kubernetes-user=")));
    let claims: Vec<_> =
        pod.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref()).collect();
    assert!(claims.iter().any(|claim| claim.claim_name == value("--kubernetes-shares-claim=")));
    let data = value("--data=");
    let mounts: Vec<_> =
        pod.containers[0].volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect();
    for part in ["shares", "file-servers", "job-shared"] {
        assert!(mounts.contains(&format!("{data}/{part}").as_str()), "nodes do not see {part}: {mounts:?}");
    }
}
