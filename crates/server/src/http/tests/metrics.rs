//! Training curves of a job, parsed from its output on a share.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::Request;
use http::header;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{TestServer, job};

/// Creates a job whose logs lie on a share; returns its path and output directory.
async fn create_job_with_logs(test_server: &TestServer, more: Value) -> (String, PathBuf) {
    let own = test_server.create_workspace_with_cluster("g", "w").await;
    test_server.account("g", "someaccount").await;
    test_server.app.storage.shares.create_share("someaccount", "logs").expect("a share");
    let path = format!("{own}/experiments/e/jobs/j");
    let mut wanted = job(&format!("{own}/clusters/c"));
    let properties = wanted["properties"].as_object_mut().expect("an object");
    properties.extend([
        ("stdOutErrPathPrefix".to_owned(), json!("$AZ_BATCHAI_JOB_MOUNT_ROOT/logs")),
        ("outputDirectories".to_owned(), json!([{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs"}])),
        (
            "mountVolumes".to_owned(),
            json!({"azureFileShares": [{
                "accountName": "someaccount", "azureFileUrl": "https://someaccount.file.core.windows.net/logs",
                "relativeMountPath": "logs", "credentials": {"accountKey": "x"}}]}),
        ),
    ]);
    properties.extend(more.as_object().cloned().unwrap_or_default());
    test_server.request("PUT", &path, wanted).await.is(202);
    let shown = test_server.request("GET", &path, Value::Null).await.is(200).body;
    let segment = shown["properties"]["jobOutputDirectoryPathSegment"].as_str().expect("a path").to_owned();
    let directory = test_server.app.storage.shares.host_path("someaccount", "logs").expect("a path").join(segment);
    fs::create_dir_all(directory.join("stdouterr")).expect("directories");
    fs::create_dir_all(directory.join("outputs/run")).expect("directories");
    (path, directory)
}

/// Formats each series as `name rank axis: step=value …`.
fn series_text(answer: &Value) -> Vec<String> {
    let point = |point: &Value| format!("{}={}", point[0], point[2]);
    let one = |series: &Value| {
        let points: Vec<String> = series["points"].as_array().expect("points").iter().map(point).collect();
        let name = series["name"].as_str().expect("a name");
        format!("{name} {} {}: {}", series["rank"], series["axis"].as_str().expect("an axis"), points.join(" "))
    };
    answer["series"].as_array().expect("series").iter().map(one).collect()
}

#[tokio::test]
async fn curves_grow_with_the_log() {
    let test_server = TestServer::new().await;
    let (path, directory) = create_job_with_logs(&test_server, json!({})).await;
    let url = format!("{path}/metrics");
    let first = test_server.request("GET", &url, Value::Null).await.is(200).body;
    assert_eq!((&first["series"], &first["whole"], &first["ended"]), (&json!([]), &json!(true), &json!(false)));
    let mut log = fs::File::create(directory.join("stdouterr/stdout.txt")).expect("a file");
    let keras = "Epoch 1/2\n1/4 [..] - loss: 4.0 - acc: 0.5\r4/4 [==] - 0s 20ms/step - loss: 3.0 - acc: 0.75\n";
    log.write_all(keras.as_bytes()).expect("written");
    fs::write(directory.join("outputs/run/metrics.jsonl"), "{\"epoch\":1,\"val_acc\":0.5}\n").expect("written");
    let read = test_server.wait_for_series(&url, 4).await;
    let expected = ["acc null step: 1.0=0.5 4.0=0.75", "loss null step: 1.0=4.0 4.0=3.0"];
    assert_eq!(series_text(&read)[..2], expected);
    assert_eq!(series_text(&read)[2..], ["steps_per_second null step: 4.0=50.0", "val_acc null epoch: 1.0=0.5"]);

    // Only new points of the requested curves.
    log.write_all(b"Epoch 2/2\n2/4 [..] - loss: 2.0 - acc: 0.8\n").expect("written");
    let next = read["next"].as_str().expect("a word");
    let news = test_server.wait_for_series(&format!("{url}?after={next}&names=loss,nothing"), 1).await;
    assert_eq!((series_text(&news), &news["whole"]), (vec!["loss null step: 6.0=2.0".to_owned()], &json!(false)));
    test_server.request("GET", &format!("{url}?ranks=x"), Value::Null).await.refused(400, "InvalidQueryParameterValue");
    test_server
        .request("GET", &format!("{url}?points=1"), Value::Null)
        .await
        .refused(400, "InvalidQueryParameterValue");
    test_server.request("GET", &url.replace("jobs/j", "jobs/none"), Value::Null).await.is(404);

    // A truncated file is parsed from the start.
    fs::write(directory.join("stdouterr/stdout.txt"), "step=1 loss=9\n").expect("written");
    let again = format!("{url}?after={next}&names=loss");
    let anew = test_server.wait_for(&again, |body| series_text(body) == ["loss null step: 1.0=9.0"]).await;
    assert_eq!(anew["whole"], json!(true));
}

#[tokio::test]
async fn each_rank_log_has_its_curve() {
    let test_server = TestServer::new().await;
    let (path, directory) = create_job_with_logs(&test_server, json!({})).await;
    for (rank, loss) in [(0, 1.0), (1, 3.0)] {
        let log = directory.join(format!("stdouterr/stdout-{rank}.txt"));
        fs::write(log, format!("step=1 loss={loss}\n")).expect("written");
    }
    fs::write(directory.join("stdouterr/stdout-job_prep.txt"), "step=1 loss=7\n").expect("written");
    let url = format!("{path}/metrics");
    let read = test_server.wait_for_series(&url, 3).await;
    assert_eq!(series_text(&read), ["loss null step: 1.0=2.0", "loss 0 step: 1.0=1.0", "loss 1 step: 1.0=3.0"]);
    let get_csv = test_server.get_csv(&format!("{url}?ranks=1")).await;
    assert_eq!(
        get_csv,
        ("text/csv; charset=utf-8".into(), "name,rank,unit,axis,step,time,value\nloss,1,,step,1,,3\n".into())
    );
}

impl TestServer {
    async fn wait_for(&self, url: &str, enough: impl Fn(&Value) -> bool) -> Value {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let body = self.request("GET", url, Value::Null).await.is(200).body;
            if enough(&body) {
                return body;
            }
            assert!(std::time::Instant::now() < deadline, "not in time: {body}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn wait_for_series(&self, url: &str, n: usize) -> Value {
        self.wait_for(url, |body| body["series"].as_array().is_some_and(|series| series.len() >= n)).await
    }

    async fn get_csv(&self, url: &str) -> (String, String) {
        let request = Request::builder()
            .uri(format!("{url}&api-version=2018-05-01"))
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, "text/csv")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let answer = self.api.handle(request.body(Body::empty()).expect("a request")).await;
        let kind = answer.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (kind, String::from_utf8(body.to_vec()).expect("text"))
    }
}

#[tokio::test]
async fn curve_files_of_nodes_replace_the_logs() {
    let test_server = TestServer::new().await;
    let (path, directory) = create_job_with_logs(&test_server, json!({})).await;
    let url = format!("{path}/metrics");
    // Two ranks in one log, without metadata from the nodes.
    fs::write(directory.join("stdouterr/stdout.txt"), "step=1 loss=1\nstep=1 loss=3\n").expect("written");
    let first = test_server.request("GET", &url, Value::Null).await.is(200).body;
    assert_eq!(series_text(&first).len(), 1, "{first:#}");
    let line = |rank: u32, step: u32, value: f64| {
        let points = json!([[step, 1_500_000_000_000_i64, value]]);
        json!({"name": "loss", "rank": rank, "axis": "step", "source": "log", "points": points, "count": 1}).to_string()
    };
    fs::create_dir(directory.join("curves")).expect("a directory");
    for (rank, value) in [(0, 1.0), (1, 3.0)] {
        let text = format!("{}\nnonsense 7\n{}\n", line(rank, 1, value), line(rank, 2, value / 2.0));
        fs::write(directory.join(format!("curves/node-{rank}.jsonl")), text).expect("written");
    }
    let expected = ["loss null step: 1.0=2.0 2.0=1.0", "loss 0 step: 1.0=1.0 2.0=0.5", "loss 1 step: 1.0=3.0 2.0=1.5"];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let now = test_server.request("GET", &url, Value::Null).await.is(200).body;
        if series_text(&now) == expected {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{now:#}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
