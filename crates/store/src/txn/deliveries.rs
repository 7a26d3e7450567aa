//! Adds the notification of a job's transition to the transaction of the transition. It goes to the webhook of the job, else to
//! that of its experiment. Bounded for each principal and in total:
//! what does not fit is given up at once, and the job's history says so.

use corro_model::batchai::{Notifications, WebhookEvent};
use corro_model::{JobKey, Timestamp};
use serde_json::json;

use super::Txn;
use crate::records::{DeliveryRecord, JobRecord};

/// Undelivered notifications of one principal's jobs.
const MAX_PENDING_PER_OWNER: usize = 1_000;
/// Undelivered notifications in total.
const MAX_PENDING: usize = 10_000;
/// Length of a job's error message, in characters.
const MAX_MESSAGE_CHARS: usize = 1_000;

impl Txn {
    /// Adds the notification that `record` has entered its state in this attempt, if the job or its experiment asks for it.
    pub(super) fn add_delivery(&mut self, key: &JobKey, record: &JobRecord, attempt: u32, now: Timestamp) {
        let Some(event) = record.state.webhook_event() else { return };
        let of_job = (record.spec.notifications.as_ref(), record.webhook.as_ref());
        let experiment = self.state.experiments.get(&key.experiment());
        let of_experiment =
            experiment.map(|experiment| (experiment.notifications.as_ref(), experiment.webhook.as_ref()));
        let chosen = if of_job.1.is_some() { Some(of_job) } else { of_experiment };
        let Some((Some(Notifications { webhook: Some(webhook) }), Some(sealed))) = chosen else { return };
        if !webhook.wants(event) {
            return;
        }
        let sealed = sealed.clone();
        if self.has_too_many_deliveries(record) {
            return self.give_up_delivery(key, event, 0, "too many notifications wait to be delivered");
        }
        let info = record.state.execution_info();
        let error = info.as_ref().and_then(|info| info.errors.first());
        let delivery = DeliveryRecord {
            job: key.clone(),
            name: record.name.clone(),
            owner: record.owner.clone(),
            webhook: sealed,
            event,
            attempt,
            at: now,
            started: info.as_ref().map(|info| info.start_time),
            ended: info.as_ref().and_then(|info| info.end_time),
            exit_code: info.as_ref().and_then(|info| info.exit_code),
            error: error.map(|error| (error.code.clone(), error.message.chars().take(MAX_MESSAGE_CHARS).collect())),
            failure: None,
        };
        self.put(delivery_id(&record.guid, attempt, event), delivery);
    }

    fn has_too_many_deliveries(&self, job: &JobRecord) -> bool {
        let pending = &self.state.deliveries;
        // Counted one by one only if there are many.
        pending.len() >= MAX_PENDING
            || pending.len() >= MAX_PENDING_PER_OWNER
                && pending.values().filter(|other| other.owner == job.owner).count() >= MAX_PENDING_PER_OWNER
    }

    /// Writes to the job's history that a notification is not delivered.
    pub fn give_up_delivery(&mut self, job: &JobKey, event: WebhookEvent, posts: u32, reason: &str) {
        let detail = json!({"event": event, "posts": posts, "reason": reason});
        self.add_history("job.undelivered", job.as_str(), detail);
    }
}

/// Id of a notification: the same however often the server is restarted.
fn delivery_id(job_guid: &str, attempt: u32, event: WebhookEvent) -> String {
    format!("{job_guid}-{attempt}-{}", event.name())
}

#[cfg(test)]
mod tests {
    use corro_model::batchai::{BatchAiError, Provisioning, ProvisioningState};
    use corro_model::state::{JobEvent, NodeEvent, Termination};
    use corro_model::{GroupKey, NodeId};

    use super::*;
    use crate::encryption::{Ciphertext, Vault, random};
    use crate::records::{ExperimentRecord, NewJob, NodeRecord};
    use crate::state::State;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn key(name: &str) -> JobKey {
        GroupKey::new("g").workspace("w").experiment("e").job(name)
    }

    fn sealed() -> Ciphertext {
        Vault::with_key(&random::<32>()).expect("a key").seal("webhook", "{}")
    }

    fn submit(txn: &mut Txn, name: &str, notifications: serde_json::Value) {
        let webhook = notifications.get("webhook").map(|_| sealed());
        let spec = json!({"nodeCount": 1, "stdOutErrPathPrefix": "x", "notifications": notifications});
        let job = NewJob {
            name: name.to_uppercase(),
            guid: format!("guid-{name}"),
            sequence: txn.next_sequence(),
            cluster: GroupKey::new("g").workspace("w").cluster("c"),
            spec: serde_json::from_value(spec).expect("a literal"),
            secrets: None,
            fingerprint: String::new(),
            segment: String::new(),
            provisioning: Provisioning::new(ProvisioningState::Succeeded, at(0)),
        };
        txn.put(key(name), JobRecord::queued(job, at(0)).owned_by("me").reporting_to(webhook));
    }

    fn start(txn: &mut Txn, name: &str, index: u32) {
        let node = NodeId::new(1, index, at(0));
        txn.put(
            node.clone(),
            NodeRecord::allocating(GroupKey::new("g").workspace("w").cluster("c"), 1, String::new(), at(0)),
        );
        txn.node_event(&node, NodeEvent::Joined, at(0))
            .and_then(|()| txn.node_event(&node, NodeEvent::Ready, at(0)))
            .expect("new");
        txn.place(&key(name), vec![node], at(1)).expect("queued");
    }

    fn ids(txn: &Txn) -> Vec<String> {
        txn.state().deliveries.keys().cloned().collect()
    }

