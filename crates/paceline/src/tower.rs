//! A tower [`Layer`] for HTTP clients (feature `tower`): each request waits for its permit, goes out,
//! and what its answer says of the pace reaches the whole fleet.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use http::{Request, Response};
//! use paceline::Limiter;
//! use paceline::http::{Pacer, Retry};
//! use paceline::tower::PacelineLayer;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! let limiter = Limiter::open("memory:").await?;
//! let layer = PacelineLayer::new(Pacer::by_profile(&limiter)).retry(Retry::times(2));
//! // A client of hyper's, or any other service of requests and responses.
//! let client = service_fn(|_: Request<String>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new("answer"))
//! });
//! let client = ServiceBuilder::new().layer(layer).service(client);
//! let request = Request::get("https://api.github.com/user").body(String::new())?;
//! assert_eq!(client.oneshot(request).await?.into_body(), "answer");
//! # Ok(()) }
//! ```
//!
//! - **Which bucket, at what cost, how long to wait**: [`Pacer`] says.
//! - **Clones share.** What is remembered is behind an `Arc`, so a service that is cloned for each
//!   connection or each request keeps one limit.
//! - **Waiting is in the future** of the call: drop it and nothing was taken. `poll_ready` is the inner
//!   service's own; a service that was ready stays reserved while the call waits, so put a limit of
//!   concurrency outside this layer.
//! - **Bodies are not looked at**, neither of requests nor of answers: a streaming body streams. Where
//!   a provider refuses in the body, [`read_bodies`](PacelineLayer::read_bodies) has a look at those
//!   that may say so.
//! - **A call counts until its answer has come** where the policy's window has a guard: a request that
//!   fails or is dropped under way may have arrived, and counts until the guard is over.
//! - **Outside a retry layer** this layer takes one permit for all tries; inside one, each try takes
//!   its own. [`retry`](PacelineLayer::retry) here takes one for each try, too.
//! - **A store that is away** when an answer is to be told fails no request: a warning is logged, and
//!   this process alone obeys.
//!
//! The examples `hyper` and `axum` are whole programs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::Refusal;
use crate::http::{Pacer, ReadAhead, ReadBodies, Retry, Said, Stopped};

/// Makes [`Paceline`] services. `R` says how a request is made again for a retry, and `L` whether
/// bodies of answers are looked at.
#[derive(Debug, Clone)]
pub struct PacelineLayer<R = Once, L = Unread> {
    pacer: Arc<Pacer>,
    retry: Option<Retry>,
    replay: R,
    look: L,
}

/// A service whose requests are paced. Made by [`PacelineLayer`]; clones share one pace.
#[derive(Debug, Clone)]
pub struct Paceline<S, R = Once, L = Unread> {
    inner: S,
    layer: PacelineLayer<R, L>,
}

/// Why a request has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// It cannot go out within its deadline, and did not. Says when to come back.
    Refused(Refusal),
    /// The limiter failed, such as when its store is away; the request did not go out.
    Limiter(crate::Error),
    /// It went out, or was about to, and the inner service failed.
    Inner(E),
}

/// The answer of a [`Paceline`] service, to come. Dropped while it waits for a permit, it takes
/// nothing; dropped later, its call counts.
pub type ResponseFuture<A, E> = Pin<Box<dyn Future<Output = Result<Response<A>, Error<E>>> + Send>>;

mod sealed {
    pub trait Sealed {}
}

/// How a request is made again for a retry. Sealed.
pub trait Replay<B>: sealed::Sealed + Clone + Send + Sync + 'static {
    /// The request once more, where that is possible.
    fn again(&self, request: &Request<B>) -> Option<Request<B>>;
}

/// Whether bodies of answers are looked at before they are handed on. Sealed.
pub trait Look<A>: sealed::Sealed + Clone + Send + Sync + 'static {
    /// The body that callers are handed.
    type Body: Send + 'static;

    /// Which bodies.
    fn bodies(&self) -> Option<&ReadBodies>;

    /// The answer as it is handed on, and what was read of its body, which is none where `bytes_max`
    /// is.
    fn look(
        answer: Response<A>,
        bytes_max: Option<usize>,
    ) -> impl Future<Output = (Response<Self::Body>, Option<Bytes>)> + Send;
}

