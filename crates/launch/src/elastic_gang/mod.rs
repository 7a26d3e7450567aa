//! Runs the processes of an elastic training on this machine, for `corro run --min-np`. Carries out what `corro_elastic::Driver` decides: starts, restarts and
//! ends processes, answers them at the rendezvous server, and asks the discovery script. Prints nothing itself.

mod discovery;
mod processes;

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use corro_elastic::{Action, Driver, ProcessId, Settings};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

pub use self::discovery::Discovery;
use self::discovery::Listing;
use self::processes::{Ended, ProcessEvent, Processes};
use crate::environment::{GangContext, for_rank};
use crate::exit::Exit;
use crate::gang::ranks::Consoles;
use crate::gang::{Failure, GangError, GangSpec, free_port, secret};
use crate::process::Launcher;
use crate::rank_assignment::{Host, RankAssignment, assign_ranks, first_slots};
use crate::rendezvous::{ElasticScope, Rendezvous};

/// An elastic training.
#[derive(Debug)]
pub struct ElasticSpec {
    /// Command and output. Its hosts are fixed; with a discovery script they are not used.
    pub gang: GangSpec,
    pub settings: Settings,
    pub discovery: Option<Discovery>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    /// The driver's reason, and the processes that failed in the last generation.
    Failed {
        reason: String,
        failures: Vec<Failure>,
    },
    /// Stopped from outside by this signal.
    Stopped(i32),
}

/// Why the processes are ending.
#[derive(Debug)]
enum Ending {
    Finished(corro_elastic::Outcome),
    Stopped(i32),
    /// The stream for the output was closed.
    OutputClosed,
}

struct ElasticGang<'a> {
    launcher: &'a Launcher,
    spec: &'a ElasticSpec,
    rendezvous: Rendezvous,
    context: GangContext,
    /// Unique per run, so that cleanup after a crash finds only the processes of this run.
    tag: String,
    driver: Driver,
    started: Instant,
    hosts: Vec<Host>,
    processes: Processes,
    /// Processes that failed since the last generation began.
    failures: Vec<Ended>,
    ending: Option<Ending>,
    report: &'a dyn Fn(&str),
}

