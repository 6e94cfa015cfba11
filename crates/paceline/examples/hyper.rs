//! A client of hyper's behind the tower layer: `cargo run --example hyper --features tower --
//! http://host/path…`. All processes that name one store (`PACELINE_STORE`) keep one pace for each
//! host.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use axum::body::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use paceline::Limiter;
use paceline::http::{Pacer, ReadBodies, Retry};
use paceline::tower::PacelineLayer;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::from_env().await?;
    let pacer = Pacer::by_profile(&limiter).deadline(Duration::from_secs(60));
    // Some providers refuse in the body of a 200.
    let bodies = ReadBodies::up_to(64 * 1024);
    let client = ServiceBuilder::new()
        .layer(PacelineLayer::new(pacer).retry(Retry::times(2)).read_bodies(bodies))
        .service(Client::builder(TokioExecutor::new()).build_http());
    for uri in std::env::args().skip(1) {
        let request = Request::get(&uri).body(Full::<Bytes>::default())?;
        match client.clone().oneshot(request).await {
            Ok(response) => println!("{uri}: {}", response.status()),
            // Refusals say when to come back.
            Err(error) => println!("{uri}: {error}"),
        }
    }
    limiter.settled().await;
    Ok(())
}
