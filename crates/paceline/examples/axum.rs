//! A web service whose handler calls another service through the tower layer: `cargo run --example
//! axum --features tower`, then `curl -i localhost:3000/zen`. Handlers run at once and share one
//! pace; when it is used up, callers are told when to come back instead of piling up.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use paceline::Limiter;
use paceline::http::Pacer;
use paceline::tower::{Paceline, PacelineLayer};
use tower::{Layer, ServiceExt};

type Upstream = Paceline<Client<HttpConnector, Body>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::from_env().await?;
    let bucket = limiter.bucket("upstream", "strict 60/m")?;
    let pacer = Pacer::of_bucket(bucket).deadline(Duration::from_secs(2));
    let client = Client::builder(TokioExecutor::new()).build_http();
    let upstream: Upstream = PacelineLayer::new(pacer).layer(client);

    let router = Router::new().route("/zen", get(zen)).with_state(upstream);
    let listener = tokio::net::TcpListener::bind("localhost:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

/// Hands on what the other service answers; its body streams through.
async fn zen(State(upstream): State<Upstream>) -> Response {
    let uri = std::env::var("UPSTREAM").unwrap_or_else(|_| "http://localhost:8000/".to_owned());
    let Ok(request) = Request::get(uri).body(Body::empty()) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "UPSTREAM is no URI").into_response();
    };
    match upstream.oneshot(request).await {
        Ok(response) => response.map(Body::new).into_response(),
        Err(error) => match error.retry_after() {
            Some(wait) => {
                let seconds = (wait.as_secs() + 1).to_string();
                (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, seconds)]).into_response()
            }
            None => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        },
    }
}
