//! Webhooks of jobs and experiments: which a user may name, how their URL and key are stored, and what the job's explanation says of posts that
//! failed. The server posts in `webhooks`.

use corro_model::batchai::{Notifications, WebhookEvent};
use corro_model::explain::JobStep;
use corro_model::webhook::WebhookUrl;
use corro_model::{ApiError, Secret};
use corro_store::{Ciphertext, JobRecord, State};
use serde::{Deserialize, Serialize};

use crate::app::App;

const PURPOSE: &str = "webhook";

/// URL and key of a webhook. Sealed apart from the job's other secrets, because notifications outlive the job's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookTarget {
    pub url: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
}

impl WebhookTarget {
    /// Takes URL and key out of valid notifications, which keep scheme, host and port.
    pub fn extract(notifications: &mut Option<Notifications>) -> Option<WebhookTarget> {
        let webhook = notifications.as_mut()?.webhook.as_mut()?;
        let redacted = redact(&webhook.url);
        let url = std::mem::replace(&mut webhook.url, Secret::new(redacted));
        Some(WebhookTarget { url, key: webhook.secret.take() })
    }

    /// The URL as logs show it.
    pub fn redacted(&self) -> String {
        redact(&self.url)
    }
}

fn redact(url: &Secret) -> String {
    WebhookUrl::parse(url.expose()).map_or_else(|_| "(not a URL)".to_owned(), |url| url.redacted())
}

impl App {
    /// Refuses notifications, which are at `field`, to a webhook that the server would never post to. Names are judged when they are
    /// resolved, at each post.
    pub fn check_webhook(&self, field: &str, notifications: Option<&Notifications>) -> Result<(), ApiError> {
        let Some(webhook) = notifications.and_then(|notifications| notifications.webhook.as_ref()) else {
            return Ok(());
        };
        let Some(rules) = &self.config.webhooks else {
            let message = "the operator of this server has turned webhooks off: leave notifications out";
            return Err(ApiError::invalid(field, message));
        };
        let url_field = format!("{field}.webhook.url");
        let url = WebhookUrl::parse(webhook.url.expose()).map_err(|problem| ApiError::invalid(&url_field, problem))?;
        let name = url.host().trim_end_matches('.').to_ascii_lowercase();
        let is_local_name = name == "localhost" || name.ends_with(".localhost");
        let ip = if is_local_name { Some(std::net::Ipv4Addr::LOCALHOST.into()) } else { url.ip() };
        match ip.map_or(Ok(()), |ip| rules.check(ip)) {
            Ok(()) => Ok(()),
            Err(kind) => {
                let message = format!(
                    "'{}' is {kind}: name a public host, or ask the operator to allow it with 'corro up --webhook-allow'",
                    url.host()
                );
                Err(ApiError::invalid(&url_field, message))
            }
        }
    }

    pub fn seal_webhook(&self, target: &WebhookTarget) -> Ciphertext {
        self.installation.vault.seal(PURPOSE, &serde_json::to_string(target).expect("a target is plain data"))
    }

    pub fn open_webhook(&self, sealed: &Ciphertext) -> Result<WebhookTarget, ApiError> {
        let text = self.unseal(PURPOSE, sealed)?;
        serde_json::from_str(text.expose())
            .map_err(|_| ApiError::new(500, "InternalError", "The webhook of a stored job cannot be read"))
    }
}

/// Sentences about posts that failed: those that are tried again, and those that were given up.
pub fn describe_failed_posts(state: &State, job: &JobRecord, steps: &[JobStep]) -> Vec<String> {
    let pending = state.deliveries.iter().filter(|(id, _)| id.starts_with(&format!("{}-", job.guid)));
    let pending = pending.filter_map(|(_, delivery)| {
        let failure = delivery.failure.as_ref()?;
        Some(format!(
            "The webhook could not be told yet that the job {}: {}. It is tried again.",
            predicate(delivery.event),
            failure.reason
        ))
    });
    let given_up = steps.iter().filter(|step| step.what == "job.undelivered").filter_map(|step| {
        let event = WebhookEvent::from_name(step.detail["event"].as_str()?)?;
        let (posts, reason) = (step.detail["posts"].as_u64()?, step.detail["reason"].as_str()?);
        let posts = if posts == 1 { "1 post".to_owned() } else { format!("{posts} posts") };
        Some(format!("The webhook was not told that the job {} ({posts}): {reason}.", predicate(event)))
    });
    pending.chain(given_up).collect()
}

/// The event as the end of a sentence that begins with the job.
pub fn predicate(event: WebhookEvent) -> &'static str {
    match event {
        WebhookEvent::Started => "has started",
        WebhookEvent::Succeeded => "has succeeded",
        WebhookEvent::Failed => "has failed",
        WebhookEvent::Stopped => "was stopped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_credential_of_a_webhook_remains_in_notifications() {
        let mut notifications: Option<Notifications> = serde_json::from_value(json!({"webhook": {
            "url": "https://me:canary1@hooks.example:8443/canary2?canary3", "secret": "canary4-canary4", "events": ["failed"]
        }}))
        .expect("a literal");
        let target = WebhookTarget::extract(&mut notifications).expect("a webhook");
        let left = serde_json::to_value(&notifications).expect("plain data");
        assert_eq!(left, json!({"webhook": {"url": "https://hooks.example:8443/***", "events": ["failed"]}}));
        assert_eq!(target.url.expose(), "https://me:canary1@hooks.example:8443/canary2?canary3");
        assert_eq!(target.key.as_ref().map(Secret::expose), Some("canary4-canary4"));
        assert_eq!(target.redacted(), "https://hooks.example:8443/***");
        assert!(!format!("{target:?}").contains("canary"));
        assert_eq!(WebhookTarget::extract(&mut None), None);
    }
}
