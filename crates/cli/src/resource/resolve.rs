//! Decides which resource a short name means: an option fixes a name above it, a default fixes it too, and what is left must be unique. Pure: the
//! caller has fetched the resources of that name.

use corro_model::spelling::most_similar;

use crate::defaults::Source;
use crate::error::CliError;
use crate::resource::resource_ref::ResourceRef;

/// Resources that an error lists.
const MAX_LISTED: usize = 10;
/// Exit code of a command whose resource does not exist.
const NOT_FOUND: u8 = 3;

/// A name above the resource that is fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Parameter of the path: `group`, `workspace`, `experiment` or `account`.
    pub parameter: &'static str,
    pub value: String,
    /// Where a default was found; `None` for an option.
    pub source: Option<Source>,
}

impl Pin {
    pub fn fits(&self, target: &ResourceRef) -> bool {
        target.name(self.parameter).eq_ignore_ascii_case(&self.value)
    }

    /// The kind of name, the name and its source.
    pub fn text(&self) -> String {
        let kind = if self.parameter == "group" { "resource group" } else { self.parameter };
        let source = self.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
        format!("{kind} {}{source}", self.value)
    }
}

/// A name on the command line, and what is known about its place.
#[derive(Clone, Debug)]
pub struct NameQuery<'a> {
    /// Parameter of the path: `job`, `cluster`, `share`. Also the word for messages.
    pub kind: &'static str,
    pub name: &'a str,
    pub pins: Vec<Pin>,
    /// The experiment of the current directory's project. It decides between jobs of the same name.
    pub preferred_experiment: Option<&'a str>,
    /// The command that lists all resources of the kind.
    pub list_command: &'static str,
}

/// Why no resource was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// Several resources have the name.
    Ambiguous(Vec<ResourceRef>),
    /// Only resources outside of the pins have it.
    Elsewhere(Vec<ResourceRef>),
    Missing,
}

impl NameQuery<'_> {
    /// The resource that the name means.
    pub fn choose(&self, candidates: &[ResourceRef]) -> Result<ResourceRef, Unresolved> {
        let is_named = |target: &&ResourceRef| target.name(self.kind).eq_ignore_ascii_case(self.name);
        let named: Vec<&ResourceRef> = candidates.iter().filter(is_named).collect();
        let fits = |target: &&ResourceRef| self.pins.iter().all(|pin| pin.fits(target));
        let fitting: Vec<&ResourceRef> = named.iter().copied().filter(fits).collect();
        let owned = |targets: Vec<&ResourceRef>| targets.into_iter().cloned().collect();
        match fitting[..] {
            [only] => Ok(only.clone()),
            [] if named.is_empty() => Err(Unresolved::Missing),
            [] => Err(Unresolved::Elsewhere(owned(named))),
            _ => match fitting.iter().filter(|target| self.is_preferred(target)).collect::<Vec<_>>()[..] {
                [only] => Ok((*only).clone()),
                _ => Err(Unresolved::Ambiguous(owned(fitting))),
            },
        }
    }

    fn is_preferred(&self, target: &ResourceRef) -> bool {
        self.preferred_experiment.is_some_and(|preferred| target.name("experiment").eq_ignore_ascii_case(preferred))
    }

    /// The error for the user. `existing` are names of resources that a misspelled one may mean.
    pub fn error<'b>(&self, unresolved: &Unresolved, existing: impl IntoIterator<Item = &'b str>) -> CliError {
        let NameQuery { kind, name, list_command, .. } = self;
        match unresolved {
            Unresolved::Ambiguous(targets) => {
                let message = format!("the name of the {kind} is not unique: there are {} named {name}", targets.len());
                CliError::usage(message).hint(format!("say which one:\n{}", self.lines(targets)))
            }
            Unresolved::Elsewhere(targets) => {
                let place = self.place();
                self.not_found(&place).hint(format!("elsewhere there is:\n{}", self.lines(targets)))
            }
            Unresolved::Missing => {
                let place = self.place();
                let hint = match most_similar(name, existing) {
                    Some(similar) => format!("did you mean {similar}? List all with '{list_command}'"),
                    None => format!("list all with '{list_command}'"),
                };
                self.not_found(&place).hint(hint)
            }
        }
    }

    fn not_found(&self, place: &str) -> CliError {
        CliError { exit: NOT_FOUND, ..CliError::new(format!("there is no {} {}{place}", self.kind, self.name)) }
    }

    /// ` in resource group g (from corro.toml), workspace w`.
    fn place(&self) -> String {
        let pins: Vec<String> = self.pins.iter().map(Pin::text).collect();
        if pins.is_empty() { String::new() } else { format!(" in {}", pins.join(", ")) }
    }

    /// One line for each resource: the arguments that name it.
    fn lines(&self, targets: &[ResourceRef]) -> String {
        let line = |target: &ResourceRef| format!("  {} {}", target.name(self.kind), target.parent_arguments());
        let mut lines: Vec<String> = targets.iter().take(MAX_LISTED).map(line).collect();
        if targets.len() > MAX_LISTED {
            lines.push(format!("  and {} more: '{}'", targets.len() - MAX_LISTED, self.list_command));
        }
        lines.join("\n")
    }
}

/// A job's name as it is written: `JOB`, `EXPERIMENT/JOB` or `WORKSPACE/EXPERIMENT/JOB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobName<'a> {
    pub job: &'a str,
    pub experiment: Option<&'a str>,
    pub workspace: Option<&'a str>,
}

