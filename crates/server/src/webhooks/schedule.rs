//! Chooses which notifications are posted now. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use corro_model::{JobKey, Timestamp};
use corro_store::DeliveryRecord;

/// Pauses after failed posts; one more post than pauses. With the time limit of a post, all happens within ten minutes.
pub const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(8), Duration::from_secs(60), Duration::from_secs(480)];
/// Posts at the same time.
const MAX_POSTS: usize = 16;
/// Posts at the same time for one principal, so that a slow receiver does not delay those of others.
const MAX_POSTS_PER_OWNER: usize = 4;

/// A post that is under way.
#[derive(Clone, Debug)]
pub struct PostInFlight {
    pub id: String,
    pub job: JobKey,
    pub owner: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Ids of the notifications to post now, in order.
    pub ready: Vec<String>,
    /// Time until another one is due, if one is.
    pub next: Option<Duration>,
}

/// Notifications are posted in the order of their transitions, one at a time for each job. `age` is the time since a timestamp.
pub fn choose<'a>(
    deliveries: impl Iterator<Item = (&'a String, &'a DeliveryRecord)>,
    in_flight: &[PostInFlight],
    age: impl Fn(Timestamp) -> Duration,
) -> Choice {
    let mut choice = Choice::default();
    let mut due = Vec::new();
    for (id, delivery) in deliveries {
        match time_until_due(delivery, &age) {
            Duration::ZERO => due.push((delivery.at, id, delivery)),
            wait => choice.next = Some(choice.next.map_or(wait, |next| next.min(wait))),
        }
    }
    due.sort_by_key(|(at, id, _)| (*at, *id));
    let mut busy_jobs: BTreeSet<&JobKey> = in_flight.iter().map(|post| &post.job).collect();
    let mut owners: Vec<&Option<String>> = in_flight.iter().map(|post| &post.owner).collect();
    for (_, id, delivery) in due {
        if owners.len() >= MAX_POSTS {
            break;
        }
        let n_of_owner = owners.iter().filter(|owner| **owner == &delivery.owner).count();
        if n_of_owner >= MAX_POSTS_PER_OWNER || !busy_jobs.insert(&delivery.job) {
            continue;
        }
        owners.push(&delivery.owner);
        choice.ready.push(id.clone());
    }
    choice
}

fn time_until_due(delivery: &DeliveryRecord, age: impl Fn(Timestamp) -> Duration) -> Duration {
    let Some(failure) = &delivery.failure else { return Duration::ZERO };
    let pause = PAUSES[(failure.count.max(1) as usize - 1).min(PAUSES.len() - 1)];
    pause.saturating_sub(age(failure.last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corro_model::GroupKey;
    use corro_model::batchai::WebhookEvent;
    use corro_store::{DeliveryFailure, Vault};
    use std::collections::BTreeMap;

    const NOW: i64 = 1_000_000;

    fn delivery(job: &str, owner: &str, at: i64, failures: Option<(u32, i64)>) -> DeliveryRecord {
        DeliveryRecord {
            job: GroupKey::new("g").workspace("w").experiment("e").job(job),
            name: job.to_owned(),
            owner: Some(owner.to_owned()),
            webhook: Vault::with_key(&[1; 32]).expect("a key").seal("webhook", "{}"),
            event: WebhookEvent::Started,
            attempt: 1,
            at: Timestamp::from_millis(at),
            started: None,
            ended: None,
            exit_code: None,
            error: None,
            failure: failures.map(|(count, last)| DeliveryFailure {
                count,
                last: Timestamp::from_millis(last),
                reason: "r".to_owned(),
            }),
        }
    }

    fn chosen(deliveries: &BTreeMap<String, DeliveryRecord>, in_flight: &[PostInFlight]) -> Choice {
        let age = |stamp| Timestamp::from_millis(NOW).since(stamp);
        choose(deliveries.iter(), in_flight, age)
    }

    fn check(deliveries: &[(&str, DeliveryRecord)], ready: &[&str], next: Option<u64>) {
        let table = deliveries.iter().map(|(id, delivery)| ((*id).to_owned(), delivery.clone())).collect();
        let expected =
            Choice { ready: ready.iter().map(|id| (*id).to_owned()).collect(), next: next.map(Duration::from_millis) };
        assert_eq!(chosen(&table, &[]), expected);
    }

    #[test]
    fn all_posts_of_a_notification_are_within_ten_minutes() {
        let posts = super::super::POST_TIMEOUT * (PAUSES.len() as u32 + 1);
        let total = PAUSES.iter().sum::<Duration>() + posts;
        assert!(total <= Duration::from_secs(600), "{total:?}");
        assert!(PAUSES.is_sorted());
    }

    #[test]
    fn failed_posts_are_repeated_after_growing_pauses() {
        check(&[], &[], None);
        check(&[("a", delivery("a", "o", 5, None))], &["a"], None);
        for (failures, pause) in [(1, 1_000), (2, 8_000), (3, 60_000), (4, 480_000), (5, 480_000)] {
            let after = |millis| delivery("a", "o", 5, Some((failures, NOW - millis)));
            check(&[("a", after(pause - 1))], &[], Some(1));
            check(&[("a", after(pause))], &["a"], None);
        }
        // The clock was set back.
        check(&[("a", delivery("a", "o", 5, Some((1, NOW + 3_600_000))))], &[], Some(1_000));
        let waiting = [("a", delivery("a", "o", 1, Some((2, NOW)))), ("b", delivery("b", "o", 2, Some((1, NOW))))];
        check(&waiting, &[], Some(1_000));
    }

    #[test]
    fn notifications_of_a_job_are_posted_one_after_another() {
        let started = delivery("a", "o", 1, None);
        let succeeded = delivery("a", "o", 2, None);
        check(&[("z-started", started.clone()), ("a-succeeded", succeeded.clone())], &["z-started"], None);
        // One that failed does not hold back the others.
        let failed = delivery("a", "o", 1, Some((1, NOW)));
        check(&[("z-started", failed), ("a-succeeded", succeeded)], &["a-succeeded"], Some(1_000));
        let in_flight = PostInFlight { id: "x".to_owned(), job: started.job.clone(), owner: None };
        let table = BTreeMap::from([("z-started".to_owned(), started)]);
        assert_eq!(chosen(&table, &[in_flight]), Choice::default());
    }

    #[test]
    fn one_principal_does_not_take_all_posts() {
        let many = |owner: &str, count: usize| {
            let one = |n| (format!("{owner}-{n:02}"), delivery(&format!("{owner}{n}"), owner, 1, None));
            (0..count).map(one).collect::<BTreeMap<_, _>>()
        };
        let mut table = many("a", 10);
        table.extend(many("b", 1));
        assert_eq!(chosen(&table, &[]).ready, ["a-00", "a-01", "a-02", "a-03", "b-00"]);
        for owner in ["c", "d", "e", "f"] {
            table.extend(many(owner, 10));
        }
        assert_eq!(chosen(&table, &[]).ready.len(), MAX_POSTS);
    }
}
