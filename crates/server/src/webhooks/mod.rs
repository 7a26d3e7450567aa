//! Posts the notifications of jobs to their webhooks. A notification is a record of the store, written in the transaction of the
//! job's transition, so none is lost with the server; it is removed after the receiver has accepted it. A server that is killed
//! in between posts it again: at least once, with the same id.
//!
//! Bounded: the number of notifications (by the store), posts at the same time, posts of one notification, and the time of a
//! post. A failure never affects the job; it is in the job's history.
//!
//! Reading order: `schedule` (what is posted when), `request` (document and signature), [`WebhookTransport`] (supplied by the
//! embedder, which has the HTTP client).

mod request;
mod schedule;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use corro_model::{ApiError, Secret};
use corro_store::{DeliveryFailure, DeliveryRecord};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::schedule::{PAUSES, PostInFlight, choose};
use crate::app::App;

/// Time limit of one post.
pub const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two looks at the notifications, however often the state changes.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time between two looks.
const MAX_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a result could not be recorded.
const RECORD_PAUSE: Duration = Duration::from_secs(5);

/// The HTTP client. It connects only to addresses that the operator's rules allow, follows no redirect and reads no body.
pub trait WebhookTransport: Send + Sync + 'static {
    fn post<'a>(&'a self, post: &'a WebhookPost) -> Pin<Box<dyn Future<Output = PostResult> + Send + 'a>>;
}

/// One request.
pub struct WebhookPost {
    pub url: Secret,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Outcome of one post. Reasons hold no part of the URL and no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostResult {
    Accepted,
    /// Failed for now; it is tried again.
    Failed(String),
    /// Not allowed; another post would be refused, too.
    Refused(String),
}

/// Runs until the server stops. Without a transport, notifications of jobs from before webhooks were turned off are given up.
pub async fn run(app: App, transport: Option<Arc<dyn WebhookTransport>>, mut stopping: watch::Receiver<bool>) {
    let mut changes = app.store.changes();
    let mut posts: JoinSet<()> = JoinSet::new();
    let mut in_flight = HashMap::new();
    loop {
        changes.mark_unchanged();
        let (state, timeline) = (app.snapshot(), app.timeline());
        let under_way: Vec<PostInFlight> = in_flight.values().cloned().collect();
        let waiting = state.deliveries.iter().filter(|(id, _)| under_way.iter().all(|post| post.id != **id));
        let choice = choose(waiting.map(|(id, delivery)| (id, &**delivery)), &under_way, |stamp| timeline.age(stamp));
        for id in choice.ready {
            let delivery = state.deliveries[&id].clone();
            let post = PostInFlight { id: id.clone(), job: delivery.job.clone(), owner: delivery.owner.clone() };
            let task = posts.spawn(deliver(app.clone(), transport.clone(), id, delivery));
            in_flight.insert(task.id(), post);
        }
        tokio::select! {
            // An error means that the sender is gone, and the server with it. What is under way is posted again at the next start.
            _ = stopping.wait_for(|stop| *stop) => return,
            Some(ended) = posts.join_next_with_id() => {
                let task = ended.map_or_else(|error| error.id(), |(task, ())| task);
                in_flight.remove(&task);
            }
            changed = changes.changed() => if changed.is_err() { return },
            () = sleep(choice.next.unwrap_or(MAX_INTERVAL).min(MAX_INTERVAL)) => {}
        }
        if !state.deliveries.is_empty() {
            sleep(MIN_INTERVAL).await;
        }
    }
}

/// Result of a post, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Delivered,
    TryAgain { posts: u32, reason: String },
    GivenUp { posts: u32, reason: String },
}

impl Outcome {
    fn new(earlier_posts: u32, result: PostResult) -> Outcome {
        let posts = earlier_posts.saturating_add(1);
        match result {
            PostResult::Accepted => Outcome::Delivered,
            PostResult::Failed(reason) if posts as usize <= PAUSES.len() => Outcome::TryAgain { posts, reason },
            PostResult::Failed(reason) | PostResult::Refused(reason) => Outcome::GivenUp { posts, reason },
        }
    }
}

