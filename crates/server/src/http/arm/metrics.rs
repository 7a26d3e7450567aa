//! The curves of a job's training: ours, beside the service's operations.

use corro_metrics::query::{CurveQuery, RankSelection};
use corro_model::ApiError;
use corro_model::metrics::JobMetrics;
use corro_model::ops::NoBody;

use super::{Answer, Call, Result, job_path};
use crate::app::App;

/// More of one curve is not drawn by anybody.
const MOST_POINTS: i64 = 10_000;

pub async fn metrics(app: App, call: Call<NoBody>) -> Result<JobMetrics> {
    let (path, question) = (job_path(&call), question(&call)?);
    let read = tokio::task::spawn_blocking(move || app.job_metrics(&path, &question)).await;
    let metrics =
        read.map_err(|_| ApiError::new(500, "InternalError", "Reading the job's figures was cut short"))??;
    Ok(match call.accept.contains("text/csv") {
        true => Answer::Table(metrics.csv()),
        false => Answer::Ok(metrics),
    })
}

fn question(call: &Call<NoBody>) -> std::result::Result<CurveQuery, ApiError> {
    let words = |name: &str| {
        let text = call.query(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let ranks = words("ranks");
    let ranks = match ranks.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["all"] => RankSelection::All,
        ["average"] => RankSelection::Average,
        numbers => {
            let wrong = |text: &str| {
                let message = format!("ranks is '{text}': use numbers with commas between, 'all' or 'average'");
                ApiError::new(400, "InvalidQueryParameterValue", message).about("ranks")
            };
            RankSelection::Some(
                numbers
                    .iter()
                    .map(|text| text.parse().map_err(|_| wrong(text)))
                    .collect::<std::result::Result<_, _>>()?,
            )
        }
    };
    Ok(CurveQuery {
        names: words("names"),
        ranks,
        points: call.number("points", 1000, 2..=MOST_POINTS)? as usize,
        after: call.query("after").filter(|after| !after.is_empty()).map(str::to_owned),
    })
}