/// Bodies stream, and nobody looks.
#[derive(Debug, Clone, Copy)]
pub struct Unread;

/// Some bodies are read before they are handed on.
#[derive(Debug, Clone)]
pub struct Read(ReadBodies);

/// Requests are made once.
#[derive(Debug, Clone, Copy)]
pub struct Once;

/// A retry is a clone of the request.
#[derive(Debug, Clone, Copy)]
pub struct Cloned;

/// A retry is what a function makes of the request.
#[derive(Clone, Copy)]
pub struct MadeBy<F>(F);

impl PacelineLayer {
    /// A layer that paces as `pacer` says and tries nothing again.
    #[must_use]
    pub fn new(pacer: Pacer) -> Self {
        Self { pacer: Arc::new(pacer), retry: None, replay: Once, look: Unread }
    }
}

impl<R> PacelineLayer<R> {
    /// Looks at those bodies of answers that may say what the headers do not, such as a refusal in a
    /// 200. The service's answers then have a body of the type [`ReadAhead`], which comes whole.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// use paceline::Limiter;
    /// use paceline::http::{Pacer, ReadBodies, Retry};
    /// use paceline::tower::PacelineLayer;
    ///
    /// let limiter = Limiter::open("memory:").await?;
    /// let layer = PacelineLayer::new(Pacer::by_profile(&limiter))
    ///     .read_bodies(ReadBodies::up_to(64 * 1024))
    ///     .retry(Retry::times(2));
    /// # drop(layer); Ok(()) }
    /// ```
    #[must_use]
    pub fn read_bodies(self, bodies: ReadBodies) -> PacelineLayer<R, Read> {
        let Self { pacer, retry, replay, look: Unread } = self;
        PacelineLayer { pacer, retry, replay, look: Read(bodies) }
    }
}

impl<L> PacelineLayer<Once, L> {
    /// Tries again what was refused, with a clone of the request: for bodies that can be cloned, such
    /// as `Full<Bytes>` or `String`.
    #[must_use]
    pub fn retry(self, retry: Retry) -> PacelineLayer<Cloned, L> {
        let Self { pacer, look, .. } = self;
        PacelineLayer { pacer, retry: Some(retry), replay: Cloned, look }
    }

    /// Tries again what was refused, with what `again` makes of a request before it goes out. Where
    /// it makes none, the answer is handed on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), paceline::Error> {
    /// use http::Request;
    /// use paceline::Limiter;
    /// use paceline::http::{Pacer, Retry};
    /// use paceline::tower::PacelineLayer;
    ///
    /// struct Body(Option<String>); // no text: it streams, and cannot be had twice
    /// let limiter = Limiter::open("memory:").await?;
    /// let layer = PacelineLayer::new(Pacer::by_profile(&limiter)).retry_with(
    ///     Retry::times(2),
    ///     |request: &Request<Body>| {
    ///         let mut again = Request::new(Body(Some(request.body().0.clone()?)));
    ///         *again.method_mut() = request.method().clone();
    ///         *again.uri_mut() = request.uri().clone();
    ///         *again.headers_mut() = request.headers().clone();
    ///         Some(again)
    ///     },
    /// );
    /// # drop(layer); Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_with<B, F>(self, retry: Retry, again: F) -> PacelineLayer<MadeBy<F>, L>
    where
        F: Fn(&Request<B>) -> Option<Request<B>> + Clone + Send + Sync + 'static,
    {
        let Self { pacer, look, .. } = self;
        PacelineLayer { pacer, retry: Some(retry), replay: MadeBy(again), look }
    }
}

impl<S, R: Clone, L: Clone> Layer<S> for PacelineLayer<R, L> {
    type Service = Paceline<S, R, L>;

    fn layer(&self, inner: S) -> Self::Service {
        Paceline { inner, layer: self.clone() }
    }
}

