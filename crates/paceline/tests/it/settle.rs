//! Costs that are known only afterwards: the estimate is taken, the difference settled once.

use std::time::Duration;

use paceline::testing::ManualClock;
use paceline::{Answer, Bucket, Cost, Limiter, RefusedBy, Unit};
use paceline_testkit::RedisServer;

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

const BOTH: &str = "500/h, 30000/h of tokens";

async fn all_left(limiter: &Limiter) -> Vec<u64> {
    limiter.settled().await;
    let status = limiter.status("tokens").await.unwrap().unwrap();
    status.quotas.iter().map(|quota| quota.remaining).collect()
}

async fn open(url: &str) -> (Limiter, Bucket) {
    let limiter = Limiter::builder(url).manual_clock(clock()).open().await.unwrap();
    let bucket = limiter.bucket("tokens", BOTH).unwrap();
    (limiter, bucket)
}

#[tokio::test]
async fn each_unit_is_settled_by_itself_and_who_dies_before_leaves_the_estimate() {
    let server = RedisServer::start();
    for url in ["memory:", &server.url()] {
        let (limiter, bucket) = open(url).await;
        let estimate = bucket.cost(1).of(Unit::Tokens, 4_000);
        let call = estimate.acquire().await.unwrap().in_flight();
        assert_eq!(all_left(&limiter).await, [499, 26_000], "{url}");
        // Up in one, down in the other.
        call.settle(Cost::requests(3).and(Unit::Tokens, 1_500));
        assert_eq!(all_left(&limiter).await, [497, 28_500], "{url}");
        // What is not named stays at its estimate.
        estimate.acquire().await.unwrap().in_flight().settle(Cost::only(Unit::Tokens, 4_500));
        assert_eq!(all_left(&limiter).await, [496, 24_000], "{url}");
        estimate.acquire().await.unwrap().in_flight().settle(0);
        assert_eq!(all_left(&limiter).await, [496, 20_000], "{url}");
        // A unit that was not estimated at all.
        bucket.acquire().await.unwrap().in_flight().settle(Cost::only(Unit::Tokens, 500));
        assert_eq!(all_left(&limiter).await, [495, 19_500], "{url}");
        // As estimated, of what nothing counts, and not told at all: the estimate stays.
        estimate.acquire().await.unwrap().in_flight().settle(Cost::requests(1));
        estimate.acquire().await.unwrap().in_flight().settle(Cost::only(Unit::Bytes, 9));
        drop(estimate.acquire().await.unwrap().in_flight());
        std::mem::forget(estimate.acquire().await.unwrap().in_flight());
        assert_eq!(all_left(&limiter).await, [491, 3_500], "{url}");
        drop(bucket.cost(1).of(Unit::Tokens, 3_500).acquire().await.unwrap());
        assert_eq!(all_left(&limiter).await, [491, 3_500], "{url}: dropped unspent");
    }
    // Another process finds it as it was left.
    let (limiter, _) = open(&server.url()).await;
    assert_eq!(all_left(&limiter).await, [491, 3_500]);
}

#[tokio::test]
async fn a_refusal_names_the_quota_of_the_unit_that_is_short() {
    let (limiter, bucket) = bucket(&clock(), BOTH).await;
    let call = bucket.cost(1).of(Unit::Tokens, 20_000);
    call.acquire().await.unwrap().spend();
    let Answer::Refused(refusal) = call.try_acquire().await.unwrap() else { panic!("refused") };
    let RefusedBy::Quota { number: 2, text } = refusal.cause() else { panic!("{refusal:?}") };
    assert_eq!(text, "30000/h of tokens");
    assert_eq!(refusal.retry_after(), Duration::from_secs(1_200));
    bucket.acquire().await.unwrap().spend();
    let never = bucket.cost(1).of(Unit::Tokens, 30_001).acquire().await.unwrap_err();
    let words =
        "a cost of 30001 tokens can never pass quota 2 (30000/h of tokens), which lets 30000";
    assert!(never.is_never() && never.to_string().contains(words), "{never}");
    assert!(bucket.cost(0).of(Unit::Tokens, 0).acquire().await.unwrap_err().is_input());
    assert_eq!(all_left(&limiter).await, [498, 10_000]);
}

