//! The tower layer, with both ends of a mock service in hand and a clock moved by hand.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::{Layer, Service, ServiceExt, service_fn};
use http::{Method, Request, Response, StatusCode};
use paceline::http::{Pacer, Retry};
use paceline::testing::{ManualClock, memory};
use paceline::tower::{Error, PacelineLayer, ResponseFuture};
use paceline::{Bucket, Limiter, RefusedBy, WhenAway};
use tokio::sync::{mpsc, oneshot};

use crate::limiter::{ms, settled};
use crate::refusing_server;

const START: i64 = 1_790_000_000_000_000;

/// What the inner service fails with.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the wire is cut")]
struct Cut;

type Answered = Result<Response<&'static str>, Cut>;

/// The inner service: each call comes out at the other end, which answers it.
#[derive(Debug, Clone)]
struct Wire(mpsc::UnboundedSender<Arrived>);

/// A request that went out.
struct Arrived {
    request: Request<String>,
    answer: oneshot::Sender<Answered>,
}

struct World {
    clock: ManualClock,
    limiter: Limiter,
    bucket: Bucket,
    wire: Wire,
    other_end: mpsc::UnboundedReceiver<Arrived>,
}

impl Service<Request<String>> for Wire {
    type Response = Response<&'static str>;
    type Error = Cut;
    type Future = futures_util::future::BoxFuture<'static, Answered>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send(Arrived { request, answer }).is_ok();
        Box::pin(async move {
            assert!(sent, "the test holds the other end");
            answered.await.unwrap_or(Err(Cut))
        })
    }
}

async fn world(policy: &str) -> World {
    let clock = ManualClock::at(START);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    let (sender, other_end) = mpsc::unbounded_channel();
    World { clock, limiter, bucket, wire: Wire(sender), other_end }
}

impl World {
    fn pacer(&self) -> Pacer {
        Pacer::of_bucket(self.bucket.clone())
    }

    /// What has arrived at the other end.
    fn arrived(&mut self) -> Arrived {
        self.other_end.try_recv().expect("a request went out")
    }

    fn is_quiet(&mut self) -> bool {
        self.other_end.try_recv().is_err()
    }
}

impl Arrived {
    fn answer(self, status: u16, headers: &[(&str, &str)]) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        self.answer.send(Ok(response.body("body").unwrap())).unwrap();
    }
}

fn get(path: &str) -> Request<String> {
    request(Method::GET, path)
}

fn request(method: Method, path: &str) -> Request<String> {
    let uri = format!("https://api.example.com{path}");
    Request::builder().method(method).uri(uri).body("payload".to_owned()).unwrap()
}

/// Makes a call of a service that is always ready.
fn call<S>(service: &S, request: Request<String>) -> ResponseFuture<&'static str, Cut>
where
    S: Service<Request<String>, Future = ResponseFuture<&'static str, Cut>> + Clone,
{
    service.clone().call(request)
}

/// The status of a call that can be over now.
async fn status(call: &mut ResponseFuture<&'static str, Cut>) -> StatusCode {
    settled(call.as_mut()).await.expect("it is answered").expect("a response").status()
}

#[tokio::test]
async fn c28_clones_of_the_service_share_one_limit() {
    let world = world("5/s burst 5").await;
    let went = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&went);
    let inner = service_fn(move |_: Request<String>| {
        counts.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Cut>(Response::new("body")) }
    });
    let service = PacelineLayer::new(world.pacer()).layer(inner);
    let clones: Vec<_> = (0..8).map(|_| service.clone()).collect();
    let tasks: Vec<_> = (0..200)
        .map(|number| tokio::spawn(clones[number % 8].clone().oneshot(get("/a"))))
        .collect();
    let turns = async |turns: usize| {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        went.load(Ordering::Relaxed)
    };
    assert_eq!(turns(300).await, 5);
    for _ in 0..99 {
        world.clock.advance(ms(10));
        turns(20).await;
    }
    let in_first_second = turns(300).await;
    assert!((9..=10).contains(&in_first_second), "{in_first_second}");
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn a_429_with_a_time_suspends_the_fleet_and_the_next_call_waits_for_it() {
    let mut world = world("50/s").await;
    let service = PacelineLayer::new(world.pacer()).layer(world.wire.clone());
    let mut first = call(&service, get("/a"));
    assert!(settled(first.as_mut()).await.is_none());
    world.arrived().answer(429, &[("retry-after", "30")]);
    assert_eq!(status(&mut first).await, 429);
    let suspension = world.bucket.status().await.unwrap().unwrap().suspension.unwrap();
    assert_eq!(suspension.reason, "429, retry-after: 30");
    let mut next = call(&service, get("/b"));
    world.clock.advance(ms(29_900));
    assert!(settled(next.as_mut()).await.is_none());
    assert!(world.is_quiet(), "the fleet is suspended");
    for _ in 0..3 {
        world.clock.advance(ms(100));
        assert!(settled(next.as_mut()).await.is_none());
    }
    world.arrived().answer(200, &[]);
    assert_eq!(status(&mut next).await, 200);
}

