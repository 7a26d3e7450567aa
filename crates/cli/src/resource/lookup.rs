//! Looks up names on the server for the short commands: fetches what has the name, and lets [`super::resolve`] decide. Reads only.

use corro_client::Client;
use corro_model::batchai::{Cluster, JobSummary, SearchResultKind, ShareSummary};
use corro_model::ops::{ClustersGet, ClustersListAll, JobsGet, JobsListAll, NoBody, Search, SharesListAll};

use crate::defaults::{DefaultName, Defaults};
use crate::error::CliError;
use crate::resource::resolve::{JobName, NameQuery, Pin};
use crate::resource::resource_ref::{CLUSTER_FLAG, JOB_FLAG, NameArg, ResourceRef};

/// Matches of one search request. The server sorts exact matches first.
const MAX_MATCHES: &str = "100";
/// Jobs of one page.
const PAGE_JOBS: &str = "1000";
/// Newest jobs whose names a misspelled one is compared with.
const MAX_COMPARED_JOBS: usize = 1000;
pub const JOB_LIST_COMMAND: &str = "corro job list --all";
pub const CLUSTER_LIST_COMMAND: &str = "corro cluster list --all";
pub const SHARE_LIST_COMMAND: &str = "corro share list";

/// The names above a resource that options or defaults fix.
pub fn pins(options: &[NameArg<'_>], defaults: &Defaults) -> Vec<Pin> {
    let pin = |(parameter, _, given): &NameArg<'_>| match given {
        Some(value) => Some(Pin { parameter, value: (*value).to_owned(), source: None }),
        None => {
            let (value, source) = defaults.name(default_of(parameter)?)?;
            Some(Pin { parameter, value: value.to_owned(), source: Some(source) })
        }
    };
    options.iter().filter_map(pin).collect()
}

fn default_of(parameter: &str) -> Option<DefaultName> {
    match parameter {
        "group" => Some(DefaultName::Group),
        "workspace" => Some(DefaultName::Workspace),
        "experiment" => Some(DefaultName::Experiment),
        "account" => Some(DefaultName::Account),
        _ => None,
    }
}

