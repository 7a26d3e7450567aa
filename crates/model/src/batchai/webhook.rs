//! Notifications of jobs: the webhook that a job or its experiment names, and the document that the server posts there. A Corro extension.

use serde::{Deserialize, Serialize};

use super::ExecutionState;
use crate::{Secret, Timestamp};

/// How a job, or the jobs of an experiment, report changes of their state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notifications {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// URL to post to. It can hold a credential: a response has only its scheme, host and port.
    pub url: Secret,
    /// Events that are posted; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<WebhookEvent>>,
    /// Key of the signature; never in a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
}

impl Webhook {
    pub fn wants(&self, event: WebhookEvent) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(&event))
    }
}

/// A change of a job that is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WebhookEvent {
    /// An attempt got its nodes.
    Started,
    Succeeded,
    Failed,
    /// Ended by a person, by its sweep, or with its cluster.
    Stopped,
}

impl WebhookEvent {
    pub const ALL: [WebhookEvent; 4] =
        [WebhookEvent::Started, WebhookEvent::Succeeded, WebhookEvent::Failed, WebhookEvent::Stopped];

    pub fn name(self) -> &'static str {
        match self {
            WebhookEvent::Started => "started",
            WebhookEvent::Succeeded => "succeeded",
            WebhookEvent::Failed => "failed",
            WebhookEvent::Stopped => "stopped",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// The document that is posted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookPayload {
    /// The same in every attempt to deliver this notification.
    pub delivery_id: String,
    pub event: WebhookEvent,
    /// Time of the change, not of the delivery.
    pub time: Timestamp,
    /// One line for people.
    pub text: String,
    pub job: WebhookJob,
    /// Number of the job's attempt, from 1; 0 if the job ended in the queue.
    pub attempt: u32,
    pub execution_state: ExecutionState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WebhookError>,
}

/// Names of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookJob {
    pub id: String,
    pub name: String,
    pub experiment: String,
    pub workspace: String,
    pub resource_group: String,
}

/// Reason of a failure or a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookError {
    pub code: String,
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_webhook_wants_all_events_unless_it_names_some() {
        let wanted = |webhook: serde_json::Value| {
            let webhook: Webhook = serde_json::from_value(webhook).expect("a literal");
            WebhookEvent::ALL
                .into_iter()
                .filter(|event| webhook.wants(*event))
                .map(WebhookEvent::name)
                .collect::<Vec<_>>()
        };
        assert_eq!(wanted(json!({"url": "https://h/x"})), ["started", "succeeded", "failed", "stopped"]);
        assert_eq!(wanted(json!({"url": "https://h/x", "events": ["failed", "started"]})), ["started", "failed"]);
        assert!(WebhookEvent::ALL.into_iter().all(|event| WebhookEvent::from_name(event.name()) == Some(event)));
    }

    #[test]
    fn the_document_is_plain_json() {
        let at = |seconds: i64| Timestamp::from_millis(1_600_000_000_000 + seconds * 1000);
        let payload = WebhookPayload {
            delivery_id: "g-1-failed".to_owned(),
            event: WebhookEvent::Failed,
            time: at(9),
            text: "Job train-1 of experiment cifar failed: boom".to_owned(),
            job: WebhookJob {
                id: "/subscriptions/s".to_owned(),
                name: "train-1".to_owned(),
                experiment: "cifar".to_owned(),
                workspace: "w".to_owned(),
                resource_group: "g".to_owned(),
            },
            attempt: 1,
            execution_state: ExecutionState::Failed,
            start_time: Some(at(0)),
            end_time: Some(at(9)),
            exit_code: Some(3),
            error: Some(WebhookError { code: "JobFailed".to_owned(), message: "boom".to_owned() }),
        };
        let expected = json!({
            "deliveryId": "g-1-failed", "event": "failed", "time": "2020-09-13T12:26:49Z",
            "text": "Job train-1 of experiment cifar failed: boom",
            "job": {"id": "/subscriptions/s", "name": "train-1", "experiment": "cifar", "workspace": "w", "resourceGroup": "g"},
            "attempt": 1, "executionState": "failed", "startTime": "2020-09-13T12:26:40Z", "endTime": "2020-09-13T12:26:49Z",
            "exitCode": 3, "error": {"code": "JobFailed", "message": "boom"},
        });
        assert_eq!(serde_json::to_value(&payload).expect("plain data"), expected);
        assert_eq!(serde_json::from_value::<WebhookPayload>(expected).expect("it reads back"), payload);
    }
}