#[tokio::test]
async fn who_borrows_has_the_next_wait_until_it_is_repaid() {
    let server = RedisServer::start();
    for (url, policy) in [
        ("memory:", "500/m, 30000/m of tokens"),
        ("memory:", "window 30000/m of tokens, 500/m"),
        (&server.url(), "500/m, 30000/m of tokens"),
    ] {
        let clock = clock();
        let limiter = Limiter::builder(url).manual_clock(clock.clone()).open().await.unwrap();
        let bucket = limiter.bucket("tokens", policy).unwrap();
        let large = bucket.cost(1).of(Unit::Tokens, 50_000);
        assert!(large.acquire().await.unwrap_err().is_never());
        assert!(large.try_acquire().await.unwrap_err().is_never());
        large.borrowing().acquire().await.unwrap().spend();
        let next = bucket.cost(1).of(Unit::Tokens, 1_000);
        let Answer::Refused(refusal) = next.try_acquire().await.unwrap() else { panic!("refused") };
        // 50 000 and 1 000 less 30 000, at 500 a second; a window opens for all of the second part.
        let repaid = if policy.starts_with("window") { 60 } else { 42 };
        assert_eq!(refusal.retry_after(), Duration::from_secs(repaid), "{url} {policy}");
        let answer = large.borrowing().acquire_within(Duration::from_secs(9)).await.unwrap();
        assert!(!answer.is_granted(), "the deadline is for the permit");
        clock.advance(Duration::from_secs(repaid));
        assert!(next.try_acquire().await.unwrap().is_granted(), "{url} {policy}");
    }
}

#[tokio::test]
async fn what_was_borrowed_goes_back_with_a_permit_that_is_not_used_and_is_settled_with_it() {
    let server = RedisServer::start();
    for url in ["memory:", &server.url()] {
        let (limiter, bucket) = open(url).await;
        let large = bucket.cost(2).of(Unit::Tokens, 40_000).borrowing();
        bucket.cost(300).acquire().await.unwrap().spend();
        drop(large.try_acquire().await.unwrap().permit().unwrap());
        assert_eq!(all_left(&limiter).await, [200, 30_000], "{url}");
        let call = large.acquire().await.unwrap().in_flight();
        call.settle(Cost::only(Unit::Tokens, 20_000));
        assert_eq!(all_left(&limiter).await, [198, 10_000], "{url}");
    }
}

#[tokio::test]
async fn what_can_never_be_repaid_is_not_lent() {
    let (limiter, bucket) = bucket(&clock(), "10/s, 100/h of tokens, 0/h of points").await;
    let tokens = |amount| bucket.cost(1).of(Unit::Tokens, amount).borrowing();
    let error = tokens(6_401).acquire().await.unwrap_err();
    let words = "a cost of 6401 tokens can never pass quota 2";
    assert!(error.is_never() && error.to_string().contains(words), "{error}");
    let error = tokens(1).of(Unit::Points, 1).acquire().await.unwrap_err();
    assert!(error.is_never() && error.to_string().contains("quota 3"), "{error}");
    assert!(limiter.status("tokens").await.unwrap().is_none(), "nothing was taken");
    tokens(6_400).acquire().await.unwrap().spend();
    let status = limiter.status("tokens").await.unwrap().unwrap();
    assert_eq!(status.booked_ahead, Duration::from_secs(63 * 3_600));
}

