//! What a pacer is set to do, seen through the tower layer: accounts, costs known afterwards, calls
//! under way.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::tower::retry::{Policy, RetryLayer};
use ::tower::{Layer, ServiceExt, service_fn};
use axum::body::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use paceline::http::Pacer;
use paceline::testing::{ManualClock, memory};
use paceline::tower::{Error, PacelineLayer};
use paceline::{Bucket, Limiter, Refusal};

use crate::limiter::{ms, settled};

/// What the inner service fails with.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the wire is cut")]
struct Cut;

const URL: &str = "https://api.example.com/v1";

async fn world(policy: &str) -> (ManualClock, Limiter, Bucket) {
    let clock = ManualClock::at(1_790_000_000_000_000);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    (clock, limiter, bucket)
}

fn get(url: &str) -> Request<String> {
    Request::get(url).body(String::new()).unwrap()
}

fn answer(status: u16, headers: &[(&str, &str)], body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::from(body)).unwrap()
}

async fn left(bucket: &Bucket) -> u64 {
    bucket.status().await.unwrap().unwrap().quotas[0].remaining
}

/// What refuses a call that may not wait.
async fn refusal(bucket: &Bucket) -> Refusal {
    bucket.try_acquire().await.unwrap().permit().unwrap_err()
}

#[tokio::test]
async fn a_window_with_a_guard_counts_a_request_until_its_answer_has_come() {
    enum Then {
        Answered(u16),
        Fails,
        Dropped,
    }
    for (then, wait_ms) in [
        (Then::Answered(200), 1_000),
        (Then::Answered(404), 1_000),
        // It may have arrived.
        (Then::Fails, 10_600),
        (Then::Dropped, 10_600),
    ] {
        let (clock, _, bucket) = world("window 1/s guard 10s").await;
        let pacer = Pacer::of_bucket(bucket.clone()).observe_if(|status| status != 404);
        let (under_way, waits) = (clock.clone(), ms(400));
        let status = if let Then::Answered(status) = then { Some(status) } else { None };
        let inner = service_fn(move |_: Request<String>| {
            let clock = under_way.clone();
            async move {
                clock.advance(waits);
                tokio::task::yield_now().await;
                status.map(|status| answer(status, &[], "")).ok_or(Cut)
            }
        });
        let mut call = Box::pin(PacelineLayer::new(pacer).layer(inner).oneshot(get(URL)));
        match then {
            Then::Answered(status) => assert_eq!(call.await.unwrap().status(), status),
            Then::Fails => assert_eq!(call.await.unwrap_err().into_inner(), Some(Cut)),
            Then::Dropped => {
                assert!(call.as_mut().now_or_never().is_none());
                drop(call);
            }
        }
        assert_eq!(refusal(&bucket).await.retry_after(), ms(wait_ms));
    }
}

#[tokio::test]
async fn what_a_call_has_cost_is_settled_when_its_answer_tells() {
    let cost = |response: paceline::http::Response<'_>, reading: &paceline::http::Reading<'_>| {
        assert_eq!(response.target, "/v1");
        match (response.status, response.headers.get("x-cost")) {
            // It was not executed.
            (429, _) => Some(0),
            (_, Some(cost)) => cost.to_str().ok()?.parse().ok(),
            _ => reading.cost.and_then(|cost| u32::try_from(cost).ok()),
        }
    };
    for (status, headers, expected) in [
        (200, &[("x-cost", "12")][..], 988),
        (200, &[("x-cost", "120")], 880),
        (200, &[], 950),
        (429, &[("retry-after", "1")], 1_000),
    ] {
        let (_, limiter, bucket) = world("window 1000/h").await;
        let pacer = Pacer::of_bucket(bucket.clone()).cost(|_| 50).settle(cost);
        let inner = service_fn(move |_: Request<String>| {
            std::future::ready(Ok::<_, Cut>(answer(status, headers, "body")))
        });
        PacelineLayer::new(pacer).layer(inner).oneshot(get(URL)).await.unwrap();
        limiter.settled().await;
        assert_eq!(left(&bucket).await, expected, "{status} {headers:?}");
    }
}

