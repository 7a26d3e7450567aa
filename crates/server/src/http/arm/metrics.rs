//! Training curves of a job (Corro's extension of the API).

use corro_metrics::query::{CurveQuery, RankSelection};
use corro_model::ApiError;
use corro_model::metrics::JobMetrics;
use corro_model::ops::NoBody;

use super::{ArmRequest, ArmResponse, Result, job_path};
use crate::app::App;

/// Maximum number of points per curve.
const MAX_POINTS: i64 = 10_000;

pub async fn metrics(app: App, request: ArmRequest<NoBody>) -> Result<JobMetrics> {
    let (path, curve_query) = (job_path(&request), curve_query(&request)?);
    let read = tokio::task::spawn_blocking(move || app.job_metrics(&path, &curve_query)).await;
    let metrics =
        read.map_err(|_| ApiError::new(500, "InternalError", "Reading the job's metrics was interrupted"))??;
    Ok(match request.accept.contains("text/csv") {
        true => ArmResponse::Csv(metrics.csv()),
        false => ArmResponse::Ok(metrics),
    })
}

fn curve_query(request: &ArmRequest<NoBody>) -> std::result::Result<CurveQuery, ApiError> {
    let words = |name: &str| {
        let text = request.query(name).unwrap_or_default();
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
        points: request.int_param("points", 1000, 2..=MAX_POINTS)? as usize,
        after: request.query("after").filter(|after| !after.is_empty()).map(str::to_owned),
    })
}