#[tokio::test]
async fn a_request_dropped_while_it_waits_takes_no_token() {
    let mut world = world("1/s burst 1").await;
    let service = PacelineLayer::new(world.pacer()).layer(world.wire.clone());
    let mut first = call(&service, get("/a"));
    assert!(settled(first.as_mut()).await.is_none());
    world.arrived();
    let mut waits = call(&service, get("/a"));
    assert!(settled(waits.as_mut()).await.is_none());
    drop(waits);
    world.clock.advance(ms(1_000));
    let mut next = call(&service, get("/a"));
    assert!(settled(next.as_mut()).await.is_none());
    world.arrived();
    assert!(world.is_quiet());
    assert!(!world.bucket.try_acquire().await.unwrap().is_granted());
}

#[tokio::test]
async fn c37_a_refusal_without_a_time_rests_its_own_target_alone() {
    let mut world = world("50/s").await;
    let service = PacelineLayer::new(world.pacer()).layer(world.wire.clone());
    let hasty = PacelineLayer::new(world.pacer().deadline(ms(500))).layer(world.wire.clone());
    for service in [&service, &hasty] {
        let mut retired = call(service, get("/retired?x=1"));
        assert!(settled(retired.as_mut()).await.is_none());
        world.arrived().answer(429, &[]);
        assert_eq!(status(&mut retired).await, 429);
    }
    let mut other = call(&service, get("/other"));
    assert!(settled(other.as_mut()).await.is_none());
    world.arrived().answer(200, &[]);
    assert_eq!(status(&mut other).await, 200);
    // Who may not wait so long is told, and who may goes when the rest is over.
    let refused = settled(call(&hasty, get("/retired")).as_mut()).await.expect("at once");
    let Err(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.cause(), &RefusedBy::Target { target: "/retired".to_owned() });
    let mut waits = call(&service, get("/retired?x=2"));
    assert!(settled(waits.as_mut()).await.is_none() && world.is_quiet());
    world.clock.advance(refusal.retry_after());
    assert!(settled(waits.as_mut()).await.is_none());
    // The first pacer was refused once, so its rest is shorter than that of the second.
    world.arrived();
    assert_eq!(world.bucket.status().await.unwrap().unwrap().suspension, None);
}

#[tokio::test]
async fn a_refused_get_is_tried_again_after_the_told_time_with_a_permit_of_its_own() {
    let mut world = world("50/s").await;
    let layer = PacelineLayer::new(world.pacer()).retry(Retry::times(2));
    let service = layer.layer(world.wire.clone());
    let mut call = call(&service, get("/a"));
    for (number, wait) in [(1, "3"), (2, "5")] {
        assert!(settled(call.as_mut()).await.is_none());
        let arrived = world.arrived();
        assert_eq!(arrived.request.body(), "payload");
        assert_eq!(arrived.request.uri().path(), "/a");
        assert_eq!(world.limiter.stats().granted, number, "one permit for each try");
        arrived.answer(429, &[("retry-after", wait)]);
        assert!(settled(call.as_mut()).await.is_none());
        world.clock.advance(ms(wait.parse::<u64>().unwrap() * 1_000 - 1));
        assert!(settled(call.as_mut()).await.is_none());
        assert!(world.is_quiet(), "a millisecond is left");
        for _ in 0..3 {
            world.clock.advance(ms(100));
            assert!(settled(call.as_mut()).await.is_none());
        }
    }
    assert_eq!(world.limiter.stats().granted, 3);
    world.arrived().answer(200, &[]);
    assert_eq!(status(&mut call).await, 200);
}

#[tokio::test]
async fn what_may_have_been_executed_or_comes_too_late_is_not_tried_again() {
    for (method, answer, wait) in [
        (Method::POST, 503, "3"),
        // Beyond the minute within which a retry may go.
        (Method::GET, 429, "61"),
        // No refusal.
        (Method::GET, 500, "3"),
    ] {
        let mut world = world("50/s").await;
        let layer = PacelineLayer::new(world.pacer()).retry(Retry::times(2));
        let service = layer.layer(world.wire.clone());
        let mut call = call(&service, request(method, "/a"));
        assert!(settled(call.as_mut()).await.is_none());
        world.arrived().answer(answer, &[("retry-after", wait)]);
        assert_eq!(status(&mut call).await, answer);
        assert!(world.is_quiet());
    }
}