/// Posts one notification once, and records the result.
async fn deliver(app: App, transport: Option<Arc<dyn WebhookTransport>>, id: String, delivery: Arc<DeliveryRecord>) {
    let result = post(&app, transport, &id, &delivery).await;
    let earlier_posts = delivery.failure.as_ref().map_or(0, |failure| failure.count);
    let outcome = Outcome::new(earlier_posts, result);
    log(&delivery, &outcome);
    // The store logs why it cannot write. The receiver gets nothing twice meanwhile.
    while record(&app, &id, outcome.clone()).await.is_err() {
        sleep(RECORD_PAUSE).await;
    }
}

async fn post(
    app: &App,
    transport: Option<Arc<dyn WebhookTransport>>,
    id: &str,
    delivery: &DeliveryRecord,
) -> PostResult {
    let Some(transport) = transport else {
        return PostResult::Refused("the operator has turned webhooks off".to_owned());
    };
    let target = match app.open_webhook(&delivery.webhook) {
        Ok(target) => target,
        Err(error) => return PostResult::Refused(error.message),
    };
    tracing::debug!(job = %delivery.job, event = delivery.event.name(), url = target.redacted(), "a webhook is posted to");
    let post = request::build(&app.snapshot(), &app.installation.subscription, id, delivery, &target);
    let result = timeout(POST_TIMEOUT, transport.post(&post)).await;
    result.unwrap_or_else(|_| PostResult::Failed(format!("no response within {} s", POST_TIMEOUT.as_secs())))
}

fn log(delivery: &DeliveryRecord, outcome: &Outcome) {
    let (job, event) = (&delivery.job, delivery.event.name());
    match outcome {
        Outcome::Delivered => tracing::debug!(%job, event, "a webhook accepted a notification"),
        Outcome::TryAgain { posts: 1, reason } => {
            tracing::info!(%job, event, reason, "a webhook cannot be notified; it is tried again");
        }
        Outcome::TryAgain { posts, reason } => {
            tracing::debug!(%job, event, posts, reason, "a webhook cannot be notified")
        }
        Outcome::GivenUp { posts, reason } => {
            tracing::warn!(%job, event, posts, reason, "a webhook was not notified");
        }
    }
}

async fn record(app: &App, id: &str, outcome: Outcome) -> Result<(), ApiError> {
    let (id, now) = (id.to_owned(), app.now());
    let commit = app.store.commit_relief(move |txn| {
        let Some(delivery) = txn.get::<DeliveryRecord>(&id) else { return Ok(()) };
        match &outcome {
            Outcome::Delivered => txn.remove::<DeliveryRecord>(&id),
            Outcome::TryAgain { posts, reason } => {
                let failure = DeliveryFailure { count: *posts, last: now, reason: reason.clone() };
                txn.update::<DeliveryRecord>(&id, |delivery| delivery.failure = Some(failure));
            }
            Outcome::GivenUp { posts, reason } => {
                txn.remove::<DeliveryRecord>(&id);
                txn.give_up_delivery(&delivery.job, delivery.event, *posts, reason);
            }
        }
        Ok::<_, ApiError>(())
    });
    commit.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_given_up_after_five_posts_or_a_refusal() {
        let failed = |earlier| Outcome::new(earlier, PostResult::Failed("r".to_owned()));
        let reason = || "r".to_owned();
        for earlier in 0..4 {
            assert_eq!(failed(earlier), Outcome::TryAgain { posts: earlier + 1, reason: reason() });
        }
        assert_eq!(failed(4), Outcome::GivenUp { posts: 5, reason: reason() });
        let refused = Outcome::new(0, PostResult::Refused(reason()));
        assert_eq!(refused, Outcome::GivenUp { posts: 1, reason: reason() });
        assert_eq!(Outcome::new(4, PostResult::Accepted), Outcome::Delivered);
    }
}
