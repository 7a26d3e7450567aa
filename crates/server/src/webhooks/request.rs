//! The HTTP request of a notification: headers, document and signature. Pure.

use corro_model::Secret;
use corro_model::batchai::{ExecutionState, WebhookError, WebhookEvent, WebhookJob, WebhookPayload};
use corro_model::ids::arm;
use corro_store::{DeliveryRecord, State};

use super::WebhookPost;
use crate::app::webhook::{WebhookTarget, predicate};
use crate::digest;

/// Length of the error in the line for people, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The request that posts a notification.
pub fn build(
    state: &State,
    subscription: &str,
    id: &str,
    delivery: &DeliveryRecord,
    target: &WebhookTarget,
) -> WebhookPost {
    let payload = payload(state, subscription, id, delivery);
    let body = serde_json::to_vec(&payload).expect("a payload is plain data");
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-corro-event", delivery.event.name().to_owned()),
        ("x-corro-delivery", id.to_owned()),
    ];
    headers.extend(target.key.as_ref().map(|key| ("x-corro-signature-256", signature(key, &body))));
    WebhookPost { url: target.url.clone(), headers, body }
}

/// HMAC-SHA256 of the body, as `sha256=HEX`.
fn signature(key: &Secret, body: &[u8]) -> String {
    format!("sha256={}", digest::hex(&digest::hmac_sha256(key.expose().as_bytes(), &[body])))
}

fn payload(state: &State, subscription: &str, id: &str, delivery: &DeliveryRecord) -> WebhookPayload {
    let job = names(state, subscription, delivery);
    let error = delivery.error.as_ref();
    WebhookPayload {
        delivery_id: id.to_owned(),
        event: delivery.event,
        time: delivery.at,
        text: text(&job, delivery),
        job,
        attempt: delivery.attempt,
        execution_state: match delivery.event {
            WebhookEvent::Started => ExecutionState::Running,
            WebhookEvent::Succeeded => ExecutionState::Succeeded,
            WebhookEvent::Failed | WebhookEvent::Stopped => ExecutionState::Failed,
        },
        start_time: delivery.started,
        end_time: delivery.ended,
        exit_code: delivery.exit_code,
        error: error.map(|(code, message)| WebhookError { code: code.clone(), message: message.clone() }),
    }
}

/// Names as they were written, as long as the resources exist.
fn names(state: &State, subscription: &str, delivery: &DeliveryRecord) -> WebhookJob {
    let experiment_key = delivery.job.experiment();
    let workspace_key = experiment_key.workspace();
    let last = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    let group_key = workspace_key.group();
    let group = state.groups.get(&group_key);
    let group = group.map_or_else(|| group_key.as_str().to_owned(), |group| group.name.clone());
    let workspace = state.workspaces.get(&workspace_key);
    let workspace = workspace.map_or_else(|| last(workspace_key.as_str()), |workspace| workspace.name.clone());
    let experiment = state.experiments.get(&experiment_key);
    let experiment = experiment.map_or_else(|| last(experiment_key.as_str()), |experiment| experiment.name.clone());
    let path = arm::workspace(subscription, &group, &workspace);
    let id = format!("{path}/experiments/{experiment}/jobs/{}", delivery.name);
    WebhookJob { id, name: delivery.name.clone(), experiment, workspace, resource_group: group }
}

/// One line for people, which chat services show.
fn text(job: &WebhookJob, delivery: &DeliveryRecord) -> String {
    let sentence = format!("Job {} of experiment {} {}", job.name, job.experiment, predicate(delivery.event));
    let reason = delivery.error.as_ref().and_then(|(_, message)| message.lines().next()).unwrap_or_default();
    let reason: String = reason.chars().take(MAX_TEXT_CHARS).collect();
    if reason.is_empty() { sentence } else { format!("{sentence}: {reason}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, at, change, key};
    use corro_model::batchai::BatchAiError;
    use corro_model::state::JobEvent;
    use corro_store::{JobRecord, Vault};
    use serde_json::{Value, json};

    /// State with a job that has failed, and its notification.
    fn failed() -> (State, DeliveryRecord) {
        let mut state = testing::state(testing::manual(1), 1);
        let spec =
            json!({"nodeCount": 1, "notifications": {"webhook": {"url": "https://h/***", "events": ["failed"]}}});
        testing::submit_spec(&mut state, "train", spec, &[]);
        change(&mut state, |txn| {
            let sealed = Vault::with_key(&[1; 32]).expect("a key").seal("webhook", "{}");
            txn.update::<JobRecord>(&key("train"), |job| job.webhook = Some(sealed));
        });
        testing::start(&mut state, "train", &[1]);
        let errors = vec![BatchAiError::new("JobFailed", "exit code 3\nmore")];
        let end = JobEvent::Failed { exit_code: Some(3), errors, at: at(9) };
        change(&mut state, |txn| txn.end_attempt(&key("train"), end, at(9)).expect("it ran"));
        let delivery = (*state.deliveries["train-1-failed"]).clone();
        (state, delivery)
    }

    #[test]
    fn a_notification_names_the_job_and_the_error() {
        let (state, delivery) = failed();
        let target = WebhookTarget { url: Secret::new("https://h/x"), key: None };
        let post = build(&state, "sub", "train-1-failed", &delivery, &target);
        let body: Value = serde_json::from_slice(&post.body).expect("JSON");
        let id =
            "/subscriptions/sub/resourceGroups/g/providers/Microsoft.BatchAI/workspaces/w/experiments/Cifar/jobs/TRAIN";
        let expected = json!({
            "deliveryId": "train-1-failed", "event": "failed", "time": at(9),
            "text": "Job TRAIN of experiment Cifar has failed: exit code 3",
            "job": {"id": id, "name": "TRAIN", "experiment": "Cifar", "workspace": "w", "resourceGroup": "g"},
            "attempt": 1, "executionState": "failed", "startTime": at(0), "endTime": at(9), "exitCode": 3,
            "error": {"code": "JobFailed", "message": "exit code 3\nmore"},
        });
        assert_eq!(body, expected);
        let header = |name| post.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_str());
        assert_eq!(header("content-type"), Some("application/json"));
        assert_eq!((header("x-corro-event"), header("x-corro-delivery")), (Some("failed"), Some("train-1-failed")));
        assert_eq!((header("x-corro-signature-256"), post.url.expose()), (None, "https://h/x"));
    }

    /// Test case 2 of RFC 4231.
    #[test]
    fn the_signature_is_an_hmac_of_the_body() {
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(&Secret::new("Jefe"), b"what do ya want for nothing?"), expected);
        let (state, delivery) = failed();
        let target = WebhookTarget { url: Secret::new("https://h/x"), key: Some(Secret::new("a long key")) };
        let post = build(&state, "sub", "id", &delivery, &target);
        let (name, value) = post.headers.last().expect("headers");
        assert_eq!((*name, value), ("x-corro-signature-256", &signature(&Secret::new("a long key"), &post.body)));
    }
}