#[tokio::test]
async fn a_refused_post_was_not_executed_and_is_tried_again() {
    let mut world = world("50/s").await;
    let layer = PacelineLayer::new(world.pacer()).retry(Retry::times(1));
    let service = layer.layer(world.wire.clone());
    let mut call = call(&service, request(Method::POST, "/a"));
    for answer in [429, 429] {
        assert!(settled(call.as_mut()).await.is_none());
        world.arrived().answer(answer, &[("retry-after", "3")]);
        if settled(call.as_mut()).await.is_some() {
            assert!(world.is_quiet(), "once and no more");
            return;
        }
        for _ in 0..4 {
            world.clock.advance(ms(1_000));
            assert!(settled(call.as_mut()).await.is_none());
        }
    }
    panic!("the second answer is handed on");
}

#[tokio::test]
async fn a_body_that_cannot_be_had_again_is_not_tried_again() {
    let mut world = world("50/s").await;
    let layer =
        PacelineLayer::new(world.pacer()).retry_with(Retry::times(2), |_: &Request<String>| None);
    let service = layer.layer(world.wire.clone());
    let mut call = call(&service, get("/a"));
    assert!(settled(call.as_mut()).await.is_none());
    world.arrived().answer(429, &[("retry-after", "3")]);
    assert_eq!(status(&mut call).await, 429);
    assert!(world.is_quiet());
}

#[tokio::test]
async fn the_budget_of_retries_is_kept_by_all_clones_together() {
    let mut world = world("1000/s").await;
    let layer = PacelineLayer::new(world.pacer()).retry(Retry::times(1).share(0.0));
    let mut arrived = 0;
    for _ in 0..30 {
        let service = layer.layer(world.wire.clone());
        let mut call = call(&service, get("/a"));
        while settled(call.as_mut()).await.is_none() {
            if let Ok(request) = world.other_end.try_recv() {
                request.answer(429, &[("retry-after", "1")]);
                arrived += 1;
            } else {
                world.clock.advance(ms(100));
            }
        }
    }
    assert_eq!(arrived, 30 + 10);
}

#[tokio::test]
async fn a_request_that_cannot_go_by_its_deadline_is_told_when_to_come_back() {
    let mut world = world("1/m burst 1").await;
    let pacer = world.pacer().deadline(Duration::from_secs(5));
    let service = PacelineLayer::new(pacer).layer(world.wire.clone());
    let mut first = call(&service, get("/a"));
    assert!(settled(first.as_mut()).await.is_none());
    world.arrived();
    let error = settled(call(&service, get("/a")).as_mut()).await.expect("at once").unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
    assert!(error.to_string().contains("\"api\" refused"), "{error}");
    assert!(world.is_quiet());
}

