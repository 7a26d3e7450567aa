//! Training curves of real jobs on a real server, read with `corro job plot`: a job that prints like Keras, ranks with logs of
//! their own, and our own trainer.

mod harness;

use harness::logs::wait_at;
use harness::{IN_WORKSPACE, Site, wait_for};
use serde_json::{Value, json};

fn plot(site: &Site, job: &str, more: &str) -> harness::CommandOutput {
    site.corro(&format!("job plot {job} {IN_WORKSPACE} -e cifar {more}"))
}

/// The points of each curve, as `name/rank/axis`: `step=value …`.
fn curves(site: &Site, job: &str) -> Vec<(String, String)> {
    let curves = plot(site, job, "-o json").json();
    let one = |series: &Value| {
        let rank = series["rank"].as_f64().map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let (name, axis) = (series["name"].as_str().expect("a name"), series["axis"].as_str().expect("an axis"));
        let points = series["points"].as_array().expect("points").iter();
        let points: Vec<String> = points.map(|point| format!("{}={}", number(&point[0]), number(&point[2]))).collect();
        (format!("{name}/{rank}/{axis}"), points.join(" "))
    };
    curves.as_array().expect("a list").iter().map(one).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn curve(site: &Site, job: &str, key: &str) -> String {
    curves(site, job).into_iter().find(|(known, _)| known == key).map(|(_, points)| points).unwrap_or_default()
}

#[test]
fn curves_are_read_from_job_output() {
    let site = Site::start();
    site.prepare(2);

    // As Keras prints, with carriage returns and backspaces; the second epoch waits until the first is seen.
    let first = r"printf 'Epoch 1/2\n1/4 [=>..] - ETA: 1s - loss: 4.0000 - acc: 0.2500\b\b\b\r4/4 [====] - 0s 20ms/step - loss: 3.0000 - acc: 0.5000\n'";
    let second = r"printf 'Epoch 2/2\n4/4 [====] - 0s 20ms/step - loss: 1.0000 - acc: 0.7500 - val_loss: 2.0000\n'";
    let command = format!("{first}; {}; {second}", wait_at("go"));
    site.submit_custom("keras", 1, &command);
    wait_for("the first epoch", || curve(&site, "keras", "loss/-/step") == "1=4 4=3");
    site.open_gate("go");
    assert_eq!(site.wait_for_end("keras")["executionState"], "succeeded");
    assert_eq!(curve(&site, "keras", "loss/-/step"), "1=4 4=3 8=1");
    assert_eq!(curve(&site, "keras", "val_loss/-/step"), "8=2");
    assert_eq!(curve(&site, "keras", "steps_per_second/-/step"), "4=50 8=50");
    let table = plot(&site, "keras", "--metric loss").ok().stdout;
    assert_eq!(table.lines().count(), 2, "{table}");
    let csv = plot(&site, "keras", "--metric acc --csv --follow").ok().stdout;
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "name,rank,unit,axis,step,time,value");
    assert!(rows[1].starts_with("acc,,,step,1,") && rows[3].ends_with(",0.75"), "{csv}");

    // Exact lines of two ranks in one log, and a job without metrics.
    let exact = r#"echo "{\"corro\": {\"step\": 1, \"rank\": $RANK, \"loss\": $((RANK + 1))}}""#;
    site.submit_ranks("exact", 2, exact);
    site.submit_custom("silent", 1, "echo listening on 127.0.0.1:8080");
    for job in ["exact", "silent"] {
        assert_eq!(site.wait_for_end(job)["executionState"], "succeeded", "{job}");
    }
    let plotted: Vec<(String, String)> = curves(&site, "exact");
    let expected = [("loss/-/step", "1=1.5"), ("loss/0/step", "1=1"), ("loss/1/step", "1=2")];
    assert_eq!(plotted, expected.map(|(key, points)| (key.to_owned(), points.to_owned())));
    let silent = plot(&site, "silent", "").ok();
    assert!(silent.stderr.contains("No metrics were found"), "{}", silent.stderr);

    // Keras on both ranks of one log: each has its curve, beside the average; also when the log is gone and the server is new.
    let both = r"printf 'Epoch 1/1\n1/4 [=>..] - ETA: 1s - loss: %d.5000\r4/4 [====] - 0s 20ms/step - loss: %d.0000\n' $((RANK + 4)) $((RANK + 1))";
    site.submit_ranks("both", 2, both);
    assert_eq!(site.wait_for_end("both")["executionState"], "succeeded");
    let losses = |site: &Site| -> Vec<(String, String)> {
        curves(site, "both").into_iter().filter(|(key, _)| key.starts_with("loss/")).collect()
    };
    let expected = [("loss/-/step", "1=5 4=1.5"), ("loss/0/step", "1=4.5 4=1"), ("loss/1/step", "1=5.5 4=2")];
    let expected = expected.map(|(key, points)| (key.to_owned(), points.to_owned()));
    wait_for("the curves of both ranks", || losses(&site) == expected);
    let shown = site.stream("both", "stdout.txt").stdout;
    assert!(shown.matches("Epoch 1/1").count() == 2 && !shown.contains("rank"), "logs are as they were: {shown}");
    let listed = site.corro(&format!("batchai job file list {IN_WORKSPACE} -e cifar -j both")).ok().stdout;
    assert!(!listed.contains("curves"), "{listed}");
    plot(&site, "keras", "--ranks first").fails(1, &["ranks is 'first'"]);
    plot(&site, "none", "").fails(3, &["none"]);
}

#[test]
fn our_own_trainer_has_curves() {
    let site = Site::start();
    site.prepare(1);
    let settings = r#"{"epochs": 2, "threads": 1, "synthetic": {"train": 96, "test": 32}}"#;
    let corro = env!("CARGO_BIN_EXE_corro");
    let command = format!(
        "echo '{settings}' > $AZ_BATCHAI_JOB_TEMP/s.json && {corro} train $AZ_BATCHAI_JOB_TEMP/s.json --dir $AZ_BATCHAI_OUTPUT_MODEL"
    );
    let outputs = json!([{"id": "MODEL", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/myshare/out"}]);
    let settings = json!({"customToolkitSettings": {"commandLine": command}});
    site.submit_with("trains", 1, settings, json!({"outputDirectories": outputs}));
    let ended = site.wait_for_end("trains");
    assert_eq!(ended["executionState"], "succeeded", "{}", site.log("trains", "stderr.txt"));
    let plotted = curves(&site, "trains");
    for name in ["loss", "acc", "val_loss", "val_acc"] {
        assert!(
            plotted.iter().any(|(key, points)| key.starts_with(&format!("{name}/-/")) && !points.is_empty()),
            "{plotted:?}"
        );
    }
    // From its metrics file.
    let rates = plotted.iter().find(|(key, _)| key == "images_per_second/-/epoch").map(|(_, points)| points.as_str());
    assert!(rates.is_some_and(|points| points.starts_with("1=") && points.contains(" 2=")), "{plotted:?}");
}
