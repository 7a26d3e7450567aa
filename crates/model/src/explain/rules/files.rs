//! Rules for files: the script or a data file is missing, no permission, read-only, disk full, too many open files. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, MAX_ADVICE, Pattern, Rule};
use super::text::{is_shell, quotable, quoted};
use super::variables::misspelled_variable;

pub const RULES: &[Rule] = &[
    Rule {
        key: "job-disk-full",
        pattern: Pattern::Line(&["No space left on device", "Disk quota exceeded", "[Errno 28]", "ENOSPC"]),
        answer: Answer::Computed(disk_full),
    },
    Rule {
        key: "too-many-open-files",
        pattern: Pattern::Line(&["Too many open files"]),
        answer: Answer::Fixed {
            cause: "The process holds more files and connections open than it may.",
            advice: &[
                "Close files after use ('with open(…)'), and start fewer data loader workers.",
                "Or raise the limit in the command line: 'ulimit -n 65536; python3 train.py'.",
            ],
        },
    },
    Rule {
        key: "script-missing",
        pattern: Pattern::Line(&["can't open file '"]),
        answer: Answer::Computed(script_missing),
    },
    Rule {
        key: "read-only-file-system",
        pattern: Pattern::Line(&["Read-only file system"]),
        answer: Answer::Computed(read_only),
    },
    Rule {
        key: "permission-denied",
        pattern: Pattern::Raised(&[
            "PermissionError: ",
            "[Errno 13] Permission denied",
            "[Errno 1] Operation not permitted",
        ]),
        answer: Answer::Computed(permission_denied),
    },
    Rule {
        key: "file-missing",
        pattern: Pattern::Raised(&[
            "FileNotFoundError: ",
            "[Errno 2] No such file or directory",
            "NotADirectoryError: ",
            "; No such file or directory",
        ]),
        answer: Answer::Computed(file_missing),
    },
    // Of shells and the programs that they start.
    Rule {
        key: "file-missing",
        pattern: Pattern::LineWith(|line| {
            line.ends_with(": No such file or directory") || line.contains(": can't cd to ")
        }),
        answer: Answer::Computed(file_missing),
    },
    Rule {
        key: "permission-denied",
        pattern: Pattern::LineWith(|line| line.ends_with(": Permission denied") && !is_shell(line)),
        answer: Answer::Computed(permission_denied),
    },
];

/// The path in a message: after the reason (Python), or before it (shells and other programs).
fn path_in(line: &str) -> Option<&str> {
    const BEFORE_PATH: [&str; 7] =
        ["directory: ", "denied: ", "permitted: ", "system: ", "device: ", "open file ", "can't cd to "];
    const REASONS: [&str; 5] = [
        ": No such file or directory",
        "; No such file or directory",
        ": Permission denied",
        ": Read-only file system",
        ": No space left on device",
    ];
    if let Some((_, rest)) = BEFORE_PATH.iter().find_map(|text| line.split_once(text)) {
        return quoted(rest).or_else(|| Some(rest.trim()).filter(|rest| !rest.is_empty() && !rest.contains(' ')));
    }
    let subject = REASONS.iter().find_map(|reason| line.strip_suffix(reason))?;
    // `ls: cannot access '/x/y'`, `cat: x.csv`.
    let in_quotes = subject.strip_suffix(['\'', '’']).and_then(|rest| Some(&rest[rest.rfind(['\'', '‘'])?..]));
    match in_quotes {
        Some(path) => Some(path.trim_start_matches(['\'', '‘'])),
        None => subject.rsplit(": ").next(),
    }
    .filter(|path| !path.is_empty())
}

/// A path of a node for a sentence: a path on a volume of the job begins with the variable that job files use.
fn shown(path: &str) -> String {
    let on_volume = path.split_once("/jobs/").and_then(|(_, rest)| rest.split_once("/mounts/"));
    on_volume.map_or_else(|| quotable(path), |(_, rest)| quotable(&format!("$AZ_BATCHAI_JOB_MOUNT_ROOT/{rest}")))
}

fn script_missing(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let path = quotable(path_in(found.line)?);
    if let Some(finding) = wrong_variable(&path, facts) {
        return Some(finding);
    }
    let field = facts.script_field().filter(|_| !facts.is_preparation).unwrap_or_else(|| facts.command_field());
    let mut advice = nearby_file(&path, facts);
    advice.push(format!(
        "Correct the path in {field}: it begins with a variable, such as $AZ_BATCHAI_JOB_MOUNT_ROOT/SHARE/train.py; a relative \
         path begins at workingDirectory."
    ));
    advice.push("'corro storage file list --share-name SHARE' shows what is on the share; 'corro submit train.py' sends the script with the job.".to_owned());
    Some(Finding { cause: format!("The script {} does not exist on the node.", shown(&path)), advice })
}

