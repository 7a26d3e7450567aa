//! Rules for the installation of packages: pip, conda, apt, sudo, and git. Pure.

use super::facts::JobFacts;
use super::rule::{Answer, Finding, Found, Pattern, Rule};
use super::text::{quotable, quoted};

pub const RULES: &[Rule] = &[
    Rule {
        key: "pip-without-network",
        pattern: Pattern::Line(&[
            "Retrying (Retry(total=",
            "Failed to establish a new connection",
            "[Errno 101] Network is unreachable",
        ]),
        answer: Answer::Computed(unreachable_index),
    },
    Rule {
        key: "pip-hash-mismatch",
        pattern: Pattern::Line(&[
            "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE",
            "Hashes are required in --require-hashes mode",
        ]),
        answer: Answer::Fixed {
            cause: "A package is not the one for which the requirements file has a hash, or has no hash there.",
            advice: &[
                "Make the file again: 'pip-compile --generate-hashes', or 'pip hash FILE' for a single wheel.",
                "Wheels that the server's operator offers ('corro up --wheels') have hashes of their own: add them, or leave \
                 hashes out.",
            ],
        },
    },
    Rule {
        key: "pip-needs-compiler",
        pattern: Pattern::Line(&[
            "error: command 'gcc' failed",
            "error: command 'g++' failed",
            "error: command 'cc' failed",
            "error: command 'c++' failed",
            "error: command 'clang' failed",
            "linux-gnu-gcc' failed",
            "linux-gnu-g++' failed",
            "gcc' failed: No such file or directory",
            "error: Unable to find vcvarsall.bat",
            "fatal error: Python.h: No such file or directory",
            "CMake must be installed to build",
            "error: can't find Rust compiler",
            "RuntimeError: Unsupported compiler -- at least C++",
        ]),
        answer: Answer::Computed(needs_compiler),
    },
    Rule {
        key: "pip-conflict",
        pattern: Pattern::Line(&[
            "ERROR: ResolutionImpossible",
            "because these package versions have conflicting dependencies",
        ]),
        answer: Answer::Fixed {
            cause: "The requirements contradict each other: no set of versions satisfies all of them.",
            advice: &[
                "The lines above 'ResolutionImpossible' name the packages: give one of them a wider range, or none.",
                "'pip install --dry-run -r requirements.txt' finds this without a job.",
            ],
        },
    },
    Rule {
        key: "pip-no-version",
        pattern: Pattern::Line(&[
            "No matching distribution found for ",
            "Could not find a version that satisfies the requirement ",
        ]),
        answer: Answer::Computed(no_version),
    },
    Rule {
        key: "pip-requirements-missing",
        pattern: Pattern::Line(&["ERROR: Could not open requirements file: "]),
        answer: Answer::Computed(|found, facts| {
            let file =
                found.line.split_once("No such file or directory: ").and_then(|(_, rest)| quoted(rest)).map(quotable);
            let file = file.unwrap_or_else(|| "the requirements file".to_owned());
            let mut advice = vec![
                "A relative path begins at the job's working directory: name the file with a variable, such as \
                 $AZ_BATCHAI_JOB_MOUNT_ROOT/SHARE/requirements.txt."
                    .to_owned(),
                "Or let 'corro submit --pip requirements.txt' send it and install from it.".to_owned(),
            ];
            if let Some(found) = facts.project.and_then(|project| project.find_file(&file)) {
                advice.insert(0, format!("The job's files have {}.", quotable(found)));
            }
            Some(Finding { cause: format!("pip cannot open {file}."), advice })
        }),
    },
    Rule {
        key: "pip-externally-managed",
        pattern: Pattern::Line(&["error: externally-managed-environment"]),
        answer: Answer::Fixed {
            cause: "This Python belongs to the system, which lets pip install nothing into it.",
            advice: &[
                "Let the job have its own environment: 'corro submit --pip PACKAGE', or pythonEnvironment.requirementsFile in \
                 the job file.",
                "A job preparation has one too, if the node has the package python3-venv ('apt install python3-venv' as root).",
            ],
        },
    },
    Rule {
        key: "pip-build-failed",
        pattern: Pattern::Line(&[
            "error: subprocess-exited-with-error",
            "ERROR: Failed building wheel for ",
            "error: metadata-generation-failed",
        ]),
        answer: Answer::Computed(|found, _| {
            let package = found
                .line
                .split_once("Failed building wheel for ")
                .map(|(_, name)| format!(" {}", quotable(name.trim())));
            Some(Finding::new(
                format!("pip could not build the package{} from its source.", package.unwrap_or_default()),
                [
                    "Choose a version that has a wheel for the job's Python: 'pip download --only-binary :all: PACKAGE' shows \
                     whether there is one."
                        .to_owned(),
                    "Or use a container image that has the package (containerSettings).".to_owned(),
                ],
            ))
        }),
    },
    Rule {
        key: "conda-failed",
        pattern: Pattern::Line(&[
            "PackagesNotFoundError:",
            "ResolvePackageNotFound:",
            "LibMambaUnsatisfiableError:",
            "UnsatisfiableError:",
        ]),
        answer: Answer::Fixed {
            cause: "conda finds no set of packages that satisfies the environment file.",
            advice: &[
                "Check the names and the channels: many packages are in the channel conda-forge.",
                "A file of another platform has builds that do not exist here: write it with 'conda env export --from-history'.",
            ],
        },
    },
    Rule {
        key: "conda-failed",
        pattern: Pattern::Line(&[
            "Your shell has not been properly configured to use 'conda activate'",
            "CondaError: Run 'conda init' before",
        ]),
        answer: Answer::Fixed {
            cause: "The shell of the job is not set up for 'conda activate'.",
            advice: &[
                "Use 'conda run -n NAME python train.py', or name the environment's Python: …/envs/NAME/bin/python.",
                "Or let the job make the environment: 'corro submit --conda-file environment.yml'.",
            ],
        },
    },
    Rule {
        key: "apt-without-root",
        pattern: Pattern::Line(&[
            "E: Could not open lock file /var/lib/",
            "E: Unable to acquire the dpkg frontend lock",
            "dpkg: error: requested operation requires superuser privilege",
            "are you root?",
            "sudo: a password is required",
            "sudo: a terminal is required to read the password",
            "sudo: The \"no new privileges\" flag is set",
            "is not in the sudoers file",
        ]),
        answer: Answer::Fixed {
            cause: "The command needs root, and jobs run without it.",
            advice: &[
                "Run the job in a container, where it is root: 'corro submit --image IMAGE', or containerSettings in the job file.",
                "Or ask the operator to install the package on the nodes' machines; Python packages need no root ('pip install').",
            ],
        },
    },
    Rule {
        key: "git-access-denied",
        pattern: Pattern::Line(&[
            "fatal: could not read Username for ",
            "fatal: could not read Password for ",
            "fatal: Authentication failed for ",
            "Permission denied (publickey",
            "Host key verification failed.",
            "fatal: Could not read from remote repository.",
        ]),
        answer: Answer::Fixed {
            cause: "git or ssh could not log in to the other machine: a job has no keys and no passwords of yours.",
            advice: &[
                "Give the job a token as a secret ('corro submit --secret GIT_TOKEN', or secrets in the job file) and clone \
                 'https://oauth2:$GIT_TOKEN@HOST/REPOSITORY'.",
                "Or send the files with the job: 'corro submit' sends the project's directory.",
            ],
        },
    },
    Rule {
        key: "git-failed",
        pattern: Pattern::Line(&["fatal: detected dubious ownership in repository at"]),
        answer: Answer::Fixed {
            cause: "git refuses a repository that belongs to another user, as on a mounted share.",
            advice: &["Allow it in the command line: 'git config --global --add safe.directory \"*\"'."],
        },
    },
];

