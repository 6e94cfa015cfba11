//! What a pacer is set to do, seen through the tower layer: accounts, costs known afterwards, calls
//! under way, bodies that are looked at.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::tower::retry::{Policy, RetryLayer};
use ::tower::{Layer, ServiceExt, service_fn};
use axum::body::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use paceline::http::{Pacer, ReadBodies};
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
async fn a_body_that_is_read_tells_what_a_call_has_cost() {
    const POINTS: &str = r#"{"data":{},"extensions":{"cost":{"actualQueryCost":12}}}"#;
    const TOKENS: &str = r#"{"usage":{"total_tokens":1234}}"#;
    let tokens = |body: Option<&[u8]>| {
        let body: serde_json::Value = serde_json::from_slice(body?).ok()?;
        u32::try_from(body["usage"]["total_tokens"].as_u64()?).ok()
    };
    for (url, body, expected) in [
        // By what is known of the provider.
        ("https://shop.myshopify.com/admin/api/2026-01/graphql.json", POINTS, 9_988),
        // By what the user knows.
        (URL, TOKENS, 8_766),
        ("https://api.example.com/other", TOKENS, 9_950),
    ] {
        let (_, limiter, bucket) = world("window 10000/h").await;
        let pacer =
            Pacer::of_bucket(bucket.clone()).cost(|_| 50).settle(move |response, reading| {
                let cost = reading.cost.and_then(|cost| u32::try_from(cost).ok());
                cost.or_else(|| tokens(response.body.filter(|_| response.target == "/v1")))
            });
        let bodies = ReadBodies::up_to(1_000).also(|status, headers: &HeaderMap| {
            assert!(headers.contains_key("content-type"));
            status == StatusCode::OK
        });
        let inner = service_fn(async move |_: Request<String>| {
            Ok::<_, Cut>(answer(200, &[("content-type", "application/json")], body))
        });
        let service = PacelineLayer::new(pacer).read_bodies(bodies).layer(inner);
        let response = service.oneshot(get(url)).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        limiter.settled().await;
        assert_eq!(left(&bucket).await, expected, "{url}");
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

/// A body of these parts that goes on for ever where it does not break off.
fn streams(
    parts: &'static [&'static str],
    breaks_off: bool,
) -> StreamBody<impl Stream<Item = Result<Frame<Bytes>, Cut>> + Send + 'static> {
    let parts =
        stream::iter(parts).map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
    let end = stream::iter(breaks_off.then_some(Err(Cut)));
    let on =
        if breaks_off { stream::empty().left_stream() } else { stream::pending().right_stream() };
    StreamBody::new(parts.chain(end).chain(on))
}

#[tokio::test]
async fn what_streams_is_not_held_and_what_is_looked_at_comes_whole() {
    const PARTS: &[&str] = &["secondary", " rate ", "limit", "."];
    let url = "https://api.github.com/user";
    for (kind, breaks_off, bytes_max, is_handed_on, is_suspended) in [
        ("application/json", false, None, true, false),
        ("text/event-stream", false, Some(1_000), true, false),
        ("application/octet-stream", false, Some(1_000), true, false),
        // As much as may be read has come.
        ("application/json", false, Some(20), true, true),
        ("application/json", false, Some(12), true, false),
        // It is not over, and more may be read.
        ("application/json", false, Some(1_000), false, false),
        ("application/json", true, Some(1_000), true, true),
    ] {
        let (_, _, bucket) = world("50/s").await;
        let layer = PacelineLayer::new(Pacer::of_bucket(bucket.clone()));
        let inner = service_fn(move |_: Request<String>| {
            let answer = Response::builder().status(403).header("content-type", kind);
            let answer = answer.body(streams(PARTS, breaks_off)).unwrap();
            async { Ok::<_, Cut>(answer) }
        });
        let mut body = match bytes_max {
            None => {
                let answer = pin!(layer.layer(inner).oneshot(get(url)));
                settled(answer).await.map(|it| it.unwrap().into_body().boxed_unsync())
            }
            Some(bytes_max) => {
                let layer = layer.read_bodies(ReadBodies::up_to(bytes_max));
                let answer = pin!(layer.layer(inner).oneshot(get(url)));
                settled(answer).await.map(|it| it.unwrap().into_body().boxed_unsync())
            }
        };
        let case = format!("{kind} {breaks_off} {bytes_max:?}");
        assert_eq!(body.is_some(), is_handed_on, "{case}");
        let suspension = bucket.status().await.unwrap().unwrap().suspension;
        assert_eq!(suspension.is_some(), is_suspended, "{case}");
        if let Some(body) = &mut body {
            for part in PARTS {
                let frame = body.frame().await.unwrap().unwrap();
                assert_eq!(frame.into_data().unwrap(), part, "{case}");
            }
            let end = settled(pin!(body.frame())).await.map(|end| end.map(|it| it.unwrap_err()));
            assert_eq!(end, breaks_off.then_some(Some(Cut)), "{case}");
        }
    }
}

#[tokio::test]
async fn a_request_dropped_while_its_answers_body_is_read_has_gone_out_and_counts() {
    let (_, limiter, bucket) = world("1/h burst 10").await;
    let layer = PacelineLayer::new(Pacer::of_bucket(bucket.clone()));
    let inner = service_fn(async move |_: Request<String>| {
        let answer = Response::builder().status(403).header("content-type", "text/plain");
        Ok::<_, Cut>(answer.body(streams(&["part"], false)).unwrap())
    });
    let layer = layer.read_bodies(ReadBodies::up_to(1_000));
    let mut call = Box::pin(layer.layer(inner).oneshot(get(URL)));
    assert!(settled(call.as_mut()).await.is_none());
    drop(call);
    limiter.settled().await;
    assert_eq!(left(&bucket).await, 9);
}
