//! What a fleet learns from answers: less that is left, limits, and who is refused without a time. Two
//! processes are two limiters on one folder, under one clock moved by hand.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use paceline::http::{Observed, Profiles, Response};
use paceline::testing::ManualClock;
use paceline::{Answer, Bucket, Limiter};
use paceline_testkit::{ScratchDir, scratch_dir};

/// When the clock starts: 2026-03-10T12:00:00Z.
const START: i64 = 1_773_144_000_000_000;

struct World {
    clock: ManualClock,
    limiters: Vec<Limiter>,
    _folder: ScratchDir,
}

async fn world(processes: usize) -> World {
    let clock = ManualClock::at(START);
    let folder = scratch_dir("learn");
    let url = format!("host:{}", folder.path().display());
    let mut limiters = Vec::new();
    for _ in 0..processes {
        let limiter = Limiter::builder(&url).manual_clock(clock.clone());
        limiters.push(limiter.open().await.unwrap());
    }
    World { clock, limiters, _folder: folder }
}

impl World {
    fn bucket(&self, process: usize, policy: &str) -> Bucket {
        self.limiters[process].bucket("api", policy).unwrap()
    }

    async fn remaining(&self) -> u64 {
        let status = self.limiters[0].status("api").await.unwrap().unwrap();
        status.quotas.last().unwrap().remaining
    }

