//! Rules for Python: the interpreter, modules and imports, syntax. Pure.

use super::facts::JobFacts;
use super::modules::{Origin, is_module, origin};
use super::rule::{Answer, Finding, Found, Pattern, Rule};
use super::text::{is_program_missing, quotable, quoted};
use crate::batchai::ScriptSettings;

pub const RULES: &[Rule] = &[
    Rule {
        key: "python-not-found",
        pattern: Pattern::LineWith(|line| is_program_missing(line, "python") || is_program_missing(line, "python3")),
        answer: Answer::Computed(missing_interpreter),
    },
    Rule {
        key: "python-venv-missing",
        pattern: Pattern::Line(&["No module named ensurepip", "because ensurepip is not available"]),
        answer: Answer::Fixed {
            cause: "The node's Python cannot make virtual environments with pip.",
            advice: &[
                "Install the package python3-venv on the node's machine ('apt install python3-venv' as root), then submit \
                 the job again.",
            ],
        },
    },
    Rule {
        key: "python-module-missing",
        pattern: Pattern::Line(&["No module named "]),
        answer: Answer::Computed(missing_module),
    },
    Rule {
        key: "horovod-not-built",
        pattern: Pattern::Raised(&["ImportError: Extension horovod."]),
        answer: Answer::Fixed {
            cause: "The installed Horovod was built without support for the framework that the script uses.",
            advice: &[
                "Use Corro's Horovod, whose one wheel serves every framework: let the server's operator offer it with \
                 'corro up --wheels DIR', and install it with 'pip install horovod' in the job's preparation.",
                "Or install the framework first and build Horovod after it: 'HOROVOD_WITH_PYTORCH=1 pip install --no-cache-dir horovod'.",
            ],
        },
    },
    Rule {
        key: "library-missing",
        pattern: Pattern::Raised(&[
            "libGL.so.1: cannot open shared object file",
            "libgthread-2.0.so.0: cannot open shared",
        ]),
        answer: Answer::Computed(|_, facts| {
            Some(Finding::new(
                "OpenCV needs a graphics library that the node does not have.",
                [format!(
                    "{} It needs no such library; remove opencv-python.",
                    facts.install("opencv-python-headless")
                )],
            ))
        }),
    },
    Rule {
        key: "python-package-incompatible",
        pattern: Pattern::Line(&[
            "A module that was compiled using NumPy 1.x cannot be run in",
            "numpy.core.multiarray failed to import",
            "numpy.dtype size changed, may indicate binary incompatibility",
        ]),
        answer: Answer::Computed(|_, facts| {
            Some(Finding::new(
                "A package was built for another version of NumPy than the one that is installed.",
                [
                    facts.install("'numpy<2'"),
                    "Or install a newer version of the package that the traceback names.".to_owned(),
                ],
            ))
        }),
    },
    Rule {
        key: "python-package-incompatible",
        pattern: Pattern::Raised(&["undefined symbol: ", "version `GLIBC_", "version `GLIBCXX_", "version `CXXABI_"]),
        answer: Answer::Computed(binary_incompatible),
    },
    Rule {
        key: "python-old-keras",
        pattern: Pattern::Raised(&[
            "module 'tensorflow' has no attribute 'ConfigProto'",
            "module 'tensorflow' has no attribute 'Session'",
            "module 'tensorflow' has no attribute 'placeholder'",
            "module 'tensorflow' has no attribute 'set_random_seed'",
            "has no attribute 'set_session'",
            "cannot import name 'set_session'",
            "module 'keras.optimizers' has no attribute '",
            "Argument(s) not recognized: {'lr'",
            "has no attribute 'fit_generator'",
        ]),
        answer: Answer::Computed(|_, facts| {
            Some(Finding::new(
                "The script uses names of TensorFlow 1 or of an old Keras, which the installed version does not have.",
                [facts.set_variable("CORRO_COMPAT", "keras-2018"), "Or change the script to the new names.".to_owned()],
            ))
        }),
    },
    Rule {
        key: "python-import-failed",
        pattern: Pattern::Raised(&["ImportError: cannot import name "]),
        answer: Answer::Computed(import_failed),
    },
    Rule {
        key: "python-syntax",
        pattern: Pattern::Raised(&["SyntaxError: ", "IndentationError: ", "TabError: "]),
        answer: Answer::Computed(syntax_error),
    },
    Rule {
        key: "python-too-old",
        pattern: Pattern::Raised(&[
            "TypeError: 'type' object is not subscriptable",
            "TypeError: 'ABCMeta' object is not subscriptable",
            "TypeError: unsupported operand type(s) for |: 'type' and '",
            "TypeError: unsupported operand type(s) for |: '_GenericAlias' and '",
        ]),
        answer: Answer::Computed(|_, facts| {
            Some(Finding::new(
                "The script uses type annotations that the job's Python is too old for: list[int] needs Python 3.9, int | \
                 None needs 3.10.",
                [newer_python(facts), "Or begin the file with 'from __future__ import annotations'.".to_owned()],
            ))
        }),
    },
];

