//! One call goes first at the end of a suspension that a refusal caused.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paceline::testing::ManualClock;
use paceline::{Answer, Bucket, InFlight, Limiter, ProbeStatus};
use paceline_testkit::RedisServer;

use crate::limiter::{ms, settled};

const START: i64 = 1_790_000_000_000_000;

async fn bucket(policy: &str) -> (ManualClock, Limiter, Bucket) {
    let clock = ManualClock::at(START);
    let limiter = Limiter::builder("memory:").manual_clock(clock.clone());
    let limiter = limiter.probe(Duration::from_secs(5)).open().await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    (clock, limiter, bucket)
}

async fn refused(limiter: &Limiter) {
    let left = limiter.suspend_refused("api", Duration::from_secs(2), "429").await.unwrap();
    assert_eq!(left, Duration::from_secs(2));
}

async fn probe_status(limiter: &Limiter) -> Option<(Option<ProbeStatus>, Duration)> {
    let status = limiter.status("api").await.unwrap().unwrap();
    status.suspension.map(|it| (it.probe, it.left))
}

#[tokio::test]
async fn one_permit_is_the_first_and_its_answer_lets_the_others_follow() {
    let (clock, limiter, bucket) = bucket("10/s burst 3").await;
    refused(&limiter).await;
    assert_eq!(
        probe_status(&limiter).await,
        Some((Some(ProbeStatus::Ahead), Duration::from_secs(2)))
    );
    let Answer::Refused(refusal) = bucket.try_acquire().await.unwrap() else { panic!("refused") };
    assert_eq!(refusal.retry_after(), Duration::from_secs(2));
    let mut waits = pin!(bucket.acquire());
    assert!(settled(waits.as_mut()).await.is_none());
    clock.advance(Duration::from_secs(2));
    assert_eq!(
        probe_status(&limiter).await,
        Some((Some(ProbeStatus::Awaited), Duration::from_secs(5)))
    );
    clock.advance(ms(50));
    let first = settled(waits.as_mut()).await.expect("goes first").unwrap();
    assert!(first.is_probe());
    let call = first.in_flight();
    assert!(call.is_probe());
    assert_eq!(probe_status(&limiter).await, Some((Some(ProbeStatus::UnderWay), ms(4_950))));
    let mut others: Vec<_> = (0..4).map(|_| Box::pin(bucket.acquire())).collect();
    for _ in 0..100 {
        clock.advance(ms(10));
        for other in &mut others {
            assert!(settled(other.as_mut()).await.is_none());
        }
    }
    call.answered();
    assert_eq!(probe_status(&limiter).await, None);
    let mut went = 0;
    for _ in 0..60 {
        clock.advance(ms(10));
        let mut still = Vec::new();
        for mut other in others {
            match settled(other.as_mut()).await {
                Some(permit) => {
                    let permit = permit.unwrap();
                    assert!(!permit.is_probe());
                    permit.spend();
                    went += 1;
                }
                None => still.push(other),
            }
        }
        others = still;
    }
    assert_eq!(went, 4);
}

#[tokio::test]
async fn settling_its_cost_tells_that_its_answer_has_come_too() {
    for (cost, actual) in [(1, 0), (1, 1), (1, 3), (3, 1)] {
        let (clock, limiter, bucket) = bucket("10/s burst 3").await;
        refused(&limiter).await;
        clock.advance(Duration::from_secs(2));
        let first = bucket.cost(cost).try_acquire().await.unwrap().permit().unwrap();
        assert!(first.is_probe());
        first.in_flight().settle(actual);
        limiter.settled().await;
        assert_eq!(probe_status(&limiter).await, None, "{cost} {actual}");
    }
}

#[tokio::test]
async fn a_first_permit_that_is_dropped_leaves_it_to_another() {
    let (clock, limiter, bucket) = bucket("10/s burst 1").await;
    bucket.acquire().await.unwrap().spend();
    refused(&limiter).await;
    let mut waits = pin!(bucket.acquire());
    assert!(settled(waits.as_mut()).await.is_none());
    let mut second = pin!(bucket.acquire());
    assert!(settled(second.as_mut()).await.is_none());
    clock.advance(ms(2_150));
    let first = settled(waits.as_mut()).await.expect("goes first").unwrap();
    assert!(first.is_probe());
    drop(first);
    limiter.settled().await;
    let (probe, _) = probe_status(&limiter).await.expect("it is still suspended");
    assert_eq!(probe, Some(ProbeStatus::Awaited));
    let mut went = None;
    for _ in 0..40 {
        clock.advance(ms(10));
        went = settled(second.as_mut()).await;
        if went.is_some() {
            break;
        }
    }
    let second = went.expect("the other goes first").unwrap();
    assert!(second.is_probe());
    second.in_flight().answered();
    assert_eq!(probe_status(&limiter).await, None);
}