    fn all() -> serde_json::Value {
        json!({"webhook": {"url": "https://h/***"}})
    }

    #[test]
    fn every_transition_adds_the_notifications_that_the_job_asks_for() {
        let mut txn = Txn::new(&State::default(), "test".into());
        submit(&mut txn, "a", all());
        assert!(ids(&txn).is_empty(), "a queued job is not reported");
        start(&mut txn, "a", 1);
        let lost = BatchAiError::new("NodeLost", "gone");
        txn.requeue(&key("a"), lost, at(2)).expect("it runs");
        start(&mut txn, "a", 2);
        let errors = vec![BatchAiError::new("JobFailed", "é".repeat(2_000))];
        txn.end_attempt(&key("a"), JobEvent::Failed { exit_code: Some(3), errors, at: at(5) }, at(5)).expect("it runs");
        assert_eq!(ids(&txn), ["guid-a-1-started", "guid-a-2-failed", "guid-a-2-started"]);
        let failed = &txn.state().deliveries["guid-a-2-failed"];
        assert_eq!((failed.name.as_str(), failed.owner.as_deref(), failed.attempt), ("A", Some("me"), 2));
        assert_eq!(
            (failed.at, failed.started, failed.ended, failed.exit_code),
            (at(5), Some(at(1)), Some(at(5)), Some(3))
        );
        let (code, message) = failed.error.clone().expect("an error");
        assert_eq!((code.as_str(), message.chars().count()), ("JobFailed", MAX_MESSAGE_CHARS));

        submit(&mut txn, "b", json!({"webhook": {"url": "https://h/***", "events": ["stopped"]}}));
        start(&mut txn, "b", 3);
        let stop = JobEvent::TerminateRequested { cause: Termination::User, at: at(6) };
        txn.job_event(&key("b"), stop.clone(), at(6)).expect("it runs");
        assert_eq!(ids(&txn).len(), 3, "it has not ended yet");
        txn.end_attempt(&key("b"), JobEvent::Succeeded { at: at(7) }, at(7)).expect("it ends");
        submit(&mut txn, "c", all());
        txn.job_event(&key("c"), stop, at(8)).expect("it is queued");
        submit(&mut txn, "d", json!({}));
        start(&mut txn, "d", 4);
        assert_eq!(ids(&txn)[3..], ["guid-b-1-stopped", "guid-c-0-stopped"]);
        txn.remove::<JobRecord>(&key("b"));
        assert_eq!(ids(&txn).len(), 5, "a notification outlives the record of its job");
    }

    #[test]
    fn jobs_without_a_webhook_use_that_of_their_experiment() {
        let mut txn = Txn::new(&State::default(), "test".into());
        let provisioning = Provisioning::new(ProvisioningState::Succeeded, at(0));
        let without = ExperimentRecord { name: "E".to_owned(), provisioning, notifications: None, webhook: None };
        txn.put(key("a").experiment(), without.clone());
        submit(&mut txn, "a", json!({}));
        start(&mut txn, "a", 1);
        assert_eq!(ids(&txn), [] as [String; 0]);
        let of_experiment = sealed();
        let notifications =
            serde_json::from_value(json!({"webhook": {"url": "https://h/***", "events": ["succeeded"]}}));
        let with = ExperimentRecord {
            notifications: Some(notifications.expect("a literal")),
            webhook: Some(of_experiment.clone()),
            ..without
        };
        txn.put(key("a").experiment(), with);
        submit(&mut txn, "own", json!({"webhook": {"url": "https://h/***", "events": ["started"]}}));
        start(&mut txn, "own", 2);
        for name in ["a", "own"] {
            txn.end_attempt(&key(name), JobEvent::Succeeded { at: at(2) }, at(2)).expect("it runs");
        }
        assert_eq!(ids(&txn), ["guid-a-1-succeeded", "guid-own-1-started"], "a job's own webhook replaces the other");
        assert_eq!(txn.state().deliveries["guid-a-1-succeeded"].webhook, of_experiment);
        assert_ne!(txn.state().deliveries["guid-own-1-started"].webhook, of_experiment);
    }

    #[test]
    fn a_principal_with_many_undelivered_notifications_gets_no_more() {
        let mut txn = Txn::new(&State::default(), "test".into());
        submit(&mut txn, "a", all());
        start(&mut txn, "a", 1);
        let first = (*txn.state().deliveries["guid-a-1-started"]).clone();
        for n in 1..MAX_PENDING_PER_OWNER {
            txn.put(format!("other-{n}"), first.clone());
        }
        let end = JobEvent::Succeeded { at: at(2) };
        txn.end_attempt(&key("a"), end, at(2)).expect("it runs");
        assert_eq!(txn.state().deliveries.len(), MAX_PENDING_PER_OWNER);
        let (_, changes) = txn.finish();
        let given_up: Vec<_> = changes.events.iter().filter(|event| event.what == "job.undelivered").collect();
        let detail = json!({"event": "succeeded", "posts": 0, "reason": "too many notifications wait to be delivered"});
        assert_eq!((given_up.len(), given_up[0].resource.as_str(), &given_up[0].detail), (1, "g/w/e/a", &detail));

        // Those of others are not affected.
        let mut state = State::default();
        for n in 0..MAX_PENDING_PER_OWNER {
            let other = DeliveryRecord { owner: Some("other".to_owned()), ..first.clone() };
            state.put(format!("other-{n}"), std::sync::Arc::new(other));
        }
        let mut txn = Txn::new(&state, "test".into());
        submit(&mut txn, "b", all());
        start(&mut txn, "b", 1);
        assert_eq!(txn.state().deliveries.len(), MAX_PENDING_PER_OWNER + 1);
    }
}