    async fn policy(&self) -> String {
        self.limiters[0].status("api").await.unwrap().and_then(|it| it.policy).unwrap()
    }
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

/// A call that goes out now, and what is answered to it.
async fn call(bucket: &Bucket, status: u16, pairs: &[(&str, &str)], target: &str) -> Observed {
    let Answer::Granted(permit) = bucket.try_acquire().await.unwrap() else {
        panic!("{} refuses", bucket.name());
    };
    answered(bucket, permit.in_flight(), status, pairs, target).await
}

async fn answered(
    bucket: &Bucket,
    call: paceline::InFlight,
    status: u16,
    pairs: &[(&str, &str)],
    target: &str,
) -> Observed {
    let headers = headers(pairs);
    let response = Response { status, headers: &headers, body: None, target };
    bucket.observe_call(call, response, Profiles::builtin().generic()).await.unwrap()
}

fn left(remaining: &str) -> [(&str, &str); 3] {
    [("ratelimit-limit", "100"), ("ratelimit-remaining", remaining), ("ratelimit-reset", "20")]
}

#[tokio::test]
async fn what_one_process_hears_is_left_binds_all_and_more_raises_nothing() {
    let world = world(2).await;
    let [a, b] = [0, 1].map(|process| world.bucket(process, "window 100/m"));
    assert_eq!(call(&a, 200, &left("40"), "/").await, Observed::Nothing);
    assert_eq!(world.remaining().await, 40);
    // Of the other process's call; reordered, repeated and later ones raise nothing.
    for (remaining, ours) in [("99", 39), ("39", 38), ("45", 37), ("36", 36)] {
        call(&b, 200, &left(remaining), "/").await;
        assert_eq!(world.remaining().await, ours, "{remaining}");
    }
    // With the provider's window its count is over; our own five go with ours.
    world.clock.advance(Duration::from_millis(20_100));
    assert_eq!(world.remaining().await, 95);
}

#[tokio::test]
async fn an_answer_that_took_longer_than_its_window_had_left_changes_nothing() {
    let world = world(1).await;
    let bucket = world.bucket(0, "window 100/m");
    let sent = bucket.acquire().await.unwrap().in_flight();
    world.clock.advance(Duration::from_secs(20));
    answered(&bucket, sent, 200, &left("3"), "/").await;
    assert_eq!(world.remaining().await, 99);
    // A quick one of the same words counts.
    let sent = bucket.acquire().await.unwrap().in_flight();
    world.clock.advance(Duration::from_secs(19));
    answered(&bucket, sent, 200, &left("3"), "/").await;
    assert_eq!(world.remaining().await, 3);
}

#[tokio::test]
async fn a_limit_that_is_stated_becomes_the_policy_where_the_handle_allows_it() {
    let world = world(2).await;
    let stated =
        |limit: &'static str| [("ratelimit-policy", limit), ("ratelimit", r#""calls";r=30;t=60"#)];
    let plain = world.bucket(0, "strict 100/m");
    call(&plain, 200, &[("ratelimit-policy", r#""calls";q=60;w=60"#)], "/").await;
    assert!(world.policy().await.starts_with("100/m"), "nobody allowed it");
    world.clock.advance(Duration::from_secs(1));
    let adaptive = world.bucket(0, "strict 100/m").adaptive();
    // One answer of somebody else's limit changes nothing, nor does an error of another kind.
    for (status, limit) in [(200, "2"), (200, "100"), (404, "2"), (502, "2"), (200, "60")] {
        let limit = format!(r#""calls";q={limit};w=60"#);
        call(&adaptive, status, &[("ratelimit-policy", &limit)], "/").await;
        assert!(world.policy().await.starts_with("100/m"), "{limit}");
        world.clock.advance(Duration::from_secs(1));
    }
    call(&adaptive, 200, &stated(r#""calls";q=60;w=60"#), "/").await;
    let lower = "60/m burst 1 guard 60ms, window 60/m guard 60ms, idle 1h";
    assert_eq!(world.policy().await, lower);
    // A higher one is believed by and by, and not at all soon after another was learned.
    for step in 0..3 {
        assert_eq!(world.policy().await, lower, "{step}");
        world.clock.advance(Duration::from_secs(6));
        call(&adaptive, 200, &stated(r#""calls";q=80;w=60"#), "/").await;
    }
    assert!(world.policy().await.starts_with("80/m burst 1"), "{}", world.policy().await);
    // An operator knows better.
    world.limiters[1].pin_policy("api", "strict 90/m").await.unwrap();
    world.clock.advance(Duration::from_secs(20));
    call(&adaptive, 200, &stated(r#""calls";q=60;w=60"#), "/").await;
    assert!(world.policy().await.starts_with("90/m"), "{}", world.policy().await);
}

#[tokio::test]
async fn a_window_that_the_policy_does_not_have_replaces_its_only_one_or_joins_several() {
    for (own, stated, wanted) in [
        (
            "strict 10/s",
            r#""calls";q=100;w=3600"#,
            "100/h burst 1 guard 60ms, window 100/h guard 60ms, idle 1h",
        ),
        (
            "window 10/s, window 1000/h",
            r#""calls";q=20;w=60"#,
            "window 10/s, window 1000/h, window 20/m guard 60ms, idle 1h",
        ),
        // Without a window a higher number may be of a longer one.
        ("strict 10/s", "5000", "10/s burst 1 guard 60ms, window 10/s guard 60ms"),
        // One that comes back later than a second is not of a second.
        ("strict 10/s", "9", "10/s burst 1 guard 60ms, window 10/s guard 60ms"),
    ] {
        let world = world(1).await;
        let bucket = world.bucket(0, own).adaptive();
        let mut policy = String::new();
        for _ in 0..5 {
            let pairs = match stated.starts_with('"') {
                true => [("ratelimit-policy", stated), ("ratelimit", r#""calls";r=19;t=60"#)],
                false => [("x-ratelimit-limit", stated), ("x-ratelimit-reset", "1773147600")],
            };
            if let Answer::Granted(permit) = bucket.try_acquire().await.unwrap() {
                answered(&bucket, permit.in_flight(), 200, &pairs, "/").await;
                policy = world.policy().await;
            }
            world.clock.advance(Duration::from_secs(20));
        }
        assert_eq!(policy, wanted, "{stated} under {own}");
    }
}

#[tokio::test]
async fn c37_one_target_with_bare_refusals_in_two_processes_stops_nobody_while_others_pass() {
    let world = world(3).await;
    let [a, b, c] = [0, 1, 2].map(|process| world.bucket(process, "window 1000/m"));
    for _ in 0..20 {
        assert!(matches!(call(&a, 429, &[], "/retired").await, Observed::BackOff(_)));
        // The third process has heard of it from the store, and says that it passes.
        assert_eq!(call(&c, 200, &[], "/models").await, Observed::Nothing);
        assert!(matches!(call(&b, 429, &[], "/retired").await, Observed::BackOff(_)));
        assert_eq!(call(&c, 200, &[], "/models").await, Observed::Nothing);
    }
    // Two processes, and nobody passes.
    assert!(matches!(call(&a, 429, &[], "/retired").await, Observed::BackOff(_)));
    let observed = call(&b, 429, &[], "/retired").await;
    assert!(matches!(observed, Observed::Suspended { guessed: true, .. }), "{observed:?}");
    assert!(!c.try_acquire().await.unwrap().is_granted());
}

#[tokio::test]
async fn c18_bare_refusals_of_a_fleet_ease_its_pace_by_steps_and_quiet_brings_it_back() {
    let world = world(2).await;
    let [a, b] = [0, 1].map(|process| world.bucket(process, "100/s").adaptive());
    let mut limits = Vec::new();
    for _ in 0..2 {
        call(&a, 429, &[], "/a").await;
        let observed = call(&b, 429, &[], "/b").await;
        let Observed::Suspended { left, guessed: true, .. } = observed else {
            panic!("{observed:?}");
        };
        limits.push(world.policy().await);
        world.clock.advance(left + Duration::from_secs(1));
        call(&a, 200, &[], "/a").await;
    }
    assert_eq!(limits, ["80/s, idle 1h", "64/s, idle 1h"]);
    // Back to just below what was refused last, and after ten minutes on from there.
    let mut climbed = Vec::new();
    for _ in 0..800 {
        world.clock.advance(Duration::from_secs(1));
        call(&b, 200, &[], "/a").await;
        climbed.push(world.policy().await);
    }
    let at = |second: usize| climbed[second - 1].as_str();
    assert_eq!([at(1), at(60), at(550)], ["64/s, idle 1h", "76/s, idle 1h", "76/s, idle 1h"]);
    assert_eq!(at(800), "100/s, idle 1h");
}

#[tokio::test]
async fn limits_of_several_units_reach_the_quotas_that_count_them() {
    let world = world(1).await;
    let bucket = world.bucket(0, "500/m, 30000/m of tokens").adaptive();
    let left = async || {
        let status = world.limiters[0].status("api").await.unwrap().unwrap();
        status.quotas.iter().map(|quota| quota.remaining).collect::<Vec<_>>()
    };
    let answer = [
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-limit-tokens", "20000"),
        ("x-ratelimit-remaining-requests", "120"),
        ("x-ratelimit-remaining-tokens", "15000"),
        ("x-ratelimit-reset-requests", "120ms"),
        ("x-ratelimit-reset-tokens", "15s"),
    ];
    let openai = Profiles::builtin().get("openai").unwrap();
    let hears = async |pairs: &[(&str, &str)]| {
        let cost = bucket.cost(1).of(paceline::Unit::Tokens, 4_000);
        let Answer::Granted(permit) = cost.try_acquire().await.unwrap() else { panic!("room") };
        let headers = headers(pairs);
        let response = Response { status: 200, headers: &headers, body: None, target: "/" };
        bucket.observe_call(permit.in_flight(), response, openai).await.unwrap();
    };
    hears(&answer[2..]).await;
    assert_eq!(left().await, [120, 15_000]);
    // A limit without a window is of the quota's when its tokens come back within that.
    hears(&answer).await;
    hears(&answer[..2]).await;
    assert_eq!(world.policy().await, "500/m, 20000/m of tokens, idle 1h");
    // A policy that counts requests alone learns nothing from tokens.
    let plain = world.limiters[0].bucket("plain", "30000/m").unwrap().adaptive();
    let Answer::Granted(permit) = plain.try_acquire().await.unwrap() else { panic!("room") };
    let headers = headers(&answer[1..2]);
    let response = Response { status: 200, headers: &headers, body: None, target: "/" };
    plain.observe_call(permit.in_flight(), response, openai).await.unwrap();
    let status = plain.status().await.unwrap().unwrap();
    assert_eq!(status.policy.as_deref(), Some("30000/m"));
}

#[tokio::test]
async fn at_the_moment_that_was_stated_the_windows_are_as_the_providers() {
    // Its window is full, and it says so with a success, or by refusing; its own window began before.
    for status in [200, 429] {
        let world = world(1).await;
        let bucket = world.bucket(0, "window 5/10s");
        let mut last = None;
        for _ in 0..5 {
            last = Some(bucket.acquire().await.unwrap().in_flight());
        }
        world.clock.advance(Duration::from_secs(2));
        let pairs = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "8")];
        let observed = answered(&bucket, last.unwrap(), status, &pairs, "/").await;
        let seconds = Duration::from_secs(8);
        let suspended = matches!(observed, Observed::Suspended { left, .. } if left == seconds);
        assert!(suspended, "{observed:?}");
        world.clock.advance(seconds - Duration::from_micros(1));
        assert!(!bucket.try_acquire().await.unwrap().is_granted(), "{status}");
        world.clock.advance(Duration::from_micros(1));
        let Answer::Granted(first) = bucket.try_acquire().await.unwrap() else {
            panic!("{status}: none goes at the told time");
        };
        first.in_flight().answered();
        for _ in 0..4 {
            assert!(bucket.acquire().await.is_ok());
        }
    }
}

#[tokio::test]
async fn nothing_left_without_a_time_is_asked_about_again_soon() {
    let world = world(1).await;
    let bucket = world.bucket(0, "strict 5000/h");
    call(&bucket, 404, &[("x-ratelimit-remaining", "0")], "/").await;
    world.clock.advance(Duration::from_secs(29));
    assert!(!bucket.try_acquire().await.unwrap().is_granted());
    world.clock.advance(Duration::from_secs(2));
    assert!(bucket.try_acquire().await.unwrap().is_granted());
    // Of a broken gateway it means nothing.
    call(&world.limiters[0].bucket("b", "strict 5000/h").unwrap(), 502, &left("0"), "/").await;
    assert_eq!(world.limiters[0].status("b").await.unwrap().unwrap().quotas[1].remaining, 4999);
}