fn missing_interpreter(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let is_missing = |program: &str| {
        let output = &found.failure.output;
        output.error_lines().any(|index| is_program_missing(output.lines()[index], program))
    };
    let (python, python3) = (is_missing("python"), is_missing("python3"));
    // A toolkit's command takes `python3` if there is no `python`.
    let is_looked_up = !facts.is_preparation && looks_interpreter_up(facts);
    let missing = match (python, python3) {
        (true, true) => "neither 'python' nor 'python3'",
        (true, false) if is_looked_up => "neither 'python' nor 'python3'",
        (true, false) => {
            let advice = format!("Name 'python3' in {} and submit the job again.", facts.command_field());
            return Some(Finding::new("The node has no program 'python'.", [advice]));
        }
        (false, true) => "no program 'python3'",
        (false, false) => return None,
    };
    let install = "Install Python 3 on the node's machine, or use a container image with Python (containerSettings); then \
                   submit the job again.";
    let interpreter = match facts.interpreter_field() {
        Some(field) => format!("Or name an interpreter on a mounted share in {field}."),
        None => "Or name an interpreter on a mounted share in the command line.".to_owned(),
    };
    Some(Finding::new(format!("The node has {missing} in its PATH."), [install.to_owned(), interpreter]))
}

/// Whether the job runs a script with the interpreter that is found on the node.
fn looks_interpreter_up(facts: &JobFacts<'_>) -> bool {
    let spec = facts.spec;
    let script = |settings: &ScriptSettings| settings.python_interpreter_path.is_none();
    spec.horovod_settings.as_ref().is_some_and(script)
        || spec.chainer_settings.as_ref().is_some_and(script)
        || spec.py_torch_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec.tensor_flow_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec.caffe2_settings.as_ref().is_some_and(|s| s.python_interpreter_path.is_none())
        || spec
            .cntk_settings
            .as_ref()
            .is_some_and(|s| s.python_script_file_path.is_some() && s.python_interpreter_path.is_none())
        || spec
            .caffe_settings
            .as_ref()
            .is_some_and(|s| s.python_script_file_path.is_some() && s.python_interpreter_path.is_none())
}

/// Name in a `No module named …` error. Python 2 and `python -m` write it without quotes.
fn module_in(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("No module named ")?;
    let name = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split('\'').next()?,
        None => rest.split_whitespace().next()?.trim_end_matches(';'),
    };
    (before.ends_with(": ") && is_module(name)).then_some(name)
}

