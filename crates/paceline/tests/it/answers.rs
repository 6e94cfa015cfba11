//! What becomes of a bucket by what was answered, through both middlewares alike: the cases of C35.

use std::ops::Range;
use std::time::Duration;

use ::tower::{Layer, ServiceExt, service_fn};
use async_trait::async_trait;
use axum::body::Bytes;
use http::{Extensions, Request, Response};
use http_body_util::{BodyExt, Full};
use paceline::http::{Pacer, ReadBodies};
use paceline::reqwest::PacelineMiddleware;
use paceline::testing::{ManualClock, memory};
use paceline::tower::{Error, PacelineLayer};
use paceline::{Limiter, Refusal, RefusedBy};
use reqwest_middleware::{ClientBuilder, Middleware, Next};

const START: i64 = 1_790_000_000_000_000;

/// What every call is answered.
#[derive(Debug, Clone)]
struct Given {
    url: &'static str,
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: &'static str,
}

/// What becomes of the bucket; spans in seconds.
#[derive(Debug, Clone, PartialEq)]
enum Becomes {
    Nothing,
    /// Of the fleet, for so long.
    Suspended(Range<u64>),
    /// Of this target in this process, for so long.
    Rests(Range<u64>),
}

use Becomes::{Nothing, Rests, Suspended};

#[derive(Debug, Clone, Copy)]
enum Through {
    Tower,
    Reqwest,
}

struct World {
    clock: ManualClock,
    limiter: Limiter,
    pacer: Pacer,
    given: Given,
    through: Through,
    looks: bool,
}

impl Given {
    fn response(&self) -> Response<Full<Bytes>> {
        let mut response =
            Response::builder().status(self.status).header("content-type", "application/json");
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        response.body(Full::from(self.body)).unwrap()
    }
}

#[async_trait]
impl Middleware for Given {
    async fn handle(
        &self,
        _: reqwest::Request,
        _: &mut Extensions,
        _: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        Ok(self.response().map(reqwest::Body::wrap).into())
    }
}

impl World {
    async fn of(given: &Given, through: Through, looks: bool) -> Self {
        let clock = ManualClock::at(START);
        let limiter = memory(&clock).await.unwrap();
        let bucket = limiter.bucket("api", "50/s burst 50").unwrap();
        let pacer = Pacer::of_bucket(bucket).deadline(Duration::ZERO);
        Self { clock, limiter, pacer, given: given.clone(), through, looks }
    }

