//! Cases of failure reported by people who run clients, as named tests: what was answered and what
//! is right. The numbers are those of the reports.

use http::HeaderMap;
use paceline_http::{Answer, Basis, Profile, Profiles, Reading, Refusal, Source, read};

const S: i64 = 1_000_000;
/// Tue, 10 Mar 2026 12:00:00 GMT.
const NOON: i64 = 1_773_144_000 * S;

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

fn generic() -> &'static Profile {
    Profiles::builtin().generic()
}

/// How long the bucket stops for this answer, at noon.
#[track_caller]
fn wait(status: u16, lines: &[(&'static str, &str)]) -> Option<i64> {
    let headers = headers(lines);
    read(status, &headers, None, NOON, generic()).suspension.map(|it| it.wait_us)
}

fn owned(
    status: u16,
    lines: &[(&'static str, &str)],
    body: &str,
    profile: &str,
) -> Reading<'static> {
    let headers = headers(lines);
    let profile = Profiles::builtin().get(profile).unwrap();
    read(status, &headers, Some(body.as_bytes()), NOON, profile).into_owned()
}

#[test]
fn c31_retry_after_that_is_no_plain_whole_number_is_read_exactly() {
    let date = ("date", "Tue, 10 Mar 2026 12:00:00 GMT");
    let at = |date| [("date", "Tue, 10 Mar 2026 12:00:00 GMT"), ("retry-after", date)];
    assert_eq!(wait(429, &at("Tue, 10 Mar 2026 12:00:37 GMT")), Some(37 * S));
    assert_eq!(wait(429, &at("Tuesday, 10-Mar-26 12:00:37 GMT")), Some(37 * S));
    assert_eq!(wait(429, &at("Tue Mar 10 12:00:37 2026")), Some(37 * S));
    for (value, us) in [
        ("1.939", 1_939_000),
        ("0.5", 500_000),
        ("0,120", 120 * S),
        ("2814, 2", 2_814 * S),
        ("2.0", 2 * S),
        // Seconds, unless a profile says otherwise.
        ("6457", 6_457 * S),
    ] {
        assert_eq!(wait(429, &[date, ("retry-after", value)]), Some(us), "{value}");
    }
    assert_eq!(wait(429, &[("retry-after-ms", "6457"), ("retry-after", "7")]), Some(6_457_000));
    let millis = Profiles::builtin()
        .clone()
        .with(
            r#"
            [[profile]]
            name = "old"
            title = "An old chat"
            hosts = []
            counts = "unknown"
            [[profile.bucket]]
            name = "old"
            policy = "strict 1/s"
            date = "2026-12-01"
            source = "https://example.com"
            grade = "hearsay"
            [[profile.header]]
            name = "retry-after"
            means = "retry-after"
            unit = "delta-ms"
            "#,
            "old.toml",
        )
        .unwrap();
    let answer = headers(&[("retry-after", "6457")]);
    let reading = read(429, &answer, None, NOON, millis.get("old").unwrap());
    assert_eq!(reading.suspension.unwrap().wait_us, 6_457_000);
    // None at all is for the caller alone.
    assert_eq!(wait(429, &[date]), None);
}

#[test]
fn c32_retry_after_at_its_extremes_neither_loops_nor_overflows() {
    for value in ["-43", "-0.5", "NaN", "inf", "1e3", "soon", "", "0x10", "+5", "１２"] {
        assert_eq!(wait(429, &[("retry-after", value)]), None, "{value:?}");
    }
    assert_eq!(wait(429, &[("retry-after", "0")]), Some(0));
    let past = [
        ("date", "Tue, 10 Mar 2026 12:00:00 GMT"),
        ("retry-after", "Tue, 10 Mar 2026 11:59:30 GMT"),
    ];
    assert_eq!(wait(503, &past), Some(0));
    for value in ["9999999999", "9223372037", "9223372036854775807", "99999999999999999999999999"] {
        let answer = headers(&[("retry-after", value)]);
        let suspension = read(429, &answer, None, NOON, generic()).suspension.unwrap();
        assert_eq!(suspension.wait_us, 86_400 * S, "{value}");
        assert!(suspension.is_clamped() && suspension.asked_us > suspension.wait_us);
        assert_eq!((&*suspension.raw, suspension.basis), (value, Basis::Stated));
    }
    // The longest wait is for the user to say.
    let strict = generic().clone().with_wait_max_us(60 * S);
    let answer = headers(&[("retry-after", "61")]);
    let suspension = read(429, &answer, None, NOON, &strict).suspension.unwrap();
    assert_eq!((suspension.wait_us, suspension.asked_us), (60 * S, 61 * S));
}

#[test]
fn c33_a_reset_is_read_whatever_its_unit_and_whatever_the_host_s_clock() {
    let now = 1_757_000_000 * S;
    let until = |reset: &'static str, host: i64| {
        let answer = headers(&[
            ("date", "Thu, 04 Sep 2025 15:33:20 GMT"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset),
        ]);
        read(429, &answer, None, host, generic()).suspension.map(|it| it.wait_us)
    };
    assert_eq!(until("1756999990", now), Some(0));
    for reset in [
        "1757000030",
        "1757000030.0",
        "1757000030000",
        "30",
        "30s",
        "30000ms",
        "2025-09-04T15:33:50Z",
        "2025-09-04T17:33:50+02:00",
        "Thu, 04 Sep 2025 15:33:50 GMT",
    ] {
        assert_eq!(until(reset, now), Some(30 * S), "{reset}");
        assert_eq!(until(reset, now - 40 * S), Some(30 * S), "{reset}, a host 40 s slow");
    }
    let both = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1773144060"),
        ("x-ratelimit-reset-after", "58.5"),
    ];
    assert_eq!(wait(429, &both), Some(58_500_000));
}

#[test]
fn c34_what_a_cache_has_kept_teaches_nothing() {
    let empty = [
        ("date", "Tue, 10 Mar 2026 12:00:00 GMT"),
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1773144060"),
    ];
    assert_eq!(wait(200, &empty), Some(60 * S));
    for mark in [
        ("age", "7200"),
        ("x-from-cache", "1"),
        ("x-cache", "MISS, HIT"),
        ("cf-cache-status", "HIT"),
    ] {
        let answer = headers(&[&empty[..], &[mark]].concat());
        let reading = read(200, &answer, None, NOON, generic());
        assert!(reading.is_from_cache && reading.is_silent(), "{mark:?}: {reading:#?}");
    }
    assert_eq!(
        wait(200, &[&empty[..], &[("age", "0"), ("x-cache", "MISS")]].concat()),
        Some(60 * S)
    );
    // Kept for two hours by something that does not say so.
    let answer = headers(&empty);
    let reading = read(200, &answer, None, NOON + 7_200 * S, generic());
    assert!(reading.is_from_cache && reading.is_silent());
    // A 429 is kept by nobody: there the host's clock is wrong.
    let reading = read(429, &answer, None, NOON + 7_200 * S, generic());
    assert_eq!(reading.suspension.map(|it| it.wait_us), Some(60 * S));
}

#[test]
fn c35_only_answers_that_mean_slow_down_stop_a_bucket() {
    let rate = Answer::Refused(Refusal::Rate);
    let overload = Answer::Refused(Refusal::Overload);
    let left = |left: &'static str| {
        [
            ("x-ratelimit-limit", "5000"),
            ("x-ratelimit-remaining", left),
            ("x-ratelimit-reset", "1773147600"),
        ]
    };
    let of = |reading: Reading<'_>| (reading.answer, reading.suspension.map(|it| it.wait_us));
    // A permission error, with an hour to the reset.
    assert_eq!(of(owned(403, &left("4999"), "", "github")), (Answer::Passed, None));
    assert_eq!(of(owned(403, &left("0"), "", "github")), (rate, Some(3_600 * S)));
    assert_eq!(of(owned(403, &[("retry-after", "60")], "", "github")), (rate, Some(60 * S)));
    let secondary = "{\"message\":\"You have exceeded a Secondary Rate Limit.\"}";
    let reading = owned(403, &[], secondary, "github");
    let suspension = reading.suspension.unwrap();
    assert_eq!((reading.answer, suspension.wait_us, suspension.grows), (rate, 60 * S, true));
    assert_eq!((suspension.basis, suspension.source), (Basis::Guessed, Source::Profile));
    assert_eq!(of(owned(503, &[("retry-after", "20")], "", "generic")), (overload, Some(20 * S)));
    assert_eq!(of(owned(503, &[], "", "generic")), (Answer::Passed, None));
    assert_eq!(of(owned(529, &[], "", "anthropic")), (overload, None));
    for word in ["RATE_LIMITED", "RATE_LIMIT"] {
        let body = format!("{{\"errors\":[{{\"type\":\"{word}\"}}]}}");
        assert_eq!(owned(200, &[], &body, "github-graphql").answer, rate);
        assert_eq!(owned(200, &[], &body, "github").answer, Answer::Passed);
    }
    // Storage that asks to slow down says nothing of a limit.
    let slow = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message>";
    assert_eq!(of(owned(503, &[], slow, "aws")), (rate, None));
    // Not about the pace of calls.
    for (status, lines, body, profile, refusal) in [
        (429, &[][..], "{\"code\":\"lock_timeout\"}", "stripe", Refusal::Lock),
        (
            429,
            &[("stripe-rate-limited-reason", "endpoint-concurrency")],
            "",
            "stripe",
            Refusal::Concurrency,
        ),
        (
            429,
            &[("retry-after", "9")],
            "{\"code\":\"insufficient_quota\"}",
            "openai",
            Refusal::Billing,
        ),
        (
            429,
            &[("x-rate-limit-problem", "Concurrent"), ("retry-after", "9")],
            "",
            "xero",
            Refusal::Concurrency,
        ),
        // The code of the daily limit, too; only the words tell.
        (
            403,
            &[],
            "[{\"errorCode\":\"REQUEST_LIMIT_EXCEEDED\",\"message\":\"ConcurrentRequests \
             (Concurrent API Requests) Limit exceeded.\"}]",
            "salesforce",
            Refusal::Concurrency,
        ),
    ] {
        assert_eq!(
            of(owned(status, lines, body, profile)),
            (Answer::Refused(refusal), None),
            "{body}"
        );
    }
    for status in [200, 202, 301, 304, 400, 401, 404, 413, 500, 502] {
        assert_eq!(
            of(owned(status, &[("retry-after", "5")], "", "generic")),
            (Answer::Passed, None)
        );
    }
}