fn missing_module(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let module = module_in(found.line)?;
    let package = module.split('.').next().unwrap_or(module);
    if found.line.contains("is not a package") {
        return Some(Finding::new(
            format!(
                "Python looked for '{module}' in a file {package}.py of your own, which hides the package '{package}'."
            ),
            [format!("Rename your file {package}.py, or move it out of the directory of the script.")],
        ));
    }
    let own = facts.project.and_then(|project| project.find_module(package));
    if package != module {
        return Some(if own.is_some() {
            missing_own_part(module, package)
        } else {
            missing_part(module, package, facts)
        });
    }
    if let Some((file, directory)) = own {
        return Some(own_module(module, file, directory, facts));
    }
    let cause = format!("Python found no module '{module}'.");
    let own = "If it is a file of your own, put it beside the script, or set PYTHONPATH to its directory in \
               environmentVariables ('corro submit --env PYTHONPATH=DIR').";
    let advice = match origin(module) {
        Origin::Package("horovod") => {
            let offered = "The server's operator can offer Corro's Horovod to all jobs with 'corro up --wheels DIR'.";
            vec![facts.install("horovod"), offered.to_owned()]
        }
        Origin::Package("jax") if facts.size().is_some_and(|size| size.gpus > 0) => {
            vec![facts.install("'jax[cuda12]'"), interpreter_advice(facts)]
        }
        Origin::Package(name @ ("torch" | "tensorflow" | "jax" | "keras")) => {
            vec![facts.install(name), interpreter_advice(facts)]
        }
        Origin::Package(name) => vec![facts.install(name), interpreter_advice(facts), own.to_owned()],
        Origin::Project(project) => {
            vec![format!("'pip install {module}' does not install it: the project {project} on GitHub says how.")]
        },
        Origin::Python2 => vec![
            "The script is written for Python 2: convert it ('2to3 -w SCRIPT' of Python 3.12 or older), or name a Python 2 \
             in the job file."
                .to_owned(),
        ],
        Origin::Python(Some(package)) => {
            vec![format!("It belongs to Python itself: install '{package}' on the node's machine ('apt install {package}' as root).")]
        }
        Origin::Python(None) => vec![format!(
            "It belongs to Python itself, which was built without it: use another Python. {}",
            interpreter_advice(facts)
        )],
    };
    Some(Finding { cause, advice })
}

/// A module that is a file of the project, in a directory where Python does not look.
fn own_module(module: &str, file: &str, directory: &str, facts: &JobFacts<'_>) -> Finding {
    let place = facts.project.map_or_else(String::new, |project| project.path_of(directory));
    let relative = if directory.is_empty() { "." } else { directory };
    Finding::new(
        format!("Python found no module '{module}': {file} of the job's files is not in the directory of the script."),
        [
            format!(
                "Let Python look there: 'corro submit --env PYTHONPATH={relative}', or {{\"name\": \"PYTHONPATH\", \
                 \"value\": \"{place}\"}} in environmentVariables of the job file."
            ),
            format!("Or start it as a module ('python3 -m …') in that directory: \"workingDirectory\": \"{place}\"."),
        ],
    )
}

/// A package of the project that lacks a file.
fn missing_own_part(module: &str, package: &str) -> Finding {
    Finding::new(
        format!("Your own package '{package}' has no module '{module}' among the job's files."),
        ["Check the import, and that the file is on the share: 'corro submit' leaves out what .gitignore and .corroignore \
          exclude."
            .to_owned()],
    )
}

/// A package that is installed and lacks a part: its version is not the one that the script was written for.
fn missing_part(module: &str, package: &str, facts: &JobFacts<'_>) -> Finding {
    let cause = format!(
        "The installed package '{package}' has no module '{module}': the script expects another version of it."
    );
    if matches!(package, "keras" | "tensorflow") {
        return Finding::new(
            cause,
            [compatibility_layer(facts), "Or change the import to what the installed version has.".to_owned()],
        );
    }
    Finding::new(
        cause,
        [
            format!(
                "Install the version that the script was written for, such as 'corro submit --pip {package}==VERSION'."
            ),
            "Or change the import to what the installed version has.".to_owned(),
        ],
    )
}

fn interpreter_advice(facts: &JobFacts<'_>) -> String {
    match facts.interpreter_field() {
        Some(field) => format!("If another Python of the nodes has it, name that Python in {field}."),
        None => "If another Python of the nodes has it, name that Python in the command line.".to_owned(),
    }
}

fn newer_python(facts: &JobFacts<'_>) -> String {
    match facts.interpreter_field() {
        Some(field) => {
            format!("Name a newer Python in {field}, or use a container image with one (containerSettings).")
        }
        None => {
            "Name a newer Python in the command line, or use a container image with one (containerSettings).".to_owned()
        }
    }
}

