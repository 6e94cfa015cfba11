//! What reading one answer costs, each shape beside its target: `cargo bench -p paceline-http`.
//! The best of many rounds is told: what disturbs a round is not the reader's.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::hint::black_box;
use std::time::Instant;

use http::HeaderMap;
use paceline_http::{Profiles, read};

/// Headers that come with most answers and are about nothing here.
const USUAL: [(&str, &str); 12] = [
    ("date", "Tue, 10 Mar 2026 12:00:00 GMT"),
    ("content-type", "application/json; charset=utf-8"),
    ("content-length", "5120"),
    ("cache-control", "private, max-age=60, s-maxage=60"),
    ("etag", "W/\"f0a1b2c3d4e5f60718293a4b5c6d7e8f\""),
    ("vary", "Accept, Authorization, Cookie, Accept-Encoding"),
    ("strict-transport-security", "max-age=31536000; includeSubdomains; preload"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "deny"),
    ("content-security-policy", "default-src 'none'"),
    ("x-request-id", "C0DE:1234:ABCDEF:123456:69AF8E80"),
    ("server", "nginx"),
];

/// Tue, 10 Mar 2026 12:00:00 GMT.
const NOON: i64 = 1_773_144_000_000_000;

fn main() {
    let github = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4990"),
        ("x-ratelimit-used", "10"),
        ("x-ratelimit-reset", "1773147500"),
        ("x-ratelimit-resource", "core"),
    ];
    let openai = [
        ("x-ratelimit-limit-requests", "5000"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-requests", "4999"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-requests", "12ms"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ];
    let ietf = [
        ("ratelimit-policy", "\"burst\";q=100;w=60, \"day\";q=5000;w=86400"),
        ("ratelimit", "\"burst\";r=50;t=30, \"day\";r=4000;t=3000"),
    ];
    let anthropic = [
        ("anthropic-ratelimit-requests-limit", "4000"),
        ("anthropic-ratelimit-requests-remaining", "3999"),
        ("anthropic-ratelimit-requests-reset", "2026-03-10T12:00:01Z"),
        ("anthropic-ratelimit-input-tokens-limit", "200000"),
        ("anthropic-ratelimit-input-tokens-remaining", "180000"),
        ("anthropic-ratelimit-input-tokens-reset", "2026-03-10T12:00:06Z"),
        ("anthropic-ratelimit-output-tokens-limit", "80000"),
        ("anthropic-ratelimit-output-tokens-remaining", "80000"),
        ("anthropic-ratelimit-output-tokens-reset", "2026-03-10T12:00:00Z"),
    ];
    // Errors stand first and extensions last, so both ends of a long body are searched.
    let graphql = format!(
        "{{\"data\":{{\"text\":\"{}\"}},\"extensions\":{{\"cost\":{{\"requestedQueryCost\":12,\
         \"actualQueryCost\":12,\"throttleStatus\":{{\"maximumAvailable\":2000,\
         \"currentlyAvailable\":1988,\"restoreRate\":100}}}}}}}}",
        "What a shop sells, in many words. ".repeat(600)
    );
    println!("{:<44} {:>8}  target", "reading one answer", "ns");
    for (what, status, profile, lines) in [
        ("no header about limits", 200, "generic", &[][..]),
        ("no header about limits, github", 200, "github", &[]),
        ("429 with Retry-After", 429, "generic", &[("retry-after", "30")]),
        ("GitHub, 5 headers", 200, "github", &github),
        ("OpenAI, 6 headers, 2 limits", 200, "openai", &openai),
        ("IETF, 2 limits with policies", 200, "generic", &ietf),
        ("Anthropic, 9 headers, 3 limits", 200, "anthropic", &anthropic),
        ("Shopify GraphQL, a body of 20 kB", 200, "shopify-graphql", &[]),
    ] {
        let mut headers = HeaderMap::new();
        for (name, value) in USUAL.iter().chain(lines) {
            headers.append(*name, value.parse().unwrap());
        }
        let profile = Profiles::builtin().get(profile).unwrap();
        let body = (profile.name() == "shopify-graphql").then_some(graphql.as_bytes());
        let once = || black_box(read(black_box(status), &headers, body, NOON, profile));
        let best = best_ns(once);
        // Five keys and a mark are looked for in 8 kB.
        let target = if body.is_some() { 5_000 } else { 1_000 };
        println!("{what:<44} {best:>8}  at most {target}");
    }
    println!("\n{:<44} {:>8}  target", "choosing for one call", "ns");
    let mut headers = HeaderMap::new();
    headers.insert(
        "authorization",
        "Bearer ghp_0123456789abcdefghijklmnopqrstuvwxyz".parse().unwrap(),
    );
    for (what, uri) in [
        ("GitHub, by path and account", "https://api.github.com/repos/a/b/issues"),
        ("Airtable, base in the path", "https://api.airtable.com/v0/appX/Table"),
        ("a host without profile", "https://api.example.org/v1/things"),
    ] {
        let uri: http::Uri = uri.parse().unwrap();
        let once = || {
            let profile = Profiles::builtin().for_uri(black_box(&uri));
            black_box(profile.bucket_of(&http::Method::GET, &uri, &headers).bucket.len());
        };
        println!("{what:<44} {:>8}  at most 1000", best_ns(once));
    }
}

/// The shortest of many rounds, for one of a thousand.
fn best_ns<T>(once: impl Fn() -> T) -> u128 {
    let round = || {
        let begin = Instant::now();
        for _ in 0..1_000 {
            once();
        }
        begin.elapsed().as_nanos() / 1_000
    };
    (0..300).map(|_| round()).min().unwrap_or(0)
}