    /// One call; what came of it, and of its body.
    async fn call(&self, url: &str) -> Result<(u16, String), Refusal> {
        let bodies = ReadBodies::up_to(64 * 1024);
        match self.through {
            Through::Tower => {
                let given = self.given.clone();
                let inner = service_fn(move |_: Request<String>| {
                    let response = given.response();
                    async { Ok::<_, std::convert::Infallible>(response) }
                });
                let layer = PacelineLayer::new(self.pacer.clone());
                let request = Request::get(url).body(String::new()).unwrap();
                let (status, body) = if self.looks {
                    let answer = layer.read_bodies(bodies).layer(inner).oneshot(request).await;
                    let (head, body) = answer.map_err(refusal)?.into_parts();
                    (head.status, body.collect().await.unwrap().to_bytes())
                } else {
                    let answer = layer.layer(inner).oneshot(request).await;
                    let (head, body) = answer.map_err(refusal)?.into_parts();
                    (head.status, body.collect().await.unwrap().to_bytes())
                };
                Ok((status.as_u16(), String::from_utf8(body.to_vec()).unwrap()))
            }
            Through::Reqwest => {
                let mut paced = PacelineMiddleware::new(self.pacer.clone());
                if self.looks {
                    paced = paced.read_bodies(bodies);
                }
                let client = ClientBuilder::new(reqwest::Client::new());
                let client = client.with(paced).with(self.given.clone()).build();
                match client.get(url).send().await {
                    Ok(answer) => Ok((answer.status().as_u16(), answer.text().await.unwrap())),
                    Err(reqwest_middleware::Error::Middleware(error)) => {
                        Err(error.downcast_ref::<Refusal>().unwrap().clone())
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Makes a call, and looks what became of the bucket by what becomes of the next.
    async fn becomes(&self) -> (Becomes, Duration) {
        let url = self.given.url;
        let answered = self.call(url).await.unwrap();
        assert_eq!(answered, (self.given.status, self.given.body.to_owned()), "handed on whole");
        let suspension = self.limiter.status("api").await.unwrap().unwrap().suspension;
        let Err(refusal) = self.call(url).await else {
            assert_eq!(suspension, None);
            return (Nothing, Duration::ZERO);
        };
        let wait = refusal.retry_after();
        let seconds = wait.as_secs()..wait.as_secs() + 1;
        match refusal.cause() {
            RefusedBy::Suspension => {
                assert_eq!(suspension.unwrap().left, wait);
                (Suspended(seconds), wait)
            }
            RefusedBy::Target { .. } => {
                assert_eq!(suspension, None);
                (Rests(seconds), wait)
            }
            cause => panic!("{cause:?}"),
        }
    }
}

fn refusal(error: Error<std::convert::Infallible>) -> Refusal {
    match error {
        Error::Refused(refusal) => refusal,
        error => panic!("{error:?}"),
    }
}

fn is_within(became: &Becomes, expected: &Becomes) -> bool {
    match (became, expected) {
        (Suspended(it), Suspended(expected)) | (Rests(it), Rests(expected)) => {
            expected.contains(&it.start)
        }
        (became, expected) => became == expected,
    }
}

const REST: &str = "https://api.github.com/user";
const GRAPHQL: &str = "https://api.github.com/graphql";
const LIMITED: &str = r#"{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}"#;
const LIMIT: &str = r#"{"data":null,"errors":[{"type":"RATE_LIMIT","message":"exceeded"}]}"#;
const SECONDARY: &str = r#"{"message":"You have exceeded a secondary rate limit. Wait."}"#;

/// Answers, and what becomes of the bucket where nobody looks at bodies and where somebody does.
fn table() -> Vec<(Given, Becomes, Becomes)> {
    let given = |url, status, headers: &[(&'static str, &str)], body| {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Given { url, status, headers, body }
    };
    let (left, reset) = ("x-ratelimit-remaining", "x-ratelimit-reset");
    let in_hour = &*(START / 1_000_000 + 3_600).to_string();
    let in_ten = &*(START / 1_000_000 + 600).to_string();
    let same = |given: Given, becomes: Becomes| (given, becomes.clone(), becomes);
    vec![
        // A matter of rights.
        same(given(REST, 403, &[(left, "4999"), (reset, in_hour)], "{}"), Nothing),
        same(given(REST, 403, &[(left, "0"), (reset, in_ten)], "{}"), Suspended(600..601)),
        same(given(REST, 403, &[("retry-after", "60")], "{}"), Suspended(60..61)),
        (given(REST, 403, &[], SECONDARY), Nothing, Suspended(60..61)),
        same(given(REST, 503, &[("retry-after", "20")], "{}"), Suspended(20..21)),
        same(given(REST, 503, &[], "{}"), Nothing),
        same(given("https://api.example.com/v1", 529, &[], "{}"), Rests(1..2)),
        (given(GRAPHQL, 200, &[], LIMITED), Nothing, Rests(1..2)),
        (given(GRAPHQL, 200, &[], LIMIT), Nothing, Rests(1..2)),
        // What is left says it where nobody looks, too; where it does not, only the body does.
        same(given(GRAPHQL, 200, &[(left, "0"), (reset, in_ten)], LIMITED), Suspended(600..601)),
        (given(GRAPHQL, 200, &[(reset, in_ten)], LIMITED), Nothing, Suspended(600..601)),
        (given(GRAPHQL, 200, &[], SECONDARY), Nothing, Suspended(60..61)),
        // The words of an error, in the data of a success, of another provider.
        same(given("https://api.example.com/v1", 200, &[], LIMITED), Nothing),
        same(given(GRAPHQL, 200, &[], r#"{"data":{"viewer":1}}"#), Nothing),
    ]
}

#[tokio::test]
async fn c35_what_an_answer_says_is_what_becomes_of_the_bucket() {
    for (given, unread, read) in table() {
        for through in [Through::Tower, Through::Reqwest] {
            for (looks, expected) in [(false, &unread), (true, &read)] {
                let world = World::of(&given, through, looks).await;
                let (became, _) = world.becomes().await;
                assert!(
                    is_within(&became, expected),
                    "{given:?} {through:?} {looks}: {became:?}, not {expected:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn c35_a_refusal_without_a_time_rests_its_target_longer_each_time_and_not_the_fleet() {
    let url = "https://api.example.com/v1";
    let given = Given { url, status: 529, headers: Vec::new(), body: "" };
    for through in [Through::Tower, Through::Reqwest] {
        let world = World::of(&given, through, false).await;
        for least in [1, 2, 4, 8] {
            let (became, wait) = world.becomes().await;
            assert!(is_within(&became, &Rests(least..least + least / 2 + 1)), "{became:?}");
            world.clock.advance(wait);
        }
    }
}

#[tokio::test]
async fn c35_a_secondary_limit_stops_for_a_minute_and_longer_each_time() {
    let given = Given { url: REST, status: 403, headers: Vec::new(), body: SECONDARY };
    for through in [Through::Tower, Through::Reqwest] {
        let world = World::of(&given, through, true).await;
        for seconds in [60, 120, 240] {
            let (became, wait) = world.becomes().await;
            assert_eq!(became, Suspended(seconds..seconds + 1));
            world.clock.advance(wait);
        }
    }
}