#[tokio::test]
async fn who_borrows_reckons_with_the_policy_that_is_stored() {
    let (limiter, bucket) = bucket(&clock(), "100/h of tokens").await;
    limiter.set_policy("tokens", "40/h of tokens").await.unwrap();
    bucket.cost(Cost::only(Unit::Tokens, 120)).borrowing().acquire().await.unwrap().spend();
    let status = limiter.status("tokens").await.unwrap().unwrap();
    assert_eq!(status.booked_ahead, Duration::from_secs(2 * 3_600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_borrowed_too_much_goes_back_in_order_whatever_runs_beside_it() {
    let server = RedisServer::start();
    let limiter = Limiter::builder(&server.url()).manual_clock(clock()).open().await.unwrap();
    // So slow for requests that they are never full before the tokens are repaid.
    let bucket = limiter.bucket("tokens", "500/30d, 30000/h of tokens").unwrap();
    let large = bucket.cost(1).of(Unit::Tokens, 110_000).borrowing();
    for round in 0..30 {
        bucket.cost(100).acquire().await.unwrap().spend();
        let call = large.acquire().await.unwrap().in_flight();
        call.settle(Cost::only(Unit::Tokens, 10_000));
        assert_eq!(all_left(&limiter).await, [399, 20_000], "settled, {round}");
        // More of one and less of the other: what goes back does so before more is booked.
        let call = bucket.cost(1).of(Unit::Tokens, 20_000).acquire().await.unwrap().in_flight();
        call.settle(Cost::requests(3).and(Unit::Tokens, 10_000));
        assert_eq!(all_left(&limiter).await, [396, 10_000], "up and down, {round}");
        limiter.delete("tokens").await.unwrap();
        bucket.cost(100).acquire().await.unwrap().spend();
        drop(large.acquire().await.unwrap());
        assert_eq!(all_left(&limiter).await, [400, 30_000], "dropped, {round}");
        limiter.delete("tokens").await.unwrap();
    }
}

#[tokio::test]
async fn a_call_that_its_own_policy_does_not_count_is_told_so() {
    let (limiter, bucket) = bucket(&clock(), "30000/m of tokens").await;
    let plain = bucket.acquire().await.unwrap_err();
    assert!(plain.is_input(), "{plain}");
    for words in [
        "(30000/m of tokens)",
        "bucket.cost(1).of(Unit::Tokens, …)",
        "--cost tokens=…",
        "\"tokens\"",
    ] {
        assert!(plain.to_string().contains(words), "{words}: {plain}");
    }
    assert!(bucket.try_acquire().await.unwrap_err().is_input());
    assert!(bucket.cost(5).borrowing().acquire().await.unwrap_err().is_input());
    assert!(bucket.acquire_within(Duration::from_secs(1)).await.unwrap_err().is_input());
    // Requests that nothing counts go with what is counted.
    bucket.cost(1).of(Unit::Tokens, 4_000).acquire().await.unwrap().spend();
    assert_eq!(left(&limiter).await, 26_000);

    let (limiter, bucket) = self::bucket(&clock(), "500/m, 30000/m of tokens").await;
    let output = bucket.cost(1).of(Unit::OutputTokens, 9);
    for error in [
        output.acquire().await.unwrap_err(),
        output.of(Unit::Tokens, 9).borrowing().try_acquire().await.unwrap_err(),
    ] {
        assert!(error.is_input(), "{error}");
        let words = "counts output-tokens; it counts requests and tokens";
        assert!(error.to_string().contains(words), "{error}");
    }
    let (_, plain) = self::bucket(&clock(), "500/m").await;
    let error = plain.cost(Cost::only(Unit::Bytes, 9)).acquire().await.unwrap_err();
    assert!(error.is_input() && error.to_string().contains("counts bytes; it counts requests"));
    // Nothing of it is nothing wrong, and what an operator made of the policy is not the caller's.
    output.of(Unit::OutputTokens, 0).acquire().await.unwrap().spend();
    limiter.set_policy("tokens", "9/m of bytes").await.unwrap();
    bucket.acquire().await.unwrap().spend();
}
