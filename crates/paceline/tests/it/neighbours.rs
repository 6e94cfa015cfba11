//! Ten callers of one bucket, of which one calls a target that is always refused with nothing said:
//! the other nine keep their pace.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use ::tower::{Layer, ServiceExt, service_fn};
use http::{Request, Response, StatusCode};
use paceline::http::Pacer;
use paceline::testing::{ManualClock, memory};
use paceline::tower::PacelineLayer;

use crate::limiter::{ms, settled};

/// Calls that arrived in twenty seconds at 50 a second, by path, of callers of these paths.
async fn arrived(paths: &[&'static str]) -> HashMap<String, usize> {
    let clock = ManualClock::at(1_790_000_000_000_000);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", "50/s burst 1").unwrap();
    let counts = Arc::<Mutex<HashMap<String, usize>>>::default();
    let seen = Arc::clone(&counts);
    let provider = service_fn(move |request: Request<()>| {
        let path = request.uri().path().to_owned();
        let is_retired = path == "/retired";
        *seen.lock().unwrap().entry(path).or_default() += 1;
        let mut response = Response::new(());
        if is_retired {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let service = PacelineLayer::new(Pacer::of_bucket(bucket.clone())).layer(provider);
    let call = |path: &str| {
        let request = Request::get(format!("https://api.example.com{path}")).body(()).unwrap();
        Box::pin(service.clone().oneshot(request))
    };
    let mut callers: Vec<_> = paths.iter().map(|path| (*path, call(path))).collect();
    for _ in 0..1_000 {
        clock.advance(ms(20));
        for (path, calling) in &mut callers {
            if let Some(answer) = settled(calling.as_mut()).await {
                answer.unwrap();
                *calling = call(path);
            }
        }
    }
    assert_eq!(bucket.status().await.unwrap().unwrap().suspension, None);
    std::mem::take(&mut *counts.lock().unwrap())
}

#[tokio::test]
async fn c37_one_caller_with_bare_refusals_does_not_slow_the_other_nine() {
    let others = ["/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"];
    let alone: usize = arrived(&others).await.values().sum();
    let beside = arrived(&[&["/retired"], &others[..]].concat()).await;
    let retired = beside["/retired"];
    // It rests for longer each time: 1, 2, 4, 8 s and half as much at most.
    assert!((3..=6).contains(&retired), "{retired}");
    let nine: usize = others.iter().map(|path| beside[*path]).sum();
    assert!(alone > 900 && nine + retired >= alone - 10, "{nine} and {retired} of {alone}");
}