#[tokio::test]
async fn who_only_spends_the_first_permit_or_dies_holds_the_others_for_the_patience() {
    let (clock, limiter, bucket) = bucket("10/s burst 5").await;
    refused(&limiter).await;
    clock.advance(Duration::from_secs(2));
    let first = bucket.try_acquire().await.unwrap().permit().unwrap();
    assert!(first.is_probe());
    first.spend();
    clock.advance(ms(4_999));
    assert!(!bucket.try_acquire().await.unwrap().is_granted());
    clock.advance(ms(1));
    let other = bucket.try_acquire().await.unwrap().permit().unwrap();
    assert!(!other.is_probe());
    other.spend();
}

#[tokio::test]
async fn what_an_operator_suspends_has_no_first_and_is_not_ended_by_one() {
    let (clock, limiter, bucket) = bucket("10/s burst 5").await;
    refused(&limiter).await;
    clock.advance(Duration::from_secs(2));
    let call = bucket.try_acquire().await.unwrap().permit().unwrap().in_flight();
    limiter.suspend("api", Duration::from_secs(60), "maintenance").await.unwrap();
    call.answered();
    assert_eq!(probe_status(&limiter).await, Some((None, Duration::from_secs(60))));
    // Without patience nobody goes first after a refusal either.
    let plain = Limiter::builder("memory:").manual_clock(clock.clone()).probe(Duration::ZERO);
    let plain = plain.open().await.unwrap();
    plain.suspend_refused("api", Duration::from_secs(2), "429").await.unwrap();
    assert_eq!(probe_status(&plain).await, Some((None, Duration::from_secs(2))));
}

/// Lets the clock go on by `span` in steps, with time for answers of the server between them, until
/// `done`; whether it was.
async fn goes_on(clock: &ManualClock, span: Duration, done: impl Fn() -> bool) -> bool {
    for _ in 0..span.as_millis() / 10 {
        if done() {
            return true;
        }
        clock.advance(ms(10));
        tokio::time::sleep(ms(2)).await;
    }
    done()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c38_of_twenty_waiters_on_four_limiters_one_goes_first_and_then_all() {
    let server = RedisServer::start();
    let clock = ManualClock::at(START);
    let went: Arc<Mutex<Vec<(i64, InFlight)>>> = Arc::default();
    let mut buckets = Vec::new();
    for _ in 0..4 {
        let builder = Limiter::builder(&server.url()).manual_clock(clock.clone());
        let limiter = builder.timeout(Duration::from_secs(5)).open().await.unwrap();
        buckets.push(limiter.bucket("api", "10/s burst 1").unwrap());
    }
    buckets[0].acquire().await.unwrap().spend();
    refused_by(&buckets[0]).await;
    for bucket in &buckets {
        for _ in 0..5 {
            let (bucket, went, clock) = (bucket.clone(), Arc::clone(&went), clock.clone());
            tokio::spawn(async move {
                let call = bucket.acquire().await.unwrap().in_flight();
                went.lock().unwrap().push((clock.now() - START, call));
            });
        }
    }
    let count = || went.lock().unwrap().len();
    // Nobody before the two seconds are over.
    assert!(!goes_on(&clock, ms(1_990), || count() > 0).await);
    assert!(goes_on(&clock, ms(3_000), || count() > 0).await, "one goes first");
    assert!(!goes_on(&clock, ms(1_500), || count() > 1).await, "and nobody else");
    let (_, first) = went.lock().unwrap().pop().unwrap();
    assert!(first.is_probe());
    // Refused again: the same once more.
    refused_by(&buckets[1]).await;
    first.answered();
    assert!(!goes_on(&clock, ms(1_990), || count() > 0).await);
    assert!(goes_on(&clock, ms(3_000), || count() > 0).await, "one goes first");
    assert!(!goes_on(&clock, ms(1_000), || count() > 1).await, "and nobody else");
    let (_, first) = went.lock().unwrap().pop().unwrap();
    assert!(first.is_probe());
    let passed = clock.now() - START;
    first.answered();
    assert!(goes_on(&clock, Duration::from_secs(6), || count() == 18).await, "{}", count());
    let went = std::mem::take(&mut *went.lock().unwrap());
    assert!(went.iter().all(|(_, call)| !call.is_probe()));
    // Paced: by ten a second, and what one of them woke late by.
    let (last, _) = went.last().unwrap();
    assert!(last - passed >= 1_700_000, "{last} {passed}");
}

/// As an answer that was observed tells.
async fn refused_by(bucket: &Bucket) {
    #[cfg(feature = "http")]
    {
        use paceline::http::{Observed, Profiles, Response};

        let mut headers = http::HeaderMap::new();
        headers.insert("retry-after", http::HeaderValue::from_static("2"));
        let response = Response { status: 429, headers: &headers, body: None, target: "/" };
        let observed = bucket.observe(response, Profiles::builtin().generic()).await.unwrap();
        assert!(matches!(observed, Observed::Suspended { guessed: false, .. }), "{observed:?}");
    }
    #[cfg(not(feature = "http"))]
    bucket.suspend_refused(Duration::from_secs(2), "429").await.unwrap();
}
