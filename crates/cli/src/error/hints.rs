//! Hints for error codes of the service: a command line to paste, with the group, workspace and experiment that the user gave.

/// Names that the failed command used. A missing name appears in capitals, to be filled in.
#[derive(Clone, Copy, Debug, Default)]
pub struct HintContext<'a> {
    pub group: Option<&'a str>,
    pub workspace: Option<&'a str>,
    pub experiment: Option<&'a str>,
}

/// The hint for an error code, if there is one.
pub fn hint(code: &str, context: HintContext<'_>) -> Option<String> {
    let HintContext { group, workspace, experiment } = context;
    let in_group = format!("-g {}", group.unwrap_or("GROUP"));
    let in_workspace = format!("{in_group} -w {}", workspace.unwrap_or("WORKSPACE"));
    let in_experiment = format!("{in_workspace} -e {}", experiment.unwrap_or("EXPERIMENT"));
    let list_hint = |things: &str, line: String| Some(format!("list the {things} with 'corro {line}'"));
    match code {
        "ResourceGroupNotFound" => {
            let name = group.unwrap_or("GROUP");
            Some(format!(
                "list the groups with 'corro group list', or make one with 'corro group create -n {name} -l eastus'"
            ))
        }
        "WorkspaceNotFound" => list_hint("workspaces", format!("batchai workspace list {in_group}")),
        "ExperimentNotFound" => list_hint("experiments", format!("batchai experiment list {in_workspace}")),
        "ClusterNotFound" => list_hint("clusters", format!("batchai cluster list {in_workspace}")),
        "FileServerNotFound" => list_hint("file servers", format!("batchai file-server list {in_workspace}")),
        "JobNotFound" => list_hint("jobs", format!("batchai job list {in_experiment}")),
        "HttpsRequired" => Some(
            "the server was started with --tls: 'corro up' or 'corro server' on its data directory writes a profile with https://, 'corro login --server https://HOST:PORT --ca FILE' elsewhere"
                .to_owned(),
        ),
        "AuthorizationFailed" => Some("ask an owner for a role; 'corro account show' shows your login".to_owned()),
        "PrincipalNotFound" => Some("list the principals with 'corro ad sp list'".to_owned()),
        "ShareNotFound" => Some(
            "list the shares with 'corro storage share list', or make one with 'corro storage share create'".to_owned(),
        ),
        "ParentNotFound" => Some("make the directory first with 'corro storage directory create'".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_contain_the_given_names() {
        let context = HintContext { group: Some("g"), workspace: Some("w"), experiment: None };
        for (code, expected) in [
            ("WorkspaceNotFound", "list the workspaces with 'corro batchai workspace list -g g'"),
            ("ClusterNotFound", "list the clusters with 'corro batchai cluster list -g g -w w'"),
            ("JobNotFound", "list the jobs with 'corro batchai job list -g g -w w -e EXPERIMENT'"),
        ] {
            assert_eq!(hint(code, context).as_deref(), Some(expected));
        }
        assert_eq!(hint("Unknown", context), None);
    }
}
