//! Which argument of which command takes names of which kind. Pure.

/// A kind of name that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    Group,
    Workspace,
    Experiment,
    Cluster,
    Job,
    /// A job that waits or runs.
    ActiveJob,
    Share,
    /// A share with the colon that begins a path in it.
    SharePath,
    Account,
    Node,
}

impl NameKind {
    #[cfg(test)]
    pub const ALL: [NameKind; 10] = [
        NameKind::Group,
        NameKind::Workspace,
        NameKind::Experiment,
        NameKind::Cluster,
        NameKind::Job,
        NameKind::ActiveJob,
        NameKind::Share,
        NameKind::SharePath,
        NameKind::Account,
        NameKind::Node,
    ];
}

/// Commands of `corro job` that make sense only for a job that has not ended.
const ACTIVE_JOB_COMMANDS: [&str; 5] = ["stop", "top", "exec", "shell", "timeline"];

/// The kind of names that an argument takes. `path` is the command, `id` the argument in its definition.
pub fn kind_of(path: &[String], id: &str) -> Option<NameKind> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let job = match path.last() {
        Some(verb) if ACTIVE_JOB_COMMANDS.contains(verb) => NameKind::ActiveJob,
        _ => NameKind::Job,
    };
    match (&path[..], id) {
        // The name of what is created is new.
        ([.., "create"], "name") | (["batchai", "workspace", "create"], "workspace") => None,
        (["group", ..], "name") => Some(NameKind::Group),
        (["batchai", "workspace", ..], "name") => Some(NameKind::Workspace),
        (["batchai", "experiment", ..], "name") => Some(NameKind::Experiment),
        (["batchai", "cluster", ..] | ["cluster", ..], "name") => Some(NameKind::Cluster),
        (["batchai", "job", ..] | ["job", ..] | ["fetch"], "name") => Some(job),
        (["storage", "share", ..], "name") => Some(NameKind::Share),
        (["storage", "account", ..], "name") => Some(NameKind::Account),
        (["share", "cp"], "source" | "target") => Some(NameKind::SharePath),
        (["share", "ls" | "rm"], "share" | "path") => Some(NameKind::SharePath),
        (["node", "preempt"], "node") => Some(NameKind::Node),
        (_, "resource_group" | "group") => Some(NameKind::Group),
        (_, "workspace") => Some(NameKind::Workspace),
        (_, "experiment") => Some(NameKind::Experiment),
        (_, "cluster") => Some(NameKind::Cluster),
        (_, "job") => Some(job),
        (["submit" | "sweep"], "after") => Some(NameKind::Job),
        (["submit" | "sweep"], "share" | "mount") => Some(NameKind::Share),
        (["storage", ..], "share_name") => Some(NameKind::Share),
        (_, "account_name") => Some(NameKind::Account),
        (["submit" | "sweep"], "account") => Some(NameKind::Account),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_known_by_their_command() {
        let check = |path: &str, id: &str, expected: Option<NameKind>| {
            let path: Vec<String> = path.split(' ').map(str::to_owned).collect();
            assert_eq!(kind_of(&path, id), expected, "{path:?} {id}");
        };
        check("job logs", "job", Some(NameKind::Job));
        check("job stop", "job", Some(NameKind::ActiveJob));
        check("batchai job show", "name", Some(NameKind::Job));
        check("batchai job create", "name", None);
        check("batchai job create", "cluster", Some(NameKind::Cluster));
        check("cluster create", "name", None);
        check("batchai workspace create", "workspace", None);
        check("batchai cluster show", "workspace", Some(NameKind::Workspace));
        check("storage file upload", "share_name", Some(NameKind::Share));
        check("share cp", "source", Some(NameKind::SharePath));
        check("storage account show", "name", Some(NameKind::Account));
        check("docs", "name", None);
    }
}
