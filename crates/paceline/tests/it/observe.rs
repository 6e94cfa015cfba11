//! What answers do to a bucket, in every store alike.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use paceline::http::{Observed, Profiles, Response};
use paceline::testing::ManualClock;
use paceline::{Bucket, Limiter};

struct World {
    limiter: Limiter,
    bucket: Bucket,
}

async fn world() -> World {
    let clock = ManualClock::at(1_773_144_000_000_000);
    let limiter = Limiter::builder("memory:").manual_clock(clock).open().await.unwrap();
    let bucket = limiter.bucket("api", "50/s").unwrap();
    World { limiter, bucket }
}

impl World {
    async fn sees(&self, status: u16, headers: &[(&str, &str)], target: &str) -> Observed {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let response = Response { status, headers: &map, body: None, target };
        self.bucket.observe(response, Profiles::builtin().generic()).await.unwrap()
    }

    async fn suspension(&self) -> Option<(Duration, String)> {
        let status = self.limiter.status("api").await.unwrap()?;
        status.suspension.map(|it| (it.left, it.reason))
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn a_stated_time_suspends_the_fleet_with_what_said_it_and_the_later_end_wins() {
    let world = world().await;
    let observed = world.sees(429, &[("Retry-After", "30")], "/a").await;
    let suspended = |left| Observed::Suspended { left, guessed: false, clamped_from: None };
    assert_eq!(observed, suspended(seconds(30)));
    let (left, reason) = world.suspension().await.unwrap();
    assert_eq!((left, reason.as_str()), (seconds(30), "429, retry-after: 30"));
    // A shorter one and a success that was in flight lift nothing.
    assert_eq!(world.sees(429, &[("Retry-After", "1")], "/a").await, suspended(seconds(30)));
    assert_eq!(world.sees(200, &[], "/a").await, Observed::Nothing);
    assert_eq!(world.suspension().await.unwrap().0, seconds(30));
}

#[tokio::test]
async fn c32_a_time_beyond_the_longest_wait_is_cut_and_the_raw_value_told() {
    let world = world().await;
    let observed = world.sees(429, &[("Retry-After", "9999999999")], "/a").await;
    let Observed::Suspended { left, clamped_from: Some(asked), .. } = observed else {
        panic!("{observed:?}");
    };
    assert_eq!((left, asked), (seconds(86_400), seconds(9_999_999_999)));
    assert!(world.suspension().await.unwrap().1.contains("9999999999"));
}

#[tokio::test]
async fn c32_a_thousand_times_at_once_is_a_few_dozen_calls_a_minute() {
    let world = world().await;
    let mut waited = Duration::ZERO;
    let mut calls = 0;
    while calls < 1_000 && waited < seconds(3_600) {
        let observed = world.sees(429, &[("Retry-After", "0")], "/a").await;
        let Observed::Suspended { left, .. } = observed else { panic!("{observed:?}") };
        assert!(left >= seconds(1), "{left:?}");
        waited += left;
        calls += 1;
        world.limiter.resume("api").await.unwrap();
    }
    assert!(calls < 100, "{calls} calls in {waited:?}");
}

#[tokio::test]
async fn c37_a_bare_refusal_rests_its_caller_and_only_a_second_target_stops_the_fleet() {
    let world = world().await;
    for _ in 0..20 {
        let observed = world.sees(429, &[], "/retired").await;
        assert!(matches!(observed, Observed::BackOff(_)), "{observed:?}");
        for other in ["/a", "/b", "/c"] {
            assert_eq!(world.sees(200, &[], other).await, Observed::Nothing);
        }
    }
    assert_eq!(world.suspension().await, None);
    world.sees(429, &[], "/retired").await;
    let observed = world.sees(429, &[], "/a").await;
    assert!(matches!(observed, Observed::Suspended { guessed: true, .. }), "{observed:?}");
    assert!(world.suspension().await.unwrap().1.starts_with("guessed: 429 without a time"));
}

#[tokio::test]
async fn c34_c35_caches_and_other_errors_stop_nothing() {
    let world = world().await;
    let empty = ("X-RateLimit-Remaining", "0");
    for (status, headers) in [
        (403, vec![("X-RateLimit-Remaining", "4999"), ("X-RateLimit-Reset", "1773147600")]),
        (200, vec![empty, ("X-RateLimit-Reset", "1773147600"), ("Age", "7200")]),
        (500, vec![]),
        (404, vec![]),
    ] {
        assert_eq!(world.sees(status, &headers, "/a").await, Observed::Nothing, "{status}");
    }
    assert_eq!(world.suspension().await, None);
    let headers = [empty, ("X-RateLimit-Limit", "60"), ("X-RateLimit-Reset", "1773144060")];
    let observed = world.sees(200, &headers, "/a").await;
    assert!(matches!(observed, Observed::Suspended { left, .. } if left == seconds(60)));
}

#[tokio::test]
async fn what_a_cache_kept_and_what_nobody_means_stop_nothing() {
    let world = world().await;
    let kept = [("Retry-After", "30"), ("Age", "5")];
    assert_eq!(world.sees(429, &kept, "/a").await, Observed::Nothing);
    // A reset in a thousand years, with a success.
    let senseless = [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "99999999999")];
    assert_eq!(world.sees(200, &senseless, "/a").await, Observed::Nothing);
    assert_eq!(world.suspension().await, None);
}

#[tokio::test]
async fn how_long_the_fleet_stops_does_not_grow_with_one_targets_refusals() {
    let world = world().await;
    for _ in 0..10 {
        let observed = world.sees(429, &[], "/retired").await;
        assert!(matches!(observed, Observed::BackOff(_)), "{observed:?}");
        assert_eq!(world.sees(200, &[], "/a").await, Observed::Nothing);
    }
    assert!(matches!(world.sees(429, &[], "/a").await, Observed::BackOff(_)));
    let observed = world.sees(429, &[], "/retired").await;
    let Observed::Suspended { left, guessed: true, .. } = observed else { panic!("{observed:?}") };
    assert!(left <= Duration::from_millis(1_500), "{left:?}");
}
