//! Estimates the end of a training from the progress in its output. Extrapolates linearly from the first and the last
//! report, so that time before the first one (imports, compilation, loading of data) does not count.

use std::time::Duration;

use tokio::time::Instant;

/// Reports closer together than this give no estimate.
const MIN_OBSERVATION: Duration = Duration::from_secs(1);
/// Estimates further in the future are discarded.
const MAX_ESTIMATE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Progress of one output stream, as a fraction: the first and the last report.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressEstimate(Option<(ProgressReport, ProgressReport)>);

#[derive(Clone, Copy, Debug)]
struct ProgressReport {
    at: Instant,
    progress: f64,
}

impl ProgressEstimate {
    /// Adds a report. Progress below the last report means that another training has begun.
    pub fn report(&mut self, at: Instant, progress: f64) {
        let report = ProgressReport { at, progress };
        match &mut self.0 {
            Some((_, last)) if progress > last.progress => *last = report,
            Some((_, last)) if progress == last.progress => {}
            _ => self.0 = Some((report, report)),
        }
    }

    /// Expected end at the current rate, possibly in the past. `None` without enough reports.
    pub fn expected_end(&self) -> Option<Instant> {
        let (first, last) = self.0?;
        let (took, done) = (last.at.duration_since(first.at), last.progress - first.progress);
        if took < MIN_OBSERVATION || done <= 0.0 {
            return None;
        }
        let remaining = Duration::try_from_secs_f64(took.as_secs_f64() * (1.0 - last.progress) / done).ok()?;
        (remaining <= MAX_ESTIMATE).then(|| last.at + remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected end in seconds after the first of these reports.
    fn end_after(reports: &[(u64, f64)]) -> Option<f64> {
        let start = Instant::now();
        let mut pace = ProgressEstimate::default();
        reports.iter().for_each(|(at, progress)| pace.report(start + Duration::from_secs(*at), *progress));
        pace.expected_end().map(|end| (end - start).as_secs_f64().round())
    }

    #[test]
    fn the_estimate_extrapolates_linearly() {
        assert_eq!(end_after(&[]), None);
        assert_eq!(end_after(&[(0, 0.0)]), None);
        assert_eq!(end_after(&[(0, 0.0), (10, 0.0)]), None, "no progress");
        assert_eq!(end_after(&[(0, 0.0), (10, 0.1)]), Some(100.0));
        assert_eq!(end_after(&[(0, 0.2), (10, 0.4), (20, 0.4)]), Some(40.0), "the last progress counts");
        assert_eq!(end_after(&[(0, 0.0), (10, 0.5), (30, 1.0)]), Some(30.0));
        assert_eq!(end_after(&[(0, 0.0), (50, 1.0), (60, 0.0), (70, 0.5)]), Some(80.0), "a second training");
        assert_eq!(end_after(&[(0, 0.0), (0, 0.5)]), None, "too close together");
        assert_eq!(end_after(&[(0, 0.0), (100, 1e-9)]), None, "beyond any sense");
    }
}
