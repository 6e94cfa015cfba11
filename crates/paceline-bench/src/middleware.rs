//! What the middlewares add to a request: a service that answers at once, bare and behind them, in
//! turn. The answers carry the headers that a real one does, limits among them; the store is memory.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Request, Response};
use paceline::http::{Pacer, Profiles};
use paceline::reqwest::PacelineMiddleware;
use paceline::tower::PacelineLayer;
use paceline::{Bucket, Limiter};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tower_layer::Layer;
use tower_service::Service;

use crate::Figure;

const POLICY: &str = "1000000/s burst 1000000000";
const URI: &str = "https://api.stripe.com/v1/charges";
const ROUNDS: usize = 41;
const CALLS: u32 = 10_000;

/// The answer's headers, of which some tell of limits.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("date", "Tue, 10 Mar 2026 12:00:00 GMT"),
        ("content-type", "application/json"),
        ("content-length", "1253"),
        ("cache-control", "no-cache, no-store"),
        ("request-id", "req_0123456789"),
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4999"),
        ("strict-transport-security", "max-age=63072000"),
    ] {
        headers.insert(name, value.parse().expect("a value"));
    }
    headers
}

/// A service that answers at once. Cheap to clone, as clients are.
#[derive(Clone)]
struct Ready(Arc<HeaderMap>);

impl Service<Request<()>> for Ready {
    type Response = Response<()>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Response<()>, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(());
        *response.headers_mut() = HeaderMap::clone(&self.0);
        std::future::ready(Ok(response))
    }
}

/// The end of a chain that answers at once.
struct Answers(HeaderMap);

#[async_trait]
impl Middleware for Answers {
    async fn handle(
        &self,
        _: reqwest::Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let mut response = Response::new("");
        *response.headers_mut() = self.0.clone();
        Ok(response.into())
    }
}

pub(crate) fn tower(what: &str, by_profile: bool, target_ns: f64) -> Figure {
    crate::runtime().block_on(async {
        let (limiter, bucket) = open().await;
        let pacer = if by_profile { Pacer::by_profile(&limiter) } else { Pacer::of_bucket(bucket) };
        let mut bare = Ready(Arc::new(headers()));
        let mut paced = PacelineLayer::new(pacer).layer(bare.clone());
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(service(&mut bare).await);
            with.push(service(&mut paced).await);
        }
        figure(what, &mut without, &mut with, target_ns)
    })
}

pub(crate) fn reqwest(what: &str, target_ns: f64) -> Figure {
    crate::runtime().block_on(async {
        let (limiter, _bucket) = open().await;
        let paced = PacelineMiddleware::new(Pacer::by_profile(&limiter));
        let builder = || ClientBuilder::new(reqwest::Client::new());
        let bare = builder().with(Answers(headers())).build();
        let paced = builder().with(paced).with(Answers(headers())).build();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            without.push(client(&bare).await);
            with.push(client(&paced).await);
        }
        figure(what, &mut without, &mut with, target_ns)
    })
}

/// A limiter whose bucket for these requests never makes one wait.
async fn open() -> (Limiter, Bucket) {
    let limiter = Limiter::open("memory:").await.expect("a memory store");
    let uri = URI.parse().expect("a URI");
    let profile = Profiles::builtin().for_uri(&uri);
    let name = profile.bucket_of(&http::Method::GET, &uri, &HeaderMap::new()).bucket;
    limiter.pin_policy(&name, POLICY).await.expect("a policy");
    let bucket = limiter.bucket(&name, POLICY).expect("a policy");
    (limiter, bucket)
}

async fn service<S>(service: &mut S) -> f64
where
    S: Service<Request<()>, Response = Response<()>>,
    S::Error: std::fmt::Debug,
{
    let uri: http::Uri = URI.parse().expect("a URI");
    let start = Instant::now();
    for _ in 0..CALLS {
        let mut request = Request::new(());
        *request.uri_mut() = uri.clone();
        std::future::poll_fn(|context| service.poll_ready(context)).await.expect("ready");
        black_box(service.call(request).await.expect("answered"));
    }
    nanoseconds(start)
}

async fn client(client: &ClientWithMiddleware) -> f64 {
    let url: reqwest::Url = URI.parse().expect("a URL");
    let start = Instant::now();
    for _ in 0..CALLS {
        let request = reqwest::Request::new(http::Method::GET, url.clone());
        black_box(client.execute(request).await.expect("answered"));
    }
    nanoseconds(start)
}

fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn figure(what: &str, without: &mut [f64], with: &mut [f64], target_ns: f64) -> Figure {
    let (bare, paced) = (crate::median(without), crate::median(with));
    let ns = paced - bare;
    Figure {
        what: what.to_owned(),
        target: format!("at most {target_ns} ns"),
        measured: format!("{ns:.0} ns more than {bare:.0}"),
        met: ns <= target_ns,
    }
}