fn file_missing(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let path = quotable(path_in(found.line)?);
    if let Some(finding) = wrong_variable(&path, facts) {
        return Some(finding);
    }
    let mut advice = nearby_file(&path, facts);
    let is_own_machine = ["/home/", "/Users/", "C:\\", "D:\\"].iter().any(|start| path.starts_with(start));
    if is_own_machine {
        advice.push("It looks like a path of your own machine, which nodes do not have: put the file on a share, and use its path there.".to_owned());
    } else if !path.starts_with('/') {
        let start = match &facts.spec.working_directory {
            Some(directory) => format!("workingDirectory, which is {directory}"),
            None => "the job's own directory ($AZ_BATCHAI_JOB_TEMP), as the job has no workingDirectory".to_owned(),
        };
        advice.push(format!(
            "A relative path begins at {start}: use a path that begins with a variable, or set workingDirectory."
        ));
    } else {
        advice.push("Check the path: files of a share are below $AZ_BATCHAI_JOB_MOUNT_ROOT/SHARE, as its relativeMountPath says.".to_owned());
    }
    advice.push(
        "'corro submit' sends what .gitignore and .corroignore do not exclude; put large data on a share and mount it ('--mount SHARE', mountVolumes)."
            .to_owned(),
    );
    advice.truncate(MAX_ADVICE);
    Some(Finding { cause: format!("The file {} does not exist on the node.", shown(&path)), advice })
}

/// A path that contains a variable which nothing replaced, or the rest of one with a wrong name.
fn wrong_variable(path: &str, facts: &JobFacts<'_>) -> Option<Finding> {
    if let Some((wrong, known)) = misspelled_variable(facts) {
        let instead = known.map_or_else(
            || "Correct it, or set it in environmentVariables.".to_owned(),
            |known| format!("Write ${known} instead."),
        );
        return Some(Finding::new(
            format!(
                "There is no variable ${wrong} in the job, so that nothing stands in its place in the path {path}."
            ),
            [instead],
        ));
    }
    if path.starts_with('~') {
        return Some(Finding::new(
            format!("The path {path} begins with '~', which only a shell replaces."),
            ["Use os.path.expanduser(path) in the script. The home directory of a job is not yours: data belongs on a share.".to_owned()],
        ));
    }
    let (_, rest) = path.split_once('$')?;
    let rest = rest.strip_prefix('{').unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let name = Some(&rest[..end]).filter(|name| !name.is_empty())?;
    Some(Finding::new(
        format!(
            "Nothing replaced the variable ${name} in the path {path}: Python does not, and a shell does not between single quotes."
        ),
        [
            format!("In the script, use os.environ['{name}'] or os.path.expandvars(path)."),
            format!("In {}, use double quotes around \"${name}/…\", or none.", facts.command_field()),
        ],
    ))
}

/// A file of the same name among the job's files.
fn nearby_file(path: &str, facts: &JobFacts<'_>) -> Vec<String> {
    let found = facts.project.and_then(|project| Some((project.find_file(path)?, project)));
    found
        .map(|(file, project)| format!("The job's files have {}.", project.path_of(&quotable(file))))
        .into_iter()
        .collect()
}

fn permission_denied(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let path = path_in(found.line).map(shown);
    let of_path = path.as_ref().map_or_else(|| "a file".to_owned(), |path| format!("the path {path}"));
    let write = "Write to an output directory ($AZ_BATCHAI_OUTPUT_ID of outputDirectories), to a mounted share, or to \
                 $AZ_BATCHAI_JOB_TEMP."
        .to_owned();
    let other = match (facts.is_in_container(), path.as_deref().is_some_and(|path| path.contains("site-packages"))) {
        (_, true) => "Packages are installed in the job's own environment: 'corro submit --pip PACKAGE', or pip in jobPreparation.".to_owned(),
        (false, _) => "On a share, its modes decide: fileMode and directoryMode in mountVolumes.".to_owned(),
        (true, _) => "In a container, the image decides whose files these are; on a share fileMode and directoryMode in mountVolumes do."
            .to_owned(),
    };
    Some(Finding::new(format!("The job may not use {of_path}."), [write, other]))
}

fn read_only(found: &Found<'_>, _: &JobFacts<'_>) -> Option<Finding> {
    let path = path_in(found.line).map_or_else(|| "a path".to_owned(), |path| format!("the path {}", shown(path)));
    Some(Finding::new(
        format!("The job writes to {path}, which is mounted read-only."),
        [
            "Write to an output directory ($AZ_BATCHAI_OUTPUT_ID of outputDirectories) or to $AZ_BATCHAI_JOB_TEMP.".to_owned(),
            "If it is a volume of yours: take 'ro' out of its mountOptions, and give its fileMode and directoryMode write bits.".to_owned(),
        ],
    ))
}

fn disk_full(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let path = path_in(found.line).filter(|path| path.starts_with('/')).map(shown);
    let place = path.as_ref().map_or_else(String::new, |path| format!(" at {path}"));
    let share =
        "If it is a share: delete files, or raise its quota ('corro storage share update --name SHARE --quota GIB')."
            .to_owned();
    let node = match facts.is_in_container() {
        true => "Otherwise the disk of the container engine is full: 'docker system df' on the node's machine.".to_owned(),
        false => "Otherwise free space on the node's machine ('df -h'), or write to a share: TMPDIR and caches (HF_HOME, TORCH_HOME) \
                  can be moved with environmentVariables."
            .to_owned(),
    };
    Some(Finding::new(format!("There is no space left on the disk{place}."), [share, node]))
}
