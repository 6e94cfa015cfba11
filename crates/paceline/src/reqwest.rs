//! A middleware for [`reqwest_middleware`] (feature `reqwest`): each request waits for its permit,
//! goes out, and what its answer says of the pace reaches the whole fleet.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! use paceline::Limiter;
//! use paceline::http::{Pacer, Retry};
//! use paceline::reqwest::PacelineMiddleware;
//! use reqwest_middleware::ClientBuilder;
//!
//! let limiter = Limiter::open("memory:").await?;
//! let paced = PacelineMiddleware::new(Pacer::by_profile(&limiter)).retry(Retry::times(2));
//! let client = ClientBuilder::new(reqwest::Client::new()).with(paced).build();
//! # drop(client); Ok(()) }
//! ```
//!
//! It does what the tower layer does: [`Pacer`] says which bucket, at what cost
//! and how long to wait; clones of the client share; a request dropped while it waits takes nothing;
//! bodies are not looked at unless [`read_bodies`](PacelineMiddleware::read_bodies) says so.
//! Middleware that tries again belongs outside, so that each try takes a
//! permit of its own, as those of [`retry`](PacelineMiddleware::retry) do. Redirects are followed
//! inside of one call, and take none.
//!
//! A request that did not go out has an error of `reqwest_middleware`'s, with ours inside: a
//! [`Refusal`](crate::Refusal), which says when to come back, or an [`Error`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
//! # use paceline::Limiter;
//! # use paceline::http::Pacer;
//! # use paceline::reqwest::PacelineMiddleware;
//! use std::time::Duration;
//! use paceline::Refusal;
//! use reqwest_middleware::Error;
//!
//! # let limiter = Limiter::open("memory:").await?;
//! let bucket = limiter.bucket("api", "1/h")?;
//! bucket.suspend(Duration::from_secs(60), "asked to").await?;
//! let pacer = Pacer::of_bucket(bucket).deadline(Duration::from_secs(1));
//! let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
//!     .with(PacelineMiddleware::new(pacer))
//!     .build();
//! let error = client.get("http://localhost/").send().await.unwrap_err();
//! let Error::Middleware(error) = error else { panic!("it did not go out") };
//! let refusal: &Refusal = error.downcast_ref().expect("refused");
//! assert!(refusal.retry_after() > Duration::from_secs(50));
//! # Ok(()) }
//! ```

use ::http::{Extensions, Uri};
use ::reqwest::{Body, Request, Response, ResponseBuilderExt};
use bytes::Bytes;
use reqwest_middleware::{Middleware, Next};

use crate::error::Error;
use crate::http::{Pacer, ReadAhead, ReadBodies, Retry, Said, Stopped};

/// Paces the requests of a client.
#[derive(Debug, Clone)]
pub struct PacelineMiddleware {
    pacer: Pacer,
    retry: Option<Retry>,
    bodies: Option<ReadBodies>,
}

impl PacelineMiddleware {
    /// A middleware that paces as `pacer` says and tries nothing again.
    #[must_use]
    pub fn new(pacer: Pacer) -> Self {
        Self { pacer, retry: None, bodies: None }
    }

    /// Tries again what was refused, where the request can be cloned: one whose body streams cannot,
    /// and its answer is handed on.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Looks at those bodies of answers that may say what the headers do not, such as a refusal in a
    /// 200. Answers are handed on whole. An error while a body is read comes where it is read, with
    /// that of reqwest inside.
    #[must_use]
    pub fn read_bodies(mut self, bodies: ReadBodies) -> Self {
        self.bodies = Some(bodies);
        self
    }
}

#[async_trait::async_trait]
impl Middleware for PacelineMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let pacer = &self.pacer;
        let uri = uri_of(&request).map_err(Stopped::Failed)?;
        let mut trip = pacer
            .trip(request.method(), uri, request.headers(), self.retry.as_ref())
            .map_err(Stopped::Failed)?;
        pacer.go(&mut trip).await?;
        loop {
            let again = if trip.may_repeat() { request.try_clone() } else { None };
            let mut response = next.clone().run(request, extensions).await?;
            let (status, headers) = (response.status(), response.headers());
            let mut seen = None;
            if let Some(bytes) = pacer.reads(&trip, self.bodies.as_ref(), status, headers) {
                let (whole, read) = read_ahead(response, bytes).await;
                response = whole;
                seen = Some(read);
            }
            let said = Said { status, headers: response.headers(), body: seen.as_deref() };
            let repeat = pacer.heard(&mut trip, said, again.is_some()).await;
            let Some(next_request) = again.filter(|_| repeat) else { return Ok(response) };
            // What is left of the answer would hold a connection while this waits.
            drop(response);
            pacer.go_again(&mut trip).await?;
            request = next_request;
        }
    }
}

impl From<Stopped> for reqwest_middleware::Error {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Refused(refusal) => Self::middleware(refusal),
            Stopped::Failed(error) => Self::middleware(error),
        }
    }
}

/// Reads up to so many bytes of an answer's body; the answer as it was, and what was read.
async fn read_ahead(response: Response, bytes_max: usize) -> (Response, Bytes) {
    let url = response.url().clone();
    let (mut head, body) = ::http::Response::<Body>::from(response).into_parts();
    let (body, seen) = ReadAhead::read(body, bytes_max).await;
    // The address is handed over in an extension that only reqwest can make.
    let mut address = ::http::Response::builder().url(url);
    if let Some(address) = address.extensions_mut() {
        head.extensions.extend(std::mem::take(address));
    }
    (::http::Response::from_parts(head, Body::wrap(body)).into(), seen)
}

fn uri_of(request: &Request) -> Result<Uri, Error> {
    let url = request.url();
    // The URL itself may hold what is secret.
    let wrong =
        |error| Error::input(format!("the URL of a request to {:?}: {error}", url.host_str()));
    url.as_str().parse::<Uri>().map_err(wrong)
}
