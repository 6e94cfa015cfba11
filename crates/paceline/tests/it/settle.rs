//! Costs that are known only afterwards: the estimate is taken, the difference settled once.

use std::time::Duration;

use paceline::testing::ManualClock;
use paceline::{Answer, Bucket, Limiter};

async fn bucket(clock: &ManualClock, policy: &str) -> (Limiter, Bucket) {
    let limiter = Limiter::builder("memory:").manual_clock(clock.clone()).open().await.unwrap();
    let bucket = limiter.bucket("tokens", policy).unwrap();
    (limiter, bucket)
}

async fn left(limiter: &Limiter) -> u64 {
    limiter.settled().await;
    limiter.status("tokens").await.unwrap().unwrap().quotas[0].remaining
}

fn clock() -> ManualClock {
    ManualClock::at(1_790_000_000_000_000)
}

#[tokio::test]
async fn what_was_estimated_too_much_goes_back() {
    for policy in ["1000/h", "window 1000/h", "window 1000/h guard 10s"] {
        let (limiter, bucket) = bucket(&clock(), policy).await;
        let call = bucket.cost(400).acquire().await.unwrap().in_flight();
        assert_eq!(left(&limiter).await, 600, "{policy}");
        call.settle(150);
        assert_eq!(left(&limiter).await, 850, "{policy}");
        bucket.cost(100).acquire().await.unwrap().in_flight().settle(0);
        assert_eq!(left(&limiter).await, 850, "{policy}");
        bucket.cost(100).acquire().await.unwrap().in_flight().settle(100);
        assert_eq!(left(&limiter).await, 750, "{policy}");
    }
}

#[tokio::test]
async fn what_was_estimated_too_little_is_charged_beyond_what_is_left_and_repaid() {
    let clock = clock();
    let (limiter, bucket) = bucket(&clock, "100/s burst 100").await;
    let call = bucket.cost(10).acquire().await.unwrap().in_flight();
    // Two and a half times the burst.
    call.settle(260);
    assert_eq!(left(&limiter).await, 0);
    // A hundred of them were there, and what is missing comes in 1.6 s.
    let Answer::Refused(refusal) = bucket.try_acquire().await.unwrap() else { panic!("refused") };
    assert_eq!(refusal.retry_after(), Duration::from_millis(1_610));
    clock.advance(Duration::from_millis(1_610));
    assert!(matches!(bucket.try_acquire().await.unwrap(), Answer::Granted(_)));
}

#[tokio::test]
async fn a_call_that_is_dropped_stays_at_its_estimate() {
    let (limiter, bucket) = bucket(&clock(), "1000/h").await;
    drop(bucket.cost(400).acquire().await.unwrap().in_flight());
    assert_eq!(left(&limiter).await, 600);
}