#[tokio::test]
async fn an_account_that_the_caller_knows_outlives_its_tokens() {
    let (clock, limiter, _) = world("1/s").await;
    let pacer = Pacer::by_profile(&limiter)
        .account(|head| Some(head.headers.get("x-tenant")?.to_str().ok()?.to_owned()));
    let reset = (clock.now() / 1_000_000 + 40).to_string();
    let inner = service_fn(move |request: Request<String>| {
        let named = [
            ("x-ratelimit-resource", "search"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", &*reset),
        ];
        let is_named = request.uri().path() == "/named";
        let answer = if is_named { answer(403, &named, "") } else { answer(200, &[], "") };
        async { Ok::<_, Cut>(answer) }
    });
    let service = PacelineLayer::new(pacer.deadline(ms(1_500))).layer(inner);
    let call = async |path: &str, tenant: &str, token: &str| {
        let request = Request::get(format!("https://api.github.com{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header(if tenant.is_empty() { "x-none" } else { "x-tenant" }, tenant);
        let request = request.body(String::new()).unwrap();
        settled(pin!(service.clone().oneshot(request))).await.expect("it need not wait")
    };
    for (path, tenant, token) in
        [("/a", "acme", "first"), ("/b", "other", "second"), ("/c", "", "third")]
    {
        assert_eq!(call(path, tenant, token).await.unwrap().status(), 200);
    }
    clock.advance(ms(1_000));
    assert_eq!(call("/a", "acme", "renewed").await.unwrap().status(), 200);
    clock.advance(ms(1_000));
    assert_eq!(call("/named", "acme", "renewed").await.unwrap().status(), 403);
    let names = limiter.list().await.unwrap();
    let github: Vec<_> = names.iter().filter(|name| name.starts_with("github:")).collect();
    let named = ["github:core:acme", "github:core:other", "github:search:acme"];
    assert!(named.iter().all(|name| github.iter().any(|it| it == name)), "{github:?}");
    assert_eq!(github.len(), 4, "the one without a tenant goes by its token: {github:?}");
    // The target that was named waits for its own account's bucket, whatever its token.
    let Err(Error::Refused(refusal)) = call("/named", "acme", "third").await else {
        panic!("it is suspended")
    };
    assert_eq!(refusal.bucket(), "github:search:acme");
    clock.advance(ms(1_000));
    assert_eq!(call("/named", "other", "second").await.unwrap().status(), 403, "another account");
}

/// Tries again up to so many times, whatever was answered.
#[derive(Clone)]
struct Attempts(usize);

impl<A, E> Policy<Request<String>, Response<A>, E> for Attempts {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<String>,
        _: &mut Result<Response<A>, E>,
    ) -> Option<Self::Future> {
        self.0 = self.0.checked_sub(1)?;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<String>) -> Option<Request<String>> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn inside_a_retry_layer_each_try_takes_a_permit_and_outside_all_take_one() {
    let called = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&called);
    let inner = service_fn(move |_: Request<String>| {
        counts.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Cut>(answer(500, &[], "")) }
    });
    let (_, limiter, bucket) = world("50/s burst 50").await;
    let paced = PacelineLayer::new(Pacer::of_bucket(bucket));
    let inside = RetryLayer::new(Attempts(3)).layer(paced.layer(inner.clone()));
    assert_eq!(inside.oneshot(get(URL)).await.unwrap().status(), 500);
    assert_eq!((called.load(Ordering::Relaxed), limiter.stats().granted), (4, 4));
    let outside = paced.layer(RetryLayer::new(Attempts(3)).layer(inner));
    assert_eq!(outside.oneshot(get(URL)).await.unwrap().status(), 500);
    assert_eq!((called.load(Ordering::Relaxed), limiter.stats().granted), (8, 5));
}
