//! Most answers say nothing about limits, so reading them allocates nothing.

use http::HeaderMap;
use paceline_http::{Profiles, read};

#[test]
fn an_answer_without_a_header_about_limits_is_read_without_allocating() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("date", "Tue, 10 Mar 2026 12:00:00 GMT"),
        ("content-type", "application/json"),
        ("age", "7"),
        ("x-cache", "HIT"),
        ("strict-transport-security", "max-age=31536000"),
        ("x-request-id", "rate-of-something"),
    ] {
        headers.insert(name, value.parse().unwrap());
    }
    for profile in Profiles::builtin().iter() {
        for status in [200, 304, 404, 429, 500] {
            let count = allocation_counter::measure(|| {
                let reading = read(status, &headers, Some(b"{\"id\":7}"), 0, profile);
                assert!(reading.limits.is_empty());
            });
            assert_eq!(count.count_total, 0, "{} {status}", profile.name());
        }
    }
}