fn unreachable_index(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let output = &found.failure.output;
    let mut lines = output.error_lines().map(|index| output.lines()[index]);
    let package = lines.find_map(|line| line.split_once("No matching distribution found for "));
    let package = package.and_then(|(_, rest)| rest.split_whitespace().next());
    // Other programs than pip print such lines as well. An index has its packages below /simple/.
    if package.is_none() && !output.lines().iter().any(|line| line.contains("/simple/")) {
        return None;
    }
    let wheels =
        package.map_or_else(|| "the wheels".to_owned(), |package| format!("the wheels of {}", quotable(package)));
    let other = match facts.is_in_container() {
        true => "Or use an image that has the packages.",
        false => "Or let the operator set https_proxy for the agent, if the network is reached through a proxy.",
    };
    Some(Finding::new(
        "The node cannot reach the package index.",
        [
            format!(
                "Put {wheels} into a directory of the server's machine and let its operator offer them with 'corro up \
                 --wheels DIR'."
            ),
            other.to_owned(),
        ],
    ))
}

fn needs_compiler(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let is_header = found.line.contains("Python.h");
    let package = if is_header { "python3-dev" } else { "build-essential" };
    let or_image = match facts.is_in_container() {
        true => format!(
            "Install '{package}' first: 'apt-get update && apt-get install -y {package}' in jobPreparation.commandLine."
        ),
        false => format!(
            "Or ask the operator to install '{package}' on the nodes' machines, or use a container image with a compiler (containerSettings)."
        ),
    };
    Some(Finding::new(
        "pip had to compile a package, and the node lacks a working compiler or the headers for it.",
        [
            "Choose a version of the package that has a wheel for the job's Python; an older or newer Python may have one too.".to_owned(),
            or_image,
        ],
    ))
}

fn no_version(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let texts = ["No matching distribution found for ", "Could not find a version that satisfies the requirement "];
    let rest = texts.iter().find_map(|text| found.line.split_once(text)).map(|(_, rest)| rest)?;
    let package = quotable(rest.split_whitespace().next()?);
    let lines = found.failure.output.lines();
    if lines.iter().any(|line| line.contains("Ignored the following versions that require a different python version"))
    {
        return Some(Finding::new(
            format!("There is no version of {package} for the job's Python."),
            [
                match facts.interpreter_field() {
                    Some(field) => format!("Use another Python: name it in {field}, or use a container image with it (containerSettings)."),
                    None => "Use another Python: name it in the command line, or use a container image with it (containerSettings).".to_owned(),
                },
                "Or ask for another version of the package: a line above has those that exist.".to_owned(),
            ],
        ));
    }
    let versions =
        lines.iter().find_map(|line| line.split_once("(from versions: ")).and_then(|(_, rest)| rest.split(')').next());
    if let Some(versions) = versions.filter(|versions| *versions != "none") {
        let newest = versions.rsplit(", ").next().unwrap_or(versions);
        return Some(Finding::new(
            format!(
                "{package} does not exist in this version; the newest for the job's Python is {}.",
                quotable(newest)
            ),
            ["Correct the version in the requirements, or leave it out.".to_owned()],
        ));
    }
    Some(Finding::new(
        format!("pip found no package {package} for the job's Python and machine."),
        [
            "Check the name: it may differ from that of the module (scikit-learn for sklearn).".to_owned(),
            "A build for CUDA, such as torch==2.5.1+cu124, is in an index of its own: name it with --extra-index-url."
                .to_owned(),
            "On nodes without internet access the server's operator offers wheels: 'corro up --wheels DIR'.".to_owned(),
        ],
    ))
}