fn binary_incompatible(found: &Found<'_>, _: &JobFacts<'_>) -> Option<Finding> {
    let is_system = found.line.contains("version `");
    let cause = match is_system {
        true => "A package was built for a newer Linux than the node's.",
        false => "Two packages do not fit together: one was built for another version of the other.",
    };
    let advice = match is_system {
        true => {
            "Install the package in the job, so that pip chooses one for the node (jobPreparation or 'corro submit --pip'), \
                 or use a container image with a newer system (containerSettings)."
        }
        false => {
            "Install both in versions that belong together, in one command, such as 'pip install torch==2.5.1 \
                  torchvision==0.20.1'; rebuild extensions of your own."
        }
    };
    Some(Finding::new(cause, [advice.to_owned()]))
}

fn import_failed(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let name = found.line.split_once("cannot import name ").and_then(|(_, rest)| quoted(rest)).map(quotable)?;
    let circular = "' from partially initialized module '";
    let module = found.line.split_once("' from '").or_else(|| found.line.split_once(circular));
    let module = module.and_then(|(_, rest)| rest.split('\'').next()).filter(|name| is_module(name));
    let subject = module.map_or_else(|| "The module".to_owned(), |module| format!("'{module}'"));
    if found.line.contains("circular import") || found.line.contains(circular) {
        return Some(Finding::new(
            format!(
                "{subject} was imported while it was being loaded: files import each other in a circle, or one of your files \
                 has the name of a package."
            ),
            [
                "If the file at the end of the message has the name of a package, rename it.".to_owned(),
                "Otherwise move the import into the function that needs it.".to_owned(),
            ],
        ));
    }
    let cause =
        format!("{subject} has no '{name}': the installed version is not the one that the script was written for.");
    let own = "If the path at the end of the message is one of your own files, rename that file.".to_owned();
    Some(match module.and_then(|module| module.split('.').next()) {
        Some("keras" | "tensorflow") => Finding::new(cause, [compatibility_layer(facts)]),
        Some(package) => Finding::new(
            cause,
            [format!("Install the version that the script needs: 'corro submit --pip {package}==VERSION'."), own],
        ),
        None => Finding::new(cause, [own]),
    })
}

/// Advice to run a script of 2018.
fn compatibility_layer(facts: &JobFacts<'_>) -> String {
    let set = facts.set_variable("CORRO_COMPAT", "keras-2018");
    format!("If the script is of 2018, {}", set.replacen("Set", "set", 1))
}

fn syntax_error(found: &Found<'_>, facts: &JobFacts<'_>) -> Option<Finding> {
    let file = found.index.and_then(|index| found.failure.output.innermost_file(index));
    let file = file.map_or_else(|| "The script".to_owned(), quotable);
    if found.line.contains("Missing parentheses in call to 'print'")
        || found.line.contains("Missing parentheses in call to 'exec'")
    {
        return Some(Finding::new(
            format!("{file} is written for Python 2, and the job runs Python 3."),
            [
                "Convert it: '2to3 -w SCRIPT' (a program of Python 3.12 and older).".to_owned(),
                "Or name a Python 2 in the job file, if the nodes have one.".to_owned(),
            ],
        ));
    }
    if found.line.starts_with("TabError: ") {
        return Some(Finding::new(
            format!("{file} mixes tabs and spaces in its indentation."),
            ["Replace the tabs by spaces: 'expand -t 4 SCRIPT'.".to_owned()],
        ));
    }
    if found.line.starts_with("IndentationError: ") {
        let advice =
            "Correct the line that the last lines show. 'python3 -m py_compile SCRIPT' checks a file without a job.";
        return Some(Finding::new(format!("The indentation of {file} is wrong."), [advice.to_owned()]));
    }
    Some(Finding::new(
        format!("Python cannot read {file}: it has a mistake, or needs a newer Python than the job's."),
        [
            "Correct the line that the last lines show. 'python3 -m py_compile SCRIPT' checks a file without a job."
                .to_owned(),
            newer_python(facts),
        ],
    ))
}