impl<'a> JobName<'a> {
    pub fn parse(text: &'a str) -> Result<JobName<'a>, CliError> {
        let parts: Vec<&str> = text.split('/').collect();
        let (workspace, experiment, job) = match parts[..] {
            [job] => (None, None, job),
            [experiment, job] => (None, Some(experiment), job),
            [workspace, experiment, job] => (Some(workspace), Some(experiment), job),
            _ => (None, None, ""),
        };
        if parts.len() > 3 || parts.contains(&"") {
            return Err(CliError::usage(format!("'{text}' is not the name of a job"))
                .hint("write NAME, EXPERIMENT/NAME or WORKSPACE/EXPERIMENT/NAME"));
        }
        Ok(JobName { job, experiment, workspace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(place: &str) -> ResourceRef {
        let parts: Vec<&str> = place.split('/').collect();
        let names = ["group", "workspace", "experiment", "job"].into_iter().zip(parts);
        let names: Vec<_> = names.map(|(parameter, value)| (parameter, "", Some(value))).collect();
        ResourceRef::from_names(&names).expect("all names")
    }

    fn pin(parameter: &'static str, value: &str, is_default: bool) -> Pin {
        let source = is_default.then(|| Source::ProjectFile("/x/corro.toml".into()));
        Pin { parameter, value: value.to_owned(), source }
    }

    fn query<'a>(name: &'a str, pins: Vec<Pin>, preferred_experiment: Option<&'a str>) -> NameQuery<'a> {
        NameQuery { kind: "job", name, pins, preferred_experiment, list_command: "corro job list --all" }
    }

    /// The chosen job, or the error.
    fn check(query: &NameQuery<'_>, expected: Result<&str, (u8, &str, &str)>) {
        let jobs = ["g/w/cifar/train-1", "g/w/mnist/train-1", "g/v/cifar/train-2", "h/w/cifar/only"].map(job);
        let names: Vec<&str> = jobs.iter().map(|job| job.name("job")).collect();
        let chosen = query.choose(&jobs).map_err(|unresolved| {
            let error = query.error(&unresolved, names.iter().copied());
            (error.exit, error.message, error.hint.unwrap_or_default())
        });
        let place = |target: &ResourceRef| {
            ["group", "workspace", "experiment", "job"].map(|parameter| target.name(parameter)).join("/")
        };
        let expected = expected.map(str::to_owned);
        let expected = expected.map_err(|(exit, message, hint)| (exit, message.to_owned(), hint.to_owned()));
        assert_eq!(chosen.map(|target| place(&target)), expected);
    }

    #[test]
    fn a_unique_name_is_enough() {
        check(&query("only", vec![], None), Ok("h/w/cifar/only"));
        check(&query("ONLY", vec![], None), Ok("h/w/cifar/only"));
        check(&query("train-2", vec![pin("group", "G", false)], None), Ok("g/v/cifar/train-2"));
    }

    #[test]
    fn options_defaults_and_the_project_decide_between_equal_names() {
        check(&query("train-1", vec![pin("experiment", "mnist", false)], None), Ok("g/w/mnist/train-1"));
        check(&query("train-1", vec![pin("experiment", "cifar", true)], Some("mnist")), Ok("g/w/cifar/train-1"));
        check(&query("train-1", vec![], Some("mnist")), Ok("g/w/mnist/train-1"));
        let lines = "say which one:\n  train-1 -g g -w w -e cifar\n  train-1 -g g -w w -e mnist";
        let message = "the name of the job is not unique: there are 2 named train-1";
        check(&query("train-1", vec![], Some("other")), Err((2, message, lines)));
    }

    #[test]
    fn a_job_outside_of_the_pins_is_shown_but_not_taken() {
        check(
            &query("only", vec![pin("experiment", "mnist", false)], None),
            Err((3, "there is no job only in experiment mnist", "elsewhere there is:\n  only -g h -w w -e cifar")),
        );
        check(
            &query("only", vec![pin("group", "g", true)], None),
            Err((
                3,
                "there is no job only in resource group g (from /x/corro.toml)",
                "elsewhere there is:\n  only -g h -w w -e cifar",
            )),
        );
    }

    #[test]
    fn a_name_that_does_not_exist() {
        check(
            &query("trian-2", vec![pin("group", "g", false)], None),
            Err((
                3,
                "there is no job trian-2 in resource group g",
                "did you mean train-2? List all with 'corro job list --all'",
            )),
        );
        check(&query("x", vec![], None), Err((3, "there is no job x", "list all with 'corro job list --all'")));
    }

    #[test]
    fn job_names_may_have_an_experiment_and_a_workspace() {
        let parse = |text: &'static str| {
            JobName::parse(text).map(|name| (name.workspace, name.experiment, name.job)).map_err(|error| error.exit)
        };
        assert_eq!(parse("j"), Ok((None, None, "j")));
        assert_eq!(parse("e/j"), Ok((None, Some("e"), "j")));
        assert_eq!(parse("w/e/j"), Ok((Some("w"), Some("e"), "j")));
        for wrong in ["", "/j", "e/", "a/b/c/d", "w//j"] {
            assert_eq!(parse(wrong), Err(2), "{wrong}");
        }
    }
}