impl<S, R, L, B, A> Service<Request<B>> for Paceline<S, R, L>
where
    S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: Replay<B>,
    L: Look<A>,
    B: Send + 'static,
    A: Send + 'static,
{
    type Response = Response<L::Body>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<L::Body, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Error::Inner)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one to call; a clone may not be ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let PacelineLayer { pacer, retry, replay, look } = self.layer.clone();
        Box::pin(async move {
            let (method, uri) = (request.method(), request.uri().clone());
            let mut trip = pacer
                .trip(method, uri, request.headers(), retry.as_ref())
                .map_err(Error::Limiter)?;
            pacer.go(&mut trip).await?;
            loop {
                let again = if trip.may_repeat() { replay.again(&request) } else { None };
                let response = inner.call(request).await.map_err(Error::Inner)?;
                let (status, headers) = (response.status(), response.headers());
                let bytes_max = pacer.reads(&trip, look.bodies(), status, headers);
                let (response, seen) = L::look(response, bytes_max).await;
                let said = Said { status, headers: response.headers(), body: seen.as_deref() };
                let repeat = pacer.heard(&mut trip, said, again.is_some()).await;
                let Some(next) = again.filter(|_| repeat) else { return Ok(response) };
                // What is left of the answer would hold a connection while this waits.
                drop(response);
                std::future::poll_fn(|context| inner.poll_ready(context))
                    .await
                    .map_err(Error::Inner)?;
                pacer.go_again(&mut trip).await?;
                request = next;
            }
        })
    }
}

impl<E> Error<E> {
    /// When the same request would go out, where it was refused.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => Some(refusal.retry_after()),
            Self::Limiter(_) | Self::Inner(_) => None,
        }
    }

    /// What the inner service said, where it was asked.
    #[must_use]
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::Refused(_) | Self::Limiter(_) => None,
        }
    }
}

impl<E> From<Stopped> for Error<E> {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Refused(refusal) => Self::Refused(refusal),
            Stopped::Failed(error) => Self::Limiter(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Limiter(error) => error.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The words of what is inside are its own already; who looks for a cause looks behind it.
        match self {
            Self::Refused(_) | Self::Limiter(_) => None,
            Self::Inner(error) => error.source(),
        }
    }
}

impl sealed::Sealed for Unread {}

impl<A: Send + 'static> Look<A> for Unread {
    type Body = A;

    fn bodies(&self) -> Option<&ReadBodies> {
        None
    }

    async fn look(answer: Response<A>, _: Option<usize>) -> (Response<A>, Option<Bytes>) {
        (answer, None)
    }
}

impl sealed::Sealed for Read {}

impl<A> Look<A> for Read
where
    A: Body<Data: Send, Error: Send> + Send + 'static,
{
    type Body = ReadAhead<A>;

    fn bodies(&self) -> Option<&ReadBodies> {
        Some(&self.0)
    }

    async fn look(
        answer: Response<A>,
        bytes_max: Option<usize>,
    ) -> (Response<ReadAhead<A>>, Option<Bytes>) {
        let Some(bytes_max) = bytes_max else { return (answer.map(ReadAhead::none), None) };
        let (head, body) = answer.into_parts();
        let (body, seen) = ReadAhead::read(body, bytes_max).await;
        (Response::from_parts(head, body), Some(seen))
    }
}

impl sealed::Sealed for Once {}

impl<B> Replay<B> for Once {
    fn again(&self, _: &Request<B>) -> Option<Request<B>> {
        None
    }
}

impl sealed::Sealed for Cloned {}

impl<B: Clone> Replay<B> for Cloned {
    fn again(&self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

impl<F> sealed::Sealed for MadeBy<F> {}

impl<B, F> Replay<B> for MadeBy<F>
where
    F: Fn(&Request<B>) -> Option<Request<B>> + Clone + Send + Sync + 'static,
{
    fn again(&self, request: &Request<B>) -> Option<Request<B>> {
        (self.0)(request)
    }
}

impl<F> fmt::Debug for MadeBy<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeBy(..)")
    }
}