#[test]
fn c36_several_limits_of_one_answer_are_each_their_own() {
    let one = r#""p1";r=20;t=20, "p2";r=0;t=300"#;
    for lines in [
        &[("ratelimit", one)][..],
        &[("ratelimit", r#""p1";r=20;t=20"#), ("ratelimit", r#""p2";r=0;t=300"#)],
        &[("ratelimit", "\"broken"), ("ratelimit", one)],
    ] {
        let answer = headers(lines);
        let reading = read(429, &answer, None, NOON, generic());
        let suspension = reading.suspension.as_ref().unwrap();
        assert_eq!(suspension.wait_us, 300 * S);
        assert_eq!(reading.limits[suspension.limit.unwrap()].name, "p2");
        assert_eq!(reading.limits.len(), 2);
    }
    // Only search is held: the reading names it, and the profile finds its bucket.
    let search = [
        ("x-ratelimit-limit", "30"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1773144030"),
        ("x-ratelimit-resource", "search"),
    ];
    let reading = owned(200, &search, "", "github");
    assert_eq!(reading.limits[0].name, "search");
    let github = Profiles::builtin().get("github").unwrap();
    let uri = "https://api.github.com/user".parse().unwrap();
    let token = headers(&[("authorization", "token t")]);
    let placed = github.bucket_after(&http::Method::GET, &uri, &token, None, &reading);
    assert!(placed.bucket.starts_with("github:search:"), "{}", placed.bucket);
    let both = [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    assert_eq!(wait(429, &both), Some(360 * S));
}

#[test]
fn c37_a_refusal_without_a_time_states_none() {
    let reading = owned(429, &[], "", "generic");
    assert_eq!((reading.answer, reading.suspension), (Answer::Refused(Refusal::Rate), None));
}

#[test]
fn a_query_that_lacks_points_waits_until_they_are_refilled() {
    let body = r#"{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}],
        "extensions":{"cost":{"requestedQueryCost":500,"actualQueryCost":null,
        "throttleStatus":{"maximumAvailable":2000.0,"currentlyAvailable":100,"restoreRate":100.0}}}}"#;
    let reading = owned(200, &[], body, "shopify-graphql");
    let suspension = reading.suspension.clone().unwrap();
    assert_eq!((reading.answer.is_rate(), suspension.wait_us), (true, 4 * S));
    assert_eq!(suspension.source, Source::Body("requestedQueryCost".into()));
    let limit = reading.binding().unwrap();
    assert_eq!((limit.limit, limit.remaining), (Some(2000), Some(100)));
    let body = body.replace("Throttled", "").replace("THROTTLED", "OK").replace("null", "12");
    let reading = owned(200, &[], &body, "shopify-graphql");
    assert_eq!(
        (reading.answer, reading.suspension, reading.cost),
        (Answer::Passed, None, Some(12))
    );
}

#[test]
fn the_words_of_a_provider_and_the_cost_of_a_call_are_kept() {
    let reading =
        owned(429, &[("x-ratelimit-scope", "shared"), ("retry-after", "65")], "", "discord");
    assert_eq!(reading.scope.as_deref(), Some("shared"));
    let reading = owned(200, &[("x-complexity", "52")], "", "linear");
    assert_eq!(reading.cost, Some(52));
}

#[test]
fn a_limit_of_several_windows_is_several_limits() {
    let reading = owned(
        200,
        &[
            ("x-ratelimit-limit", "10, 10;w=1;name=\"per-ip\", 1000;w=3600"),
            ("x-ratelimit-remaining", "9"),
            ("x-ratelimit-reset", "1"),
        ],
        "",
        "generic",
    );
    let told: Vec<_> =
        reading.limits.iter().map(|it| (&*it.name, it.limit, it.remaining, it.window_us)).collect();
    assert_eq!(
        told,
        [("per-ip", Some(10), Some(9), Some(S)), ("", Some(1000), None, Some(3_600 * S))]
    );
    // Bare numbers in a row say nothing that can be relied on.
    let reading = owned(200, &[("x-ratelimit-limit", "600,30000")], "", "generic");
    assert!(reading.is_silent());
}
