//! HTTP client for a site's server: one keep-alive connection with one token, as a long-running client uses it. Blocking, since
//! a benchmark does one thing at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use corro_client::Client;
use corro_model::batchai::{ClusterUpdateParameters, ClusterUpdateProperties, JobCreateParameters};
use corro_model::ops::{
    AccountsListKeys, ClustersGet, ClustersUpdate, GroupsList, JobsCreate, JobsGet, JobsList, JobsTerminate, NoBody,
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::fixture::{ACCOUNT, CLUSTER, EXPERIMENT, GROUP, WORKSPACE};
use crate::site::{Site, wait_for};

/// Poll interval: short against the measured times, long enough to leave the processor to the server.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub struct Api {
    runtime: Runtime,
    client: Client,
}

impl Api {
    pub fn connect(site: &Site) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&site.profile()?)?;
        Ok(Self { runtime, client })
    }

    /// Lists the resource groups: a cheap authorised request. The first request includes a login.
    pub fn list_groups(&self) -> Result<()> {
        self.runtime.block_on(self.client.list::<GroupsList, _>(&[], &[]))?;
        Ok(())
    }

    /// Returns when the server has acknowledged the job as queued. Returns the time just before the request.
    pub fn submit(&self, name: &str, job: &JobCreateParameters) -> Result<Instant> {
        let began = Instant::now();
        self.runtime.block_on(self.client.start::<JobsCreate>(&job_path(name), job))?;
        Ok(began)
    }

    /// Submits the job once under every name, `in_flight` at a time.
    pub fn submit_all(&self, names: &[String], job: &JobCreateParameters, in_flight: usize) -> Result<()> {
        let next = AtomicUsize::new(0);
        let submitter = || async {
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.client.start::<JobsCreate>(&job_path(name), job).await?;
            }
            anyhow::Ok(())
        };
        let submitters = futures_util::future::try_join_all((0..in_flight).map(|_| submitter()));
        self.runtime.block_on(submitters).map(|_| ())
    }

    /// Waits until all nodes are idle and this job, the last of many, has succeeded. Polls rarely and the cluster first:
    /// describing a job far back in a queue is expensive.
    pub fn wait_for_last_job(&self, name: &str, nodes: usize) -> Result<()> {
        let path = [("group", GROUP), ("workspace", WORKSPACE), ("cluster", CLUSTER)];
        wait_for(&format!("the end of {name}"), 4 * POLL_INTERVAL, || {
            let cluster = self.runtime.block_on(self.client.get::<ClustersGet>(&path))?;
            let properties: Value = serde_json::to_value(cluster.properties)?;
            if properties["nodeStateCounts"]["idleNodeCount"] != nodes {
                return Ok(None);
            }
            self.poll_success(name)
        })
    }

    /// Number of succeeded jobs with this name prefix; an error if one failed.
    pub fn count_succeeded(&self, prefix: &str) -> Result<usize> {
        let path = [("group", GROUP), ("workspace", WORKSPACE), ("experiment", EXPERIMENT)];
        let jobs = self.runtime.block_on(self.client.list::<JobsList, _>(&path, &[]))?;
        let mut count = 0;
        for job in jobs.iter().filter(|job| job.name.starts_with(prefix)) {
            let status = serde_json::to_value(&job.properties.status)?;
            match status["executionState"].as_str() {
                Some("succeeded") => count += 1,
                Some("failed") => bail!("{} failed: {}", job.name, status["executionInfo"]),
                _ => {}
            }
        }
        Ok(count)
    }

    /// Terminates a queued job, which ends at once.
    pub fn terminate(&self, name: &str) -> Result<()> {
        self.runtime.block_on(self.client.start::<JobsTerminate>(&job_path(name), &NoBody {}))?;
        Ok(())
    }

    pub fn count_jobs(&self) -> Result<usize> {
        let path = [("group", GROUP), ("workspace", WORKSPACE), ("experiment", EXPERIMENT)];
        Ok(self.runtime.block_on(self.client.list::<JobsList, _>(&path, &[]))?.len())
    }

    /// Waits until the job has succeeded.
    pub fn wait_for_success(&self, name: &str) -> Result<()> {
        wait_for(&format!("the end of {name}"), POLL_INTERVAL, || self.poll_success(name))
    }

    /// `None` while the job has not ended; an error if it failed.
    fn poll_success(&self, name: &str) -> Result<Option<()>> {
        let job = self.runtime.block_on(self.client.get::<JobsGet>(&job_path(name)))?;
        let status = serde_json::to_value(job.properties.status)?;
        match status["executionState"].as_str() {
            Some("succeeded") => Ok(Some(())),
            Some("failed") => bail!("{name} failed: {}", status["executionInfo"]),
            _ => Ok(None),
        }
    }

    pub fn wait_for_idle_nodes(&self, count: usize) -> Result<()> {
        wait_for(&format!("{count} idle nodes"), POLL_INTERVAL, || {
            let path = [("group", GROUP), ("workspace", WORKSPACE), ("cluster", CLUSTER)];
            let cluster = self.runtime.block_on(self.client.get::<ClustersGet>(&path))?;
            let properties: Value = serde_json::to_value(cluster.properties)?;
            let idle = properties["nodeStateCounts"]["idleNodeCount"] == count;
            Ok((idle && properties["allocationState"] == "steady").then_some(()))
        })
    }

    /// Changes the scale settings of the cluster.
    pub fn set_scale(&self, settings: Value) -> Result<()> {
        let path = [("group", GROUP), ("workspace", WORKSPACE), ("cluster", CLUSTER)];
        let scale_settings = Some(serde_json::from_value(settings)?);
        let body = ClusterUpdateParameters { properties: ClusterUpdateProperties { scale_settings } };
        self.runtime.block_on(self.client.call::<ClustersUpdate>(&path, &[], &body))?;
        Ok(())
    }

    /// Waits until all nodes are gone.
    pub fn wait_for_no_nodes(&self) -> Result<()> {
        let path = [("group", GROUP), ("workspace", WORKSPACE), ("cluster", CLUSTER)];
        wait_for("no nodes", POLL_INTERVAL, || {
            let cluster = self.runtime.block_on(self.client.get::<ClustersGet>(&path))?;
            Ok((cluster.properties.status.current_node_count == 0).then_some(()))
        })
    }

    pub fn account_key(&self) -> Result<String> {
        let path = [("group", GROUP), ("account", ACCOUNT)];
        let keys = self.runtime.block_on(self.client.call::<AccountsListKeys>(&path, &[], &NoBody {}))?;
        Ok(keys.keys.first().context("the account has no key")?.value.expose().to_owned())
    }

    pub fn subscription(&self) -> &str {
        self.client.subscription()
    }
}

fn job_path(name: &str) -> [(&str, &str); 4] {
    [("group", GROUP), ("workspace", WORKSPACE), ("experiment", EXPERIMENT), ("job", name)]
}
