//! The middleware for reqwest. What it shares with the tower layer is tested there; here is that it
//! asks, tells, tries again and hands on.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::reqwest::{Body, Request, Response, ResponseBuilderExt};
use async_trait::async_trait;
use http::Extensions;
use paceline::http::{Pacer, ReadBodies, Retry};
use paceline::reqwest::PacelineMiddleware;
use paceline::testing::{ManualClock, memory};
use paceline::{Bucket, Limiter, Refusal};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};

use crate::limiter::{ms, settled};
use crate::refusing_server;

/// The end of the chain: answers each request with what comes next in its list, `status,
/// Retry-After`, and then with 200.
#[derive(Clone, Default)]
struct Wire {
    answers: Arc<Mutex<Vec<(u16, &'static str)>>>,
    arrived: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Middleware for Wire {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        self.arrived.lock().unwrap().push(request.url().path().to_owned());
        let answers = &mut self.answers.lock().unwrap();
        let answer = http::Response::builder();
        let answer = if answers.is_empty() {
            answer.status(200)
        } else {
            let (status, retry_after) = answers.remove(0);
            answer.status(status).header("retry-after", retry_after)
        };
        Ok(answer.body("body").unwrap().into())
    }
}

impl Wire {
    fn arrived(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }
}

async fn world(
    policy: &str,
    answers: &[(u16, &'static str)],
) -> (ManualClock, Limiter, Bucket, Wire) {
    let clock = ManualClock::at(1_790_000_000_000_000);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    let wire = Wire::default();
    wire.answers.lock().unwrap().extend_from_slice(answers);
    (clock, limiter, bucket, wire)
}

fn client(paced: PacelineMiddleware, wire: &Wire) -> ClientWithMiddleware {
    ClientBuilder::new(::reqwest::Client::new()).with(paced).with(wire.clone()).build()
}

#[tokio::test]
async fn a_refused_get_is_tried_again_after_the_told_time_with_a_permit_of_its_own() {
    let (clock, limiter, bucket, wire) = world("50/s", &[(429, "30")]).await;
    let paced = PacelineMiddleware::new(Pacer::of_bucket(bucket)).retry(Retry::times(1));
    let client = client(paced, &wire);
    let mut call = pin!(client.get("http://api.example.com/a").send());
    assert!(settled(call.as_mut()).await.is_none());
    clock.advance(ms(29_999));
    assert!(settled(call.as_mut()).await.is_none());
    assert_eq!((wire.arrived(), limiter.stats().granted), (1, 1));
    let mut response = None;
    for _ in 0..3 {
        clock.advance(ms(100));
        response = response.or(settled(call.as_mut()).await);
        if response.is_some() {
            break;
        }
    }
    assert_eq!(response.expect("answered").unwrap().status(), 200);
    assert_eq!((wire.arrived(), limiter.stats().granted), (2, 2));
}

#[tokio::test]
async fn what_streams_or_may_have_been_executed_is_not_tried_again() {
    let (_, _, bucket, wire) = world("50/s", &[(503, "1"), (429, "1")]).await;
    let paced = PacelineMiddleware::new(Pacer::of_bucket(bucket.clone())).retry(Retry::times(5));
    let client = client(paced, &wire);
    let post = || client.post("http://api.example.com/a");
    assert_eq!(post().body("text").send().await.unwrap().status(), 503);
    bucket.resume().await.unwrap();
    let streams = Body::wrap(http_body_util::Full::<axum::body::Bytes>::from("text"));
    assert_eq!(post().body(streams).send().await.unwrap().status(), 429);
    assert_eq!(wire.arrived(), 2);
}

#[tokio::test]
async fn clones_share_and_a_request_dropped_while_it_waits_takes_nothing() {
    let (clock, _, bucket, wire) = world("1/s burst 1", &[]).await;
    let client = client(PacelineMiddleware::new(Pacer::of_bucket(bucket)), &wire);
    let call = |client: &ClientWithMiddleware| {
        let client = client.clone();
        Box::pin(async move { client.get("http://api.example.com/a").send().await })
    };
    assert!(settled(call(&client).as_mut()).await.is_some());
    let mut waits = call(&client);
    assert!(settled(waits.as_mut()).await.is_none());
    drop(waits);
    clock.advance(ms(1_000));
    assert!(settled(call(&client).as_mut()).await.is_some());
    assert!(settled(call(&client).as_mut()).await.is_none());
}

#[tokio::test]
async fn a_request_that_cannot_go_by_its_deadline_is_told_when_to_come_back() {
    let (_, _, bucket, wire) = world("1/m burst 1", &[]).await;
    let pacer = Pacer::of_bucket(bucket).deadline(Duration::from_secs(5));
    let client = client(PacelineMiddleware::new(pacer), &wire);
    client.get("http://api.example.com/a").send().await.unwrap();
    let error = client.get("http://api.example.com/a").send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error:?}") };
    let refusal: &Refusal = error.downcast_ref().expect("a refusal");
    assert_eq!(refusal.retry_after(), Duration::from_secs(60));
    assert_eq!(wire.arrived(), 1);
}

#[tokio::test]
async fn a_client_of_reqwest_waits_as_long_as_a_real_server_says() {
    let (clock, _, bucket, _) = world("1000/s", &[]).await;
    let (url, hits) = refusing_server::start(&clock).await;

    let paced = PacelineMiddleware::new(Pacer::of_bucket(bucket)).retry(Retry::times(1));
    let client = ClientBuilder::new(::reqwest::Client::new()).with(paced).build();
    let mut call = pin!(client.get(url).send());
    let response = loop {
        if let Some(response) = settled(call.as_mut()).await {
            break response.unwrap();
        }
        clock.advance(ms(50));
    };
    assert_eq!(response.text().await.unwrap(), "welcome");
    let hits = hits.lock().unwrap();
    assert!(hits.len() == 2 && hits[1] - hits[0] >= 30_000_000, "{hits:?}");
}

#[tokio::test]
async fn c28_clones_of_the_client_share_one_limit() {
    let (clock, _, bucket, wire) = world("5/s burst 5", &[]).await;
    let client = client(PacelineMiddleware::new(Pacer::of_bucket(bucket)), &wire);
    let clones: Vec<_> = (0..8).map(|_| client.clone()).collect();
    let tasks: Vec<_> = (0..200)
        .map(|number| tokio::spawn(clones[number % 8].get("http://api.example.com/a").send()))
        .collect();
    let turns = async |turns: usize| {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        wire.arrived()
    };
    assert_eq!(turns(300).await, 5);
    for _ in 0..99 {
        clock.advance(ms(10));
        turns(20).await;
    }
    let in_first_second = turns(300).await;
    assert!((9..=10).contains(&in_first_second), "{in_first_second}");
    for task in tasks {
        task.abort();
    }
}

/// Answers a body that breaks off behind its first part.
struct BreaksOff;

#[derive(Debug, thiserror::Error)]
#[error("the wire is cut")]
struct Cut;

#[async_trait]
impl Middleware for BreaksOff {
    async fn handle(
        &self,
        request: Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let part = http_body::Frame::data(axum::body::Bytes::from_static(b"secondary rate limit"));
        let body = futures_util::stream::iter([Ok(part), Err(Cut)]);
        let answer = http::Response::builder()
            .status(403)
            .header("content-type", "text/plain")
            .url(request.url().clone());
        Ok(answer.body(Body::wrap(http_body_util::StreamBody::new(body))).unwrap().into())
    }
}

#[tokio::test]
async fn an_answer_whose_body_was_read_is_handed_on_as_it_came() {
    let (_, _, bucket, _) = world("50/s", &[]).await;
    for bodies in [None, Some(ReadBodies::up_to(5)), Some(ReadBodies::up_to(1_000))] {
        let looks = bodies.is_some();
        let mut paced = PacelineMiddleware::new(Pacer::of_bucket(bucket.clone()));
        if let Some(bodies) = bodies {
            paced = paced.read_bodies(bodies);
        }
        let client =
            ClientBuilder::new(::reqwest::Client::new()).with(paced).with(BreaksOff).build();
        let mut answer = client.get("https://api.github.com/user?x=1").send().await.unwrap();
        assert_eq!(answer.url().as_str(), "https://api.github.com/user?x=1");
        assert_eq!((answer.status().as_u16(), answer.headers().len()), (403, 1));
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "secondary rate limit");
        let mut error: &dyn std::error::Error = &answer.chunk().await.unwrap_err();
        while let Some(source) = error.source() {
            error = source;
        }
        assert!(error.is::<Cut>(), "{error:?}");
        assert_eq!(bucket.resume().await.unwrap(), looks);
    }
}
