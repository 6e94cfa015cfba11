//! A real server on loopback that refuses its first call for thirty seconds and welcomes all others.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::IntoResponse;
use paceline::testing::ManualClock;

/// Its address, and when it was called by the clock moved by hand. It ends with the runtime.
pub(crate) async fn start(clock: &ManualClock) -> (String, Arc<Mutex<Vec<i64>>>) {
    let (clock, hits) = (clock.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&hits);
    let answer = move || {
        let mut hits = seen.lock().unwrap();
        hits.push(clock.now());
        let is_first = hits.len() == 1;
        async move {
            if is_first {
                (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "30")]).into_response()
            } else {
                "welcome".into_response()
            }
        }
    };
    let router = axum::Router::new().route("/", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, hits)
}
