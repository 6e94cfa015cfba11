//! Readings are total: whatever comes, there is an answer, and no wait is negative or above the cap.

use http::{HeaderMap, HeaderName, HeaderValue};
use paceline_http::{Profiles, read};
use proptest::prelude::*;

use crate::samples::{headers, profile, samples};

/// Names that readers look at, and one that they do not.
const NAMES: [&str; 20] = [
    "retry-after",
    "retry-after-ms",
    "x-retry-after",
    "date",
    "age",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-used",
    "x-rate-limit",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-window-ms",
    "x-shopify-shop-api-call-limit",
    "sforce-limit-info",
    "x-ms-ratelimit-remaining-resource",
    "server",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        "[-0-9.,;=/: \"\\\\a-zA-Z]{0,40}".prop_map(String::into_bytes),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        "\"[a-z]{1,3}\";[rtqw]=[0-9]{1,25}(;t=[0-9]{1,25})?".prop_map(String::into_bytes),
        "[0-9]{1,25}\\.[0-9]{1,25}".prop_map(String::into_bytes),
        "([0-9]{1,20}(ms|us|ns|d|h|m|s)){1,3}".prop_map(String::into_bytes),
    ]
}

fn check(status: u16, headers: &HeaderMap, body: Option<&[u8]>, now: i64) {
    for profile in Profiles::builtin().iter() {
        let reading = read(status, headers, body, now, profile);
        if let Some(suspension) = &reading.suspension {
            assert!((0..=profile.wait_max_us()).contains(&suspension.wait_us), "{reading:#?}");
            assert!(suspension.wait_us <= suspension.asked_us);
            assert!(suspension.limit.is_none_or(|at| at < reading.limits.len()));
        }
        for limit in &reading.limits {
            assert!(limit.reset_us.is_none_or(|us| (0..=315_360_000_000_000).contains(&us)));
            assert!(limit.window_us.is_none_or(|us| (0..=315_360_000_000_000).contains(&us)));
            assert!(limit.limit != Some(0));
        }
        // Equal answers give equal readings.
        assert_eq!(read(status, headers, body, now, profile), reading);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_headers_give_a_reading_within_bounds(
        status in prop_oneof![Just(429), Just(200), Just(403), Just(503), 0_u16..1000],
        lines in proptest::collection::vec((0..NAMES.len(), value()), 0..12),
        body in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
        now in any::<i64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(NAMES[name]), value);
            }
        }
        check(status, &headers, body.as_deref(), now);
    }

    #[test]
    fn any_call_has_a_bucket_whose_name_is_plain_and_tells_no_secret(
        which in any::<proptest::sample::Index>(),
        path in "(/[ -~é]{0,9}){0,6}",
        secret in "[A-Za-z0-9_]{24,40}",
        header in prop_oneof![Just("authorization"), Just("x-api-key"), Just("private-token")],
    ) {
        let all: Vec<_> = Profiles::builtin().iter().collect();
        let profile = all[which.index(all.len())];
        let host = profile.hosts().next().unwrap_or("api.example.org").replace("*.", "acme.");
        let host = host.split('/').next().unwrap();
        let Ok(uri) = format!("https://{host}{path}").parse::<http::Uri>() else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.insert(header, format!("Bearer {secret}").parse().unwrap());
        let profile = Profiles::builtin().for_uri(&uri);
        let placed = profile.bucket_of(&http::Method::POST, &uri, &headers);
        prop_assert!(!placed.bucket.contains(&secret));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/~:".contains(c);
        prop_assert!(placed.bucket.chars().all(is_plain), "{}", placed.bucket);
        prop_assert_eq!(&profile.bucket_of(&http::Method::POST, &uri, &headers).bucket, &placed.bucket);
    }

    #[test]
    fn samples_with_a_few_bytes_changed_give_a_reading_within_bounds(
        which in 0_usize..144,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let sample = &samples()[which];
        let mut mutated = HeaderMap::new();
        for (name, value) in &headers(sample) {
            let mut bytes = value.as_bytes().to_vec();
            for (at, byte) in &changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
            }
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                mutated.append(name, value);
            }
        }
        let body = sample["body"].as_str().map(str::as_bytes);
        let status = u16::try_from(sample["status"].as_u64().unwrap()).unwrap();
        check(status, &mutated, body, 1_773_144_000_000_000);
    }

    #[test]
    fn what_a_strict_reader_of_structured_fields_accepts_is_read_the_same(
        items in proptest::collection::vec(
            ("[ -~]{1,8}", 0_i64..1_000_000_000, 0_i64..100_000_000, any::<bool>()), 1..4),
    ) {
        // Written by that reader's own writer.
        let mut list = sfv::ListSerializer::new();
        for (name, left, seconds, is_token) in &items {
            let string = sfv::StringRef::from_str(name).unwrap();
            let token = sfv::TokenRef::from_str("plain").unwrap();
            let item: sfv::RefBareItem<'_> = if *is_token { token.into() } else { string.into() };
            let item = list.bare_item(item);
            let item = item.parameter(sfv::KeyRef::from_str("r").unwrap(), sfv::Integer::try_from(*left).unwrap());
            item.parameter(sfv::KeyRef::from_str("t").unwrap(), sfv::Integer::try_from(*seconds).unwrap());
        }
        let text = list.finish().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", text.parse().unwrap());
        let generic = Profiles::builtin().generic();
        let reading = read(200, &headers, None, 0, generic);
        let told: Vec<_> = reading.limits.iter()
            .map(|it| (it.name.to_string(), it.remaining, it.reset_us)).collect();
        let want: Vec<_> = items.iter()
            .map(|(name, left, seconds, is_token)| {
                let name = if *is_token { "plain".to_owned() } else { name.clone() };
                (name, u64::try_from(*left).ok(), Some(seconds * 1_000_000))
            })
            .collect();
        prop_assert_eq!(told, want, "{}", text);
    }
}

#[test]
fn every_sample_is_within_bounds_for_every_profile() {
    for sample in samples() {
        let body = sample["body"].as_str().map(str::as_bytes);
        let status = u16::try_from(sample["status"].as_u64().unwrap()).unwrap();
        check(status, &headers(&sample), body, 1_773_144_000_000_000);
        // It has a profile at all.
        profile(sample["provider"].as_str().unwrap());
    }
}