/// The job with this name. `options` are group, workspace and experiment. Names that are given in full need no request.
pub async fn find_job(
    client: &Client,
    defaults: &Defaults,
    text: &str,
    options: &[NameArg<'_>],
) -> Result<ResourceRef, CliError> {
    if text.starts_with("/subscriptions/") {
        return ResourceRef::from_id::<JobsGet>("NAME", text);
    }
    let name = JobName::parse(text)?;
    let options = with_names_in(&name, options)?;
    if options.iter().all(|(_, _, given)| given.is_some()) {
        return ResourceRef::from_names(&[&options[..], &[("job", JOB_FLAG, Some(name.job))]].concat());
    }
    let experiment = defaults.project_experiment();
    let query = NameQuery {
        kind: "job",
        name: name.job,
        pins: pins(&options, defaults),
        preferred_experiment: experiment.as_deref(),
        list_command: JOB_LIST_COMMAND,
    };
    let search = [("text", name.job), ("maxresults", MAX_MATCHES)];
    let matches = client.call::<Search>(&[], &search, &NoBody {}).await?.value;
    let jobs = matches.iter().filter(|found| found.kind == SearchResultKind::Job);
    let candidates: Vec<ResourceRef> =
        jobs.map(|found| ResourceRef::from_id::<JobsGet>("NAME", &found.id)).collect::<Result<_, _>>()?;
    match query.choose(&candidates) {
        Ok(target) => Ok(target),
        Err(unresolved) => {
            let existing = all_jobs(client, &JobFilter::default(), MAX_COMPARED_JOBS).await?.jobs;
            Err(query.error(&unresolved, existing.iter().map(|job| job.name.as_str())))
        }
    }
}

/// The options, with the names that the job's name has before its slashes.
fn with_names_in<'a>(name: &JobName<'a>, options: &[NameArg<'a>]) -> Result<Vec<NameArg<'a>>, CliError> {
    let combine = |(parameter, flag, given): &NameArg<'a>| {
        let own = match *parameter {
            "workspace" => name.workspace,
            "experiment" => name.experiment,
            _ => None,
        };
        match (own, *given) {
            (Some(own), Some(given)) if !own.eq_ignore_ascii_case(given) => Err(CliError::usage(format!(
                "the {parameter} is '{own}' in the name of the job, and '{given}' with {flag}"
            ))
            .hint("give it once")),
            (own, given) => Ok((*parameter, *flag, own.or(given))),
        }
    };
    options.iter().map(combine).collect()
}

/// The newest job of the project: in the experiment that options, defaults or the current directory name, else of all.
pub async fn find_newest_job(
    client: &Client,
    defaults: &Defaults,
    options: &[NameArg<'_>],
) -> Result<ResourceRef, CliError> {
    let pins = pins(options, defaults);
    let is_pinned = pins.iter().any(|pin| pin.parameter == "experiment");
    let project = defaults.project_experiment().filter(|_| !is_pinned);
    let of_project = project.map(|experiment| {
        let pin = Pin { parameter: "experiment", value: experiment, source: None };
        [&pins[..], &[pin]].concat()
    });
    for pins in of_project.into_iter().chain([pins]) {
        let filter = JobFilter { pins, ..JobFilter::default() };
        if let Some(job) = all_jobs(client, &filter, 1).await?.jobs.first() {
            return ResourceRef::from_id::<JobsGet>("NAME", &job.id);
        }
    }
    Err(CliError { exit: 3, ..CliError::new("there is no job yet") }
        .hint("submit one with 'corro submit SCRIPT', or look for others with 'corro job list --all'"))
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub pins: Vec<Pin>,
    /// States separated by commas; empty for all.
    pub states: String,
    /// Id of a cluster; empty for all.
    pub cluster: String,
}

impl JobFilter {
    fn fits(&self, job: &JobSummary) -> bool {
        let name = |parameter: &str| match parameter {
            "group" => job.resource_group.as_str(),
            "workspace" => &job.workspace,
            _ => &job.experiment,
        };
        self.pins.iter().all(|pin| name(pin.parameter).eq_ignore_ascii_case(&pin.value))
    }
}

/// Jobs, newest first.
#[derive(Debug, Default)]
pub struct JobsFound {
    pub jobs: Vec<JobSummary>,
    /// Whether there are older ones that fit.
    pub has_more: bool,
}

/// The newest `limit` jobs that fit.
pub async fn all_jobs(client: &Client, filter: &JobFilter, limit: usize) -> Result<JobsFound, CliError> {
    // The server filters by a part of the experiment's name, so that few pages are read where only one experiment is wanted.
    let experiment = filter.pins.iter().find(|pin| pin.parameter == "experiment");
    let text = experiment.map_or("", |pin| pin.value.as_str());
    let fixed = [("text", text), ("state", &filter.states), ("cluster", &filter.cluster), ("maxresults", PAGE_JOBS)];
    let mut found = JobsFound::default();
    let mut marker = String::new();
    loop {
        let mut query: Vec<(&str, &str)> = fixed.to_vec();
        if !marker.is_empty() {
            query.push(("marker", &marker));
        }
        let page = client.call::<JobsListAll>(&[], &query, &NoBody {}).await?;
        for job in page.value.into_iter().filter(|job| filter.fits(job)) {
            if found.jobs.len() == limit {
                return Ok(JobsFound { has_more: true, ..found });
            }
            found.jobs.push(job);
        }
        match page.next_link.as_deref().and_then(marker_of) {
            Some(next) => marker = next.to_owned(),
            None => return Ok(found),
        }
    }
}

/// The `marker` of a link to a next page.
fn marker_of(link: &str) -> Option<&str> {
    let (_, query) = link.split_once('?')?;
    query.split('&').find_map(|pair| pair.strip_prefix("marker="))
}

/// The cluster with this name, or without one the only cluster there is.
pub async fn find_cluster(
    client: &Client,
    defaults: &Defaults,
    name: Option<&str>,
    options: &[NameArg<'_>],
) -> Result<ResourceRef, CliError> {
    let name = defaults.or_given(name, DefaultName::Cluster);
    if let Some(name) = name.filter(|_| options.iter().all(|(_, _, given)| given.is_some())) {
        return ResourceRef::from_names(&[options, &[("cluster", CLUSTER_FLAG, Some(name))]].concat());
    }
    let clusters: Vec<Cluster> = client.list::<ClustersListAll, _>(&[], &[]).await?;
    let targets: Vec<ResourceRef> = clusters
        .iter()
        .map(|cluster| ResourceRef::from_id::<ClustersGet>("NAME", &cluster.id))
        .collect::<Result<_, _>>()?;
    choose("cluster", name, pins(options, defaults), &targets, CLUSTER_LIST_COMMAND)
}

/// The share with this name, or without one the only share there is. Parameters of the reference: `account`, `share`.
pub async fn find_share(
    client: &Client,
    defaults: &Defaults,
    name: Option<&str>,
    account: Option<&str>,
) -> Result<ResourceRef, CliError> {
    let name = defaults.or_given(name, DefaultName::Share);
    let options = [("account", "--account-name", account)];
    let share_ref = |account: &str, share: &str| {
        ResourceRef::from_names(&[("account", "--account-name", Some(account)), ("share", "SHARE", Some(share))])
    };
    if let (Some(account), Some(name)) = (account, name) {
        return share_ref(account, name);
    }
    let shares: Vec<ShareSummary> = client.list::<SharesListAll, _>(&[], &[]).await?;
    let targets: Vec<ResourceRef> =
        shares.iter().map(|share| share_ref(&share.account, &share.name)).collect::<Result<_, _>>()?;
    choose("share", name, pins(&options, defaults), &targets, SHARE_LIST_COMMAND)
}

/// The target with this name, or the only one that the pins leave.
fn choose(
    kind: &'static str,
    name: Option<&str>,
    pins: Vec<Pin>,
    targets: &[ResourceRef],
    list_command: &'static str,
) -> Result<ResourceRef, CliError> {
    let Some(name) = name else {
        let fitting: Vec<&ResourceRef> =
            targets.iter().filter(|target| pins.iter().all(|pin| pin.fits(target))).collect();
        return match fitting[..] {
            [only] => Ok(only.clone()),
            [] => Err(CliError { exit: 3, ..CliError::new(format!("there is no {kind}")) }
                .hint(format!("make one with 'corro {kind} create NAME'"))),
            _ => Err(CliError::usage(format!("the name of a {kind} is required: there are {}", fitting.len()))
                .hint(format!("list them with '{list_command}'"))),
        };
    };
    let query = NameQuery { kind, name, pins, preferred_experiment: None, list_command };
    let names = || targets.iter().map(|target| target.name(kind));
    query.choose(targets).map_err(|unresolved| query.error(&unresolved, names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_is_taken_from_the_link() {
        assert_eq!(marker_of("http://h/x?text=a&marker=12&maxresults=3"), Some("12"));
        assert_eq!(marker_of("http://h/x?text=a"), None);
        assert_eq!(marker_of("http://h/x"), None);
    }

    #[test]
    fn names_in_the_jobs_name_are_options() {
        let name = JobName::parse("w/e/j").expect("a name");
        let options = |workspace, experiment| {
            [("group", "-g", None), ("workspace", "-w", workspace), ("experiment", "-e", experiment)]
        };
        let combined = with_names_in(&name, &options(None, Some("E"))).expect("no conflict");
        assert_eq!(combined, [("group", "-g", None), ("workspace", "-w", Some("w")), ("experiment", "-e", Some("e"))]);
        let error = with_names_in(&name, &options(Some("other"), None)).expect_err("a conflict");
        assert_eq!(error.message, "the workspace is 'w' in the name of the job, and 'other' with -w");
    }

    #[test]
    fn without_a_name_the_only_resource_is_meant() {
        let share = |account: &str, share: &str| {
            ResourceRef::from_names(&[("account", "", Some(account)), ("share", "", Some(share))]).expect("names")
        };
        let check = |shares: &[ResourceRef], pins: Vec<Pin>, expected: Result<&str, (u8, &str)>| {
            let chosen = choose("share", None, pins, shares, SHARE_LIST_COMMAND);
            let chosen = chosen.as_ref().map(|target| target.name("account"));
            assert_eq!(chosen.map_err(|error| (error.exit, error.message.as_str())), expected);
        };
        let two = [share("a", "s"), share("b", "s")];
        let pin = Pin { parameter: "account", value: "b".to_owned(), source: None };
        check(&two[..1], vec![], Ok("a"));
        check(&two, vec![pin], Ok("b"));
        check(&two, vec![], Err((2, "the name of a share is required: there are 2")));
        check(&[], vec![], Err((3, "there is no share")));
    }
}
