//! A client of reqwest with the middleware: `cargo run --example reqwest --features reqwest --
//! http://host/path…`. For https add a TLS feature of reqwest's to your own program.
#![allow(clippy::print_stdout, reason = "a program that shows something")]

use std::time::Duration;

use paceline::Limiter;
use paceline::http::{Pacer, ReadBodies, Retry};
use paceline::reqwest::PacelineMiddleware;
use reqwest_middleware::ClientBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::from_env().await?;
    let pacer = Pacer::by_profile(&limiter).deadline(Duration::from_secs(60));
    // Some providers refuse in the body of a 200.
    let bodies = ReadBodies::up_to(64 * 1024);
    let paced = PacelineMiddleware::new(pacer).retry(Retry::times(2)).read_bodies(bodies);
    let client = ClientBuilder::new(reqwest::Client::new()).with(paced).build();
    for url in std::env::args().skip(1) {
        match client.get(&url).send().await {
            Ok(response) => println!("{url}: {}", response.status()),
            // Refusals say when to come back.
            Err(error) => println!("{url}: {error}"),
        }
    }
    limiter.settled().await;
    Ok(())
}