/// Runs the training to its end. `report` gets a line for each change of size, with its reason. A first message in `stops` asks the
/// processes to end, a second one kills them.
pub async fn run(
    launcher: &Launcher,
    spec: &ElasticSpec,
    mut stops: mpsc::Receiver<i32>,
    out: impl io::Write + Send + 'static,
    err: impl io::Write + Send + 'static,
    report: &dyn Fn(&str),
) -> Result<Outcome, GangError> {
    let rendezvous = Rendezvous::start_elastic((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let context = GangContext {
        rendezvous_addr: rendezvous.addr().ip().to_string(),
        rendezvous_port: rendezvous.addr().port(),
        iface: Some("lo".into()),
        master_addr: "127.0.0.1".into(),
        master_port: free_port().map_err(GangError::Port)?,
        secret: secret().map_err(GangError::Secret)?,
    };
    let tag = format!("run/{}/{}", std::process::id(), &context.secret[..8]);
    let seed = u64::from_str_radix(&context.secret[..16], 16).unwrap_or_default();
    let (hosts, mut listings) = match &spec.discovery {
        None => (spec.gang.hosts.clone(), None),
        Some(discovery) => {
            let finder = discovery.finder(launcher, &spec.gang, &tag);
            let first = tokio::select! {
                first = finder.list() => first,
                Some(signal) = stops.recv() => return Ok(Outcome::Stopped(signal)),
            };
            let hosts = first.map_err(|reason| GangError::Discovery { script: discovery.script.clone(), reason })?;
            (hosts, Some(finder.watch()))
        }
    };
    let (processes, consoles) = Processes::open(spec, &hosts, out, err)?;
    let mut gang = ElasticGang {
        launcher,
        spec,
        rendezvous,
        context,
        tag,
        driver: Driver::new(spec.settings.clone(), seed),
        started: Instant::now(),
        hosts: Vec::new(),
        processes,
        failures: Vec::new(),
        ending: None,
        report,
    };
    gang.on_hosts(hosts).await?;
    gang.watch(&mut stops, &mut listings).await?;
    gang.conclude(consoles, stops).await
}

impl ElasticGang<'_> {
    /// Handles events until the training has ended and all its processes are gone.
    async fn watch(
        &mut self,
        stops: &mut mpsc::Receiver<i32>,
        listings: &mut Option<Listing>,
    ) -> Result<(), GangError> {
        while self.ending.is_none() || !self.processes.is_empty() {
            let is_ending = self.ending.is_some();
            let timer = self.driver.next_timer().map(|timer| self.started + timer);
            let scope = self.rendezvous.elastic().expect("the server is that of an elastic training");
            tokio::select! {
                event = self.processes.next_event(!is_ending) => match event {
                    ProcessEvent::Exit(process, exit) => {
                        let exit = exit.map_err(|source| GangError::WaitProcess { process, source })?;
                        self.on_exit(process, exit).await?;
                    }
                    ProcessEvent::OutputClosed => self.end(Ending::OutputClosed),
                },
                waiting = scope.next_waiting(), if !is_ending => {
                    for (process, after) in waiting {
                        let actions = self.driver.on_waiting(self.now(), process, after);
                        self.apply(actions).await?;
                    }
                }
                listed = next_listing(listings), if !is_ending => match listed {
                    Ok(hosts) => self.on_hosts(hosts).await?,
                    Err(reason) => self.report_discovery(&reason),
                },
                Some(signal) = stops.recv() => {
                    if is_ending {
                        self.processes.kill_all();
                    } else {
                        self.end(Ending::Stopped(signal));
                    }
                }
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() && !is_ending => {
                    let actions = self.driver.on_time(self.now());
                    self.apply(actions).await?;
                }
            }
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn on_hosts(&mut self, hosts: Vec<Host>) -> Result<(), GangError> {
        let listed: Vec<corro_elastic::Host> =
            hosts.iter().map(|host| corro_elastic::Host { name: host.name.clone(), slots: host.slots }).collect();
        self.hosts = hosts;
        let actions = self.driver.on_hosts(self.now(), &listed);
        self.apply(actions).await
    }

    async fn on_exit(&mut self, process: ProcessId, exit: Exit) -> Result<(), GangError> {
        let Some(mut ended) = self.processes.remove(process, exit) else { return Ok(()) };
        ended.rank_in_generation = self.rendezvous.report_process_end(process, &ended.host, exit);
        if !exit.success() {
            if !ended.was_stopped {
                (self.report)(&ended.describe());
            }
            self.failures.push(ended);
        }
        let actions = self.driver.on_exit(self.now(), process, exit.success());
        self.apply(actions).await
    }

    async fn apply(&mut self, actions: Vec<Action>) -> Result<(), GangError> {
        if self.ending.is_some() {
            return Ok(());
        }
        for action in actions {
            match action {
                Action::Start { process, host, slot } => self.start(process, host, slot).await?,
                Action::Begin { generation, members } => {
                    self.failures.clear();
                    self.rendezvous.begin_generation(generation, &members);
                }
                Action::Dismiss { process } => self.scope(|scope| scope.dismiss(process)),
                Action::Kill { process } => self.processes.terminate(process, self.spec.gang.grace),
                Action::Notify { generation, change } => self.scope(|scope| scope.notify(generation, change)),
                Action::Report { text } => (self.report)(&text),
                Action::Finish(outcome) => self.end(Ending::Finished(outcome)),
            }
        }
        Ok(())
    }

    async fn start(&mut self, process: ProcessId, host: String, slot: usize) -> Result<(), GangError> {
        let mut env = self.spec.gang.env.clone();
        env.extend(for_rank(&self.context, &self.assignment(&host, slot), &host));
        env.insert("HOROVOD_ELASTIC".to_owned(), "1".to_owned());
        env.insert("CORRO_ELASTIC_PROCESS".to_owned(), process.to_string());
        self.scope(|scope| scope.add_process(process));
        let tag = format!("{}/{process}", self.tag);
        self.processes.start(self.launcher, &self.spec.gang, process, host, slot, env, tag).await
    }

    fn report_discovery(&self, reason: &str) {
        let script = self.spec.discovery.as_ref().map_or("", |discovery| &discovery.script);
        (self.report)(&format!("the host discovery script {script} failed, and the hosts stay as they were: {reason}"));
    }

    /// The rank numbers that a start with the hosts known now would give, for scripts that read their environment before `init`.
    fn assignment(&self, host: &str, slot: usize) -> RankAssignment {
        let n_slots: usize = self.hosts.iter().map(|host| host.slots).sum();
        let size = n_slots.min(self.spec.settings.max.unwrap_or(usize::MAX)).max(1);
        let within_max = first_slots(&self.hosts, size).unwrap_or_default();
        let in_slot = |hosts: &[Host]| {
            let is_slot = |place: &RankAssignment| hosts[place.host_idx].name == host && place.local_rank == slot;
            assign_ranks(hosts).into_iter().find(is_slot)
        };
        // Beyond the maximum are slots that replace those of excluded hosts.
        let place = in_slot(&within_max).or_else(|| in_slot(&self.hosts));
        let place = place.unwrap_or(RankAssignment {
            rank: 0,
            size,
            local_rank: slot,
            local_size: slot + 1,
            cross_rank: 0,
            cross_size: 1,
            host_idx: 0,
        });
        RankAssignment { rank: place.rank.min(size - 1), size, ..place }
    }

    /// Ends all processes.
    fn end(&mut self, ending: Ending) {
        let reason = match &ending {
            Ending::Finished(corro_elastic::Outcome::Failed { reason }) => reason.clone(),
            Ending::Finished(corro_elastic::Outcome::Succeeded) => "the training is complete".to_owned(),
            Ending::Stopped(signal) => format!("the launcher was stopped by {}", Exit::Signal(*signal)),
            Ending::OutputClosed => "the launcher's output was closed".to_owned(),
        };
        self.scope(|scope| scope.finish(&reason));
        self.processes.terminate_all(self.spec.gang.grace);
        self.ending = Some(ending);
    }

    fn scope(&self, act: impl FnOnce(&ElasticScope)) {
        if let Some(scope) = self.rendezvous.elastic() {
            act(scope);
        }
    }

    /// Completes the output and decides the outcome, in the order of causes as for other gangs.
    async fn conclude(self, consoles: Consoles, mut stops: mpsc::Receiver<i32>) -> Result<Outcome, GangError> {
        let is_stopped = matches!(self.ending, Some(Ending::Stopped(_)));
        let finished = self.processes.finish_output(consoles);
        let output = match is_stopped {
            // A paused reader of the output may never resume, so after a stop the output is not waited for.
            true => timeout(Duration::from_secs(1), finished).await.ok(),
            false => tokio::select! {
                output = finished => Some(output),
                Some(_) = stops.recv() => None,
            },
        };
        let (failed_stream, failed_copy) = output.unwrap_or((None, None));
        if let Some(Ending::Stopped(signal)) = self.ending {
            return Ok(Outcome::Stopped(signal));
        }
        if let Some((stream, source)) = failed_stream {
            return Err(GangError::Show { stream, source });
        }
        let reason = match self.ending {
            Some(Ending::Finished(corro_elastic::Outcome::Succeeded)) => {
                return match failed_copy {
                    Some((path, source)) => Err(GangError::OutputFile { path, source }),
                    None => Ok(Outcome::Succeeded),
                };
            }
            Some(Ending::Finished(corro_elastic::Outcome::Failed { reason })) => reason,
            _ => "the reader of the output closed it".to_owned(),
        };
        let failures = self.failures.into_iter().map(Ended::into_failure).collect();
        Ok(Outcome::Failed { reason, failures })
    }
}

/// The next change of the hosts; never without a discovery script.
async fn next_listing(listings: &mut Option<Listing>) -> Result<Vec<Host>, String> {
    match listings {
        Some(listings) => listings.next().await,
        None => std::future::pending().await,
    }
}