#[tokio::test]
async fn costs_and_observed_statuses_are_the_users() {
    let mut world = world("1/m burst 10").await;
    let pacer = world
        .pacer()
        .cost(|head| if head.uri.path() == "/free" { 0 } else { 4 })
        .observe_if(|status| status != 429)
        .deadline(Duration::ZERO);
    let service = PacelineLayer::new(pacer).layer(world.wire.clone());
    for path in ["/a", "/a", "/free"] {
        let mut call = call(&service, get(path));
        assert!(settled(call.as_mut()).await.is_none());
        world.arrived().answer(429, &[("retry-after", "30")]);
        assert_eq!(status(&mut call).await, 429);
    }
    let status = world.bucket.status().await.unwrap().unwrap();
    assert_eq!((status.suspension, status.quotas[0].remaining), (None, 2));
    let refused = settled(call(&service, get("/a")).as_mut()).await.expect("at once");
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn c36_an_answer_stops_the_bucket_that_it_names_and_its_target_waits_for_that() {
    let mut world = world("1/s").await;
    let layer = PacelineLayer::new(Pacer::by_profile(&world.limiter)).retry(Retry::times(1));
    let service = layer.layer(world.wire.clone());
    let request = |path: &str| {
        let request = Request::get(format!("https://api.github.com{path}"));
        request.header("authorization", "Bearer x").body(String::new()).unwrap()
    };
    let mut tried_again = call(&service, request("/named"));
    assert!(settled(tried_again.as_mut()).await.is_none());
    let reset = (START / 1_000_000 + 40).to_string();
    let headers = [
        ("x-ratelimit-resource", "search"),
        ("x-ratelimit-limit", "30"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", &*reset),
    ];
    world.arrived().answer(403, &headers);
    assert!(settled(tried_again.as_mut()).await.is_none());
    let mut suspended = Vec::new();
    for name in world.limiter.list().await.unwrap() {
        let status = world.limiter.status(&name).await.unwrap().unwrap();
        suspended.push((name, status.suspension.is_some()));
    }
    let is_held = |it: &str| suspended.iter().find(|(name, _)| name.contains(it)).unwrap().1;
    assert!(is_held("search") && !is_held("core"), "{suspended:?}");
    // Others of the core go on. The target that was named waits, and so does its retry.
    world.clock.advance(ms(10_000));
    let mut other = call(&service, request("/other"));
    assert!(settled(other.as_mut()).await.is_none());
    assert_eq!(world.arrived().request.uri().path(), "/other");
    let mut waits = call(&service, request("/named"));
    assert!(settled(waits.as_mut()).await.is_none());
    world.clock.advance(ms(29_999));
    assert!(settled(tried_again.as_mut()).await.is_none());
    assert!(settled(waits.as_mut()).await.is_none() && world.is_quiet());
    // In small steps: a place of a window whose guard is 60 ms is good for 10.
    for _ in 0..600 {
        world.clock.advance(ms(5));
        assert!(settled(tried_again.as_mut()).await.is_none());
        assert!(settled(waits.as_mut()).await.is_none());
    }
    // One of them goes first; the other when that was no refusal, or seconds later.
    world.arrived().answer(200, &[]);
    assert!(world.is_quiet());
    let mut answered = [false; 2];
    for _ in 0..1_200 {
        world.clock.advance(ms(5));
        for (call, answered) in [&mut tried_again, &mut waits].into_iter().zip(&mut answered) {
            *answered = *answered || settled(call.as_mut()).await.is_some();
        }
    }
    world.arrived();
    assert_eq!(answered.iter().filter(|answered| **answered).count(), 1);
}

#[tokio::test]
async fn an_answer_that_cannot_be_told_fails_no_request_and_this_process_obeys() {
    // Nobody listens there, and connecting is refused at once.
    let builder = Limiter::builder("redis://127.0.0.1:1").when_away(WhenAway::Allow);
    let limiter = builder.timeout(ms(20)).open().await.unwrap();
    let bucket = limiter.bucket("api", "50/s").unwrap();
    let mut world = World { bucket, limiter, ..world("50/s").await };
    let service = PacelineLayer::new(world.pacer().deadline(ms(500))).layer(world.wire.clone());
    let first = tokio::spawn(call(&service, get("/a")));
    world.other_end.recv().await.unwrap().answer(429, &[("retry-after", "3600")]);
    assert_eq!(first.await.unwrap().unwrap().status(), 429);
    let refused = call(&service, get("/a")).await;
    let Err(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert!(refusal.retry_after() > Duration::from_secs(3_000), "{refusal}");
}

#[tokio::test]
async fn the_inner_services_readiness_and_errors_are_its_own() {
    let mut world = world("50/s").await;
    let service = PacelineLayer::new(world.pacer()).layer(world.wire.clone());
    let mut call = call(&service, get("/a"));
    assert!(settled(call.as_mut()).await.is_none());
    world.arrived().answer.send(Err(Cut)).unwrap();
    let error = settled(call.as_mut()).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the wire is cut");
    assert_eq!(error.into_inner(), Some(Cut));

    #[derive(Clone)]
    struct Busy;
    impl Service<Request<String>> for Busy {
        type Response = Response<&'static str>;
        type Error = Cut;
        type Future = std::future::Pending<Answered>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request<String>) -> Self::Future {
            panic!("it was not ready")
        }
    }
    let busy = PacelineLayer::new(world.pacer()).layer(Busy);
    assert!(settled(pin!(busy.oneshot(get("/a")))).await.is_none());
    assert_eq!(world.limiter.stats().granted, 1, "who is not ready takes nothing");
}

#[tokio::test]
async fn a_client_of_hyper_waits_as_long_as_a_real_server_says() {
    use http_body_util::{BodyExt, Empty};

    let world = world("1000/s").await;
    let (uri, hits) = refusing_server::start(&world.clock).await;

    let executor = hyper_util::rt::TokioExecutor::new();
    let client = hyper_util::client::legacy::Client::builder(executor).build_http();
    let layer = PacelineLayer::new(world.pacer()).retry(Retry::times(1));
    let request = Request::get(uri).body(Empty::<axum::body::Bytes>::new()).unwrap();
    let mut call = pin!(layer.layer(client).oneshot(request));
    let response = loop {
        if let Some(response) = settled(call.as_mut()).await {
            break response.unwrap();
        }
        world.clock.advance(ms(50));
    };
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "welcome");
    let hits = hits.lock().unwrap();
    assert!(hits.len() == 2 && hits[1] - hits[0] >= 30_000_000, "{hits:?}");
}
