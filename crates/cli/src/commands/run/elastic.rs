//! Options of `corro run` for trainings that grow and shrink, named as in `horovodrun`, and the messages about their changes. The launch crate runs them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use corro_elastic::{OnFailure, Settings};
use corro_launch::elastic_gang::{self, Discovery, ElasticSpec, Outcome};
use corro_launch::exit::Exit;
use corro_launch::gang::{self, GangSpec};
use corro_launch::process::Launcher;
use corro_launch::rank_assignment::Host;

use super::{ensure_local, hostname, parse_rank_count, root_cause};
use crate::stdio::note;
use crate::terminal_filter::FilteredWriter;

#[derive(Debug, clap::Args)]
pub struct ElasticArgs {
    /// Grow and shrink: go on while at least N processes are left. A process that fails is started again, or its host is left out if
    /// there is a discovery script
    #[arg(long = "min-np", alias = "min-num-proc", value_name = "N", value_parser = parse_rank_count, help_heading = HEADING)]
    min_np: Option<usize>,

    /// Start at most N processes [default: -np, or one for each slot]
    #[arg(long = "max-np", alias = "max-num-proc", value_name = "N", value_parser = parse_rank_count, help_heading = HEADING)]
    max_np: Option<usize>,

    /// Script that prints the hosts there are now, one per line: HOST or HOST:SLOTS. Called every second
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "hostfile"], help_heading = HEADING)]
    host_discovery_script: Option<String>,

    /// Slots of hosts that the discovery script prints without a number
    #[arg(long, value_name = "N", value_parser = parse_rank_count, requires = "host_discovery_script", help_heading = HEADING)]
    slots_per_host: Option<usize>,

    /// Seconds for which processes wait until there are enough [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, help_heading = HEADING)]
    elastic_timeout: Option<Duration>,

    /// End with a failure after N changes that failures or hosts have caused [default: no limit]
    #[arg(long, value_name = "N", help_heading = HEADING)]
    reset_limit: Option<u32>,

    /// Use a host with a failure again after MIN seconds, then after twice as many, up to MAX [default: never]
    #[arg(long, num_args = 2, value_names = ["MIN", "MAX"], value_parser = parse_seconds, requires = "host_discovery_script", help_heading = HEADING)]
    blacklist_cooldown_range: Option<Vec<Duration>>,
}

const HEADING: &str = "Trainings that grow and shrink";

/// Upstream's default of `--elastic-timeout`.
const ELASTIC_TIMEOUT: Duration = Duration::from_secs(600);

const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);

/// An elastic training as the options describe it.
pub struct ElasticPlan {
    settings: Settings,
    discovery: Option<Discovery>,
    /// Without a discovery script.
    pub hosts: Vec<Host>,
}

impl ElasticArgs {
    /// `None` for a training of fixed size, as in upstream's launcher. `listed`: hosts of other options.
    pub fn plan(&self, listed: Option<&[Host]>, num_proc: Option<usize>) -> Result<Option<ElasticPlan>> {
        if self.min_np.is_none() && self.host_discovery_script.is_none() {
            let given = [
                ("--max-np", self.max_np.is_some()),
                ("--elastic-timeout", self.elastic_timeout.is_some()),
                ("--reset-limit", self.reset_limit.is_some()),
            ];
            return match given.iter().find(|(_, is_given)| *is_given) {
                Some((option, _)) => bail!(
                    "{option} is for trainings that grow and shrink\n\n\
                     hint: give the smallest number of processes, too: --min-np 1"
                ),
                None => Ok(None),
            };
        }
        let Some(min) = self.min_np.or(num_proc) else {
            bail!("the smallest number of processes is missing\n\nhint: give it with --min-np")
        };
        let max = self.max_np.or(num_proc);
        let order = [("--min-np", Some(min)), ("-np", num_proc), ("--max-np", max)];
        let given: Vec<(&str, usize)> = order.into_iter().filter_map(|(name, n)| Some((name, n?))).collect();
        if let Some(pair) = given.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            let [(low, low_n), (high, high_n)] = [pair[0], pair[1]];
            bail!("{low} is {low_n} and {high} is {high_n}: {high} must be at least {low}");
        }
        let cooldown = match self.blacklist_cooldown_range.as_deref() {
            Some([lower, upper]) if lower > upper => bail!(
                "--blacklist-cooldown-range is {} {}: MAX must be at least MIN",
                lower.as_secs_f64(),
                upper.as_secs_f64()
            ),
            Some([lower, upper]) => Some((*lower, *upper)),
            _ => None,
        };
        let discovery = self.host_discovery_script.as_ref().map(|script| Discovery {
            script: script.clone(),
            default_slots: self.slots_per_host,
            interval: DISCOVERY_INTERVAL,
            check_host: check_local,
        });
        let hosts = match (&discovery, listed) {
            (Some(_), _) => Vec::new(),
            (None, Some(listed)) => listed.to_vec(),
            (None, None) => vec![Host { name: "localhost".into(), slots: max.unwrap_or(min) }],
        };
        let n_slots: usize = hosts.iter().map(|host| host.slots).sum();
        if discovery.is_none() && n_slots < min {
            bail!(
                "--min-np is {min}, and the hosts have {n_slots} slots\n\n\
                 hint: give the hosts more slots, or ask for at most {n_slots} with --min-np"
            );
        }
        let settings = Settings {
            min,
            max,
            elastic_timeout: self.elastic_timeout.unwrap_or(ELASTIC_TIMEOUT),
            reset_limit: self.reset_limit,
            cooldown,
            on_failure: if discovery.is_some() { OnFailure::ExcludeHost } else { OnFailure::RestartOnHost },
        };
        Ok(Some(ElasticPlan { settings, discovery, hosts }))
    }
}

