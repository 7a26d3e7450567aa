//! What to do about an error of the service, as a command line that can be pasted: it repeats the group, workspace and
//! experiment the user gave. Used by `failure` and `commands::resource_ref`.

/// Where a command looked. What it did not say is shown in capitals, to be filled in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    pub group: Option<&'a str>,
    pub workspace: Option<&'a str>,
    pub experiment: Option<&'a str>,
}

/// The hint for an error code of the service, if there is one.
pub fn hint(code: &str, place: Place<'_>) -> Option<String> {
    let Place { group, workspace, experiment } = place;
    let in_group = format!("-g {}", group.unwrap_or("GROUP"));
    let in_workspace = format!("{in_group} -w {}", workspace.unwrap_or("WORKSPACE"));
    let in_experiment = format!("{in_workspace} -e {}", experiment.unwrap_or("EXPERIMENT"));
    let see = |things: &str, line: String| Some(format!("list the {things} with 'corro {line}'"));
    match code {
        "ResourceGroupNotFound" => {
            let name = group.unwrap_or("GROUP");
            Some(format!(
                "list the groups with 'corro group list', or make one with 'corro group create -n {name} -l eastus'"
            ))
        }
        "WorkspaceNotFound" => see("workspaces", format!("batchai workspace list {in_group}")),
        "ExperimentNotFound" => see("experiments", format!("batchai experiment list {in_workspace}")),
        "ClusterNotFound" => see("clusters", format!("batchai cluster list {in_workspace}")),
        "FileServerNotFound" => see("file servers", format!("batchai file-server list {in_workspace}")),
        "JobNotFound" => see("jobs", format!("batchai job list {in_experiment}")),
        "HttpsRequired" => Some(
            "the server was started with --tls: 'corro up' or 'corro server' on its data directory writes a profile with https://, 'corro login --server https://HOST:PORT --ca FILE' elsewhere"
                .to_owned(),
        ),
        "AuthorizationFailed" => Some("ask an owner for a role: 'corro account show' says who you are".to_owned()),
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
    fn hints_repeat_what_was_given() {
        let place = Place { group: Some("g"), workspace: Some("w"), experiment: None };
        for (code, expected) in [
            ("WorkspaceNotFound", "list the workspaces with 'corro batchai workspace list -g g'"),
            ("ClusterNotFound", "list the clusters with 'corro batchai cluster list -g g -w w'"),
            ("JobNotFound", "list the jobs with 'corro batchai job list -g g -w w -e EXPERIMENT'"),
        ] {
            assert_eq!(hint(code, place).as_deref(), Some(expected));
        }
        assert_eq!(hint("Unknown", place), None);
    }
}
