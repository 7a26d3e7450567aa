//! Training curves of jobs, read on request from the nodes' curve files, or else from the logs. Each query continues
//! where the last one stopped and reads for a bounded time. The readers of the most recent jobs are cached in memory.

mod curve_reader;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use corro_metrics::query::CurveQuery;
use corro_model::ApiError;
use corro_model::batchai::STDOUTERR;
use corro_model::metrics::{CURVES, JobMetrics};
use corro_store::{JobRecord, State};

use crate::app::App;
use crate::app::jobs::output_files::output_tree;
use crate::app::resources::lookup::{JobPath, find_job};
use curve_reader::{CurveReader, OutputRoot, RootKind};

/// A reader takes a few kilobytes for a usual job, at most 12 MB.
const MAX_CACHED_JOBS: usize = 48;

/// Cache of curve readers, by job id. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct CurveReaders(Arc<Mutex<Cache>>);

#[derive(Default)]
struct Cache {
    /// With the sequence number of its last query.
    by_job: HashMap<String, (u64, Arc<Mutex<CurveReader>>)>,
    last_query: u64,
}

impl CurveReaders {
    fn get_or_create(&self, job: &str) -> Arc<Mutex<CurveReader>> {
        let mut cache = self.0.lock().expect("no one panics while holding the lock");
        cache.last_query += 1;
        let now = cache.last_query;
        if let Some((last_query, curve_reader)) = cache.by_job.get_mut(job) {
            *last_query = now;
            return curve_reader.clone();
        }
        if cache.by_job.len() >= MAX_CACHED_JOBS
            && let Some(oldest) =
                cache.by_job.iter().min_by_key(|(_, (last_query, _))| *last_query).map(|(job, _)| job.clone())
        {
            cache.by_job.remove(&oldest);
        }
        // A client that asks again after an eviction must notice that all points are sent again, so each reader has its
        // own generation.
        let curve_reader = Arc::new(Mutex::new(CurveReader::new(now ^ (u64::from(std::process::id()) << 32))));
        cache.by_job.insert(job.to_owned(), (now, curve_reader.clone()));
        curve_reader
    }
}

impl App {
    /// Blocking: reads files for a bounded time.
    pub fn job_metrics(&self, path: &JobPath, question: &CurveQuery) -> Result<JobMetrics, ApiError> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path)?;
        Ok(self.read_curves(&self.telemetry.training_curves, &snapshot, &job, question))
    }

    /// Reads what is new of a job's curves with the reader that `readers` has for it. Blocking: reads files for a bounded time.
    pub fn read_curves(
        &self,
        readers: &CurveReaders,
        snapshot: &State,
        job: &JobRecord,
        question: &CurveQuery,
    ) -> JobMetrics {
        let curve_reader = readers.get_or_create(&job.guid);
        let mut curve_reader = curve_reader.lock().unwrap_or_else(|poisoned| {
            // A panic left it half read: start over.
            let mut curve_reader = poisoned.into_inner();
            curve_reader.reset();
            curve_reader
        });
        let ids =
            std::iter::once(STDOUTERR).chain(job.spec.output_directories.iter().map(|directory| directory.id.as_str()));
        let roots = ids.flat_map(|id| {
            let Some(tree) = output_tree(snapshot, job, id) else { return Vec::new() };
            let root = |kind, inside: String| Some(OutputRoot { kind, share: self.open_tree(&tree).ok()?, inside });
            if id != STDOUTERR {
                return root(RootKind::Output, tree.inside.clone()).into_iter().collect();
            }
            // Curve files are beside the logs.
            let parent = tree.inside.rsplit_once('/').map_or_else(String::new, |(above, _)| format!("{above}/"));
            let curves = root(RootKind::Curves, format!("{parent}{CURVES}"));
            curves.into_iter().chain(root(RootKind::Logs, tree.inside.clone())).collect()
        });
        let ended = job.state().is_terminal();
        let is_shared_log = job.spec.process_count() > 1;
        let more = curve_reader.read_new(|| roots.collect(), is_shared_log, ended, self.now());
        let response = curve_reader.answer(question);
        JobMetrics { series: response.series, next: response.next, whole: response.whole, more, ended: ended && !more }
    }
}