impl ElasticPlan {
    /// Runs the training. Returns its exit code.
    pub async fn run(self, gang: GangSpec) -> Result<i32> {
        let stops = gang::stop_signals().context("cannot listen for Ctrl-C")?;
        let (out, err) = (FilteredWriter::new(std::io::stdout()), FilteredWriter::new(std::io::stderr()));
        let spec = ElasticSpec { gang, settings: self.settings, discovery: self.discovery };
        let report = |text: &str| note(format_args!("corro: {text}"));
        match elastic_gang::run(&Launcher::this_executable(), &spec, stops, out, err, &report).await? {
            Outcome::Succeeded => Ok(0),
            Outcome::Failed { reason, failures } => {
                let Some(failure) = root_cause(&failures) else { bail!("the training has ended: {reason}") };
                note(format_args!("corro: the training has ended: {reason}"));
                if !failure.stderr_tail.is_empty() {
                    note(format_args!("the last lines of rank {} on stderr:", failure.rank));
                    failure.stderr_tail.iter().for_each(|line| note(format_args!("    {line}")));
                }
                Ok(failure.exit.shell_code())
            }
            Outcome::Stopped(signal) => {
                note(format_args!("corro: stopped by {}; all ranks have ended", Exit::Signal(signal)));
                Ok(128 + signal)
            }
        }
    }
}

/// Why processes cannot be started on a host of the discovery script.
fn check_local(name: &str) -> Result<(), String> {
    let host = Host { name: name.to_owned(), slots: 1 };
    ensure_local(&[host], &hostname()).map_err(|error| error.to_string())
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|seconds| !seconds.is_zero()).ok_or_else(|| "give a number of seconds above 0".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[arg(long)]
        hosts: Option<String>,
        #[arg(long)]
        hostfile: Option<String>,
        #[command(flatten)]
        elastic: ElasticArgs,
    }

    /// Minimum, maximum, timeout, reset limit, hosts; or the first line of the error.
    fn check(options: &str, num_proc: Option<usize>, listed: Option<&[Host]>, expected: &str) {
        let parsed = Program::try_parse_from(std::iter::once("run").chain(options.split_whitespace()));
        let plan = match parsed {
            Ok(program) => program.elastic.plan(listed, num_proc),
            Err(error) => Err(error.into()),
        };
        let text = match plan {
            Ok(Some(ElasticPlan { settings, discovery, hosts })) => {
                let hosts: Vec<String> = hosts.iter().map(|host| format!("{}:{}", host.name, host.slots)).collect();
                let Settings { min, max, elastic_timeout, reset_limit, cooldown, .. } = settings;
                let script = discovery.map_or(String::new(), |discovery| discovery.script);
                format!("{min}-{max:?} {elastic_timeout:?} {reset_limit:?} {cooldown:?} {script}{}", hosts.join(","))
            }
            Ok(None) => "fixed".to_owned(),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        assert_eq!(text, expected, "{options}");
    }

    #[test]
    fn options_make_a_plan() {
        let two = [Host { name: "a".into(), slots: 1 }, Host { name: "b".into(), slots: 1 }];
        check("", Some(2), None, "fixed");
        check("--min-np 2 --max-np 4", None, None, "2-Some(4) 600s None None localhost:4");
        check("--min-num-proc 2 --max-num-proc 4", Some(3), None, "2-Some(4) 600s None None localhost:4");
        check("--min-np 2", None, None, "2-None 600s None None localhost:2");
        check(
            "--min-np 1 --elastic-timeout 0.5 --reset-limit 3",
            Some(2),
            Some(&two),
            "1-Some(2) 500ms Some(3) None a:1,b:1",
        );
        check("--host-discovery-script x --slots-per-host 2", Some(2), None, "2-Some(2) 600s None None x");
        check(
            "--min-np 1 --host-discovery-script x --blacklist-cooldown-range 1 20",
            None,
            None,
            "1-None 600s None Some((1s, 20s)) x",
        );
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let one = [Host { name: "a".into(), slots: 1 }];
        check("--max-np 2", Some(1), None, "--max-np is for trainings that grow and shrink");
        check("--reset-limit 2", Some(1), None, "--reset-limit is for trainings that grow and shrink");
        check(
            "--min-np 3 --max-np 2",
            None,
            None,
            "--min-np is 3 and --max-np is 2: --max-np must be at least --min-np",
        );
        check("--min-np 3", Some(2), None, "--min-np is 3 and -np is 2: -np must be at least --min-np");
        check("--min-np 1 --max-np 2", Some(3), None, "-np is 3 and --max-np is 2: --max-np must be at least -np");
        check("--host-discovery-script x", None, None, "the smallest number of processes is missing");
        check("--min-np 2", None, Some(&one), "--min-np is 2, and the hosts have 1 slots");
        let range = "--blacklist-cooldown-range is 5 1: MAX must be at least MIN";
        check("--min-np 1 --host-discovery-script x --blacklist-cooldown-range 5 1", None, None, range);
        let zero = "error: invalid value '0' for '--elastic-timeout <SECONDS>': give a number of seconds above 0";
        check("--min-np 1 --elastic-timeout 0", None, None, zero);
    }
}
