//! The curves of jobs. What nodes wrote down of them, or else the logs, is read when somebody asks, from where the last reading ended and for no longer than a moment; nothing
//! is read while nobody looks. What was read is kept in memory for the jobs that were asked for last.

mod tracker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use corro_metrics::query::CurveQuery;
use corro_model::ApiError;
use corro_model::batchai::STDOUTERR;
use corro_model::metrics::{CURVES, JobMetrics};

use crate::app::App;
use crate::app::jobs::output_files::output_tree;
use crate::app::resources::lookup::{JobPath, find_job};
use tracker::{Kind, Root, Tracker};

/// A tracker has a few kilobytes for a usual job and 12 MB at most.
const MOST_JOBS: usize = 48;

/// What was read of the jobs that were asked for last, by their ids. Cheap to clone; clones share everything.
#[derive(Clone, Default)]
pub struct Trackers(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    /// With the number of the question that asked for it last.
    by_job: HashMap<String, (u64, Arc<Mutex<Tracker>>)>,
    asked: u64,
}

impl Trackers {
    fn of(&self, job: &str) -> Arc<Mutex<Tracker>> {
        let mut known = self.0.lock().expect("nobody panics with it");
        known.asked += 1;
        let now = known.asked;
        if let Some((asked, tracker)) = known.by_job.get_mut(job) {
            *asked = now;
            return tracker.clone();
        }
        if known.by_job.len() >= MOST_JOBS
            && let Some(oldest) = known.by_job.iter().min_by_key(|(_, (asked, _))| *asked).map(|(job, _)| job.clone())
        {
            known.by_job.remove(&oldest);
        }
        // Whoever asks after it was forgotten must see that everything is told anew.
        let tracker = Arc::new(Mutex::new(Tracker::new(now ^ (u64::from(std::process::id()) << 32))));
        known.by_job.insert(job.to_owned(), (now, tracker.clone()));
        tracker
    }
}

impl App {
    /// Blocking: reads files, for a moment.
    pub fn job_metrics(&self, path: &JobPath, question: &CurveQuery) -> Result<JobMetrics, ApiError> {
        let snapshot = self.snapshot();
        let (_, job) = find_job(&snapshot, path)?;
        let tracker = self.telemetry.training_curves.of(&job.guid);
        let mut tracker = tracker.lock().unwrap_or_else(|poisoned| {
            // What was half read is read anew.
            let mut tracker = poisoned.into_inner();
            tracker.forget();
            tracker
        });
        let ids =
            std::iter::once(STDOUTERR).chain(job.spec.output_directories.iter().map(|directory| directory.id.as_str()));
        let roots = ids.flat_map(|id| {
            let Some(tree) = output_tree(&snapshot, &job, id) else { return Vec::new() };
            let root = |kind, inside: String| Some(Root { kind, share: self.open_tree(&tree).ok()?, inside });
            if id != STDOUTERR {
                return root(Kind::Output, tree.inside.clone()).into_iter().collect();
            }
            // What nodes wrote down lies beside the logs.
            let beside = tree.inside.rsplit_once('/').map_or_else(String::new, |(above, _)| format!("{above}/"));
            let curves = root(Kind::Curves, format!("{beside}{CURVES}"));
            curves.into_iter().chain(root(Kind::Logs, tree.inside.clone())).collect()
        });
        let ended = job.state().is_terminal();
        let shared = job.spec.process_count() > 1;
        let more = tracker.look(|| roots.collect(), shared, ended, self.now());
        let told = tracker.answer(question);
        Ok(JobMetrics { series: told.series, next: told.next, whole: told.whole, more, ended: ended && !more })
    }
}
