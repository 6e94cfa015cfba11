//! `rediss://` against a real server that speaks only TLS, with a certificate authority of its own.

use std::time::Duration;

use paceline::{Limiter, WhenAway};
use paceline_testkit::RedisServer;

use crate::environment;

#[tokio::test]
async fn a_server_behind_tls_is_trusted_by_its_authority_and_by_no_other() {
    let name = "tls::a_server_behind_tls_is_trusted_by_its_authority_and_by_no_other";
    if let Ok(url) = std::env::var("PACELINE_TEST_TLS_URL") {
        let limiter = open(&url).await;
        let bucket = limiter.bucket("api", "1/d burst 3").unwrap();
        bucket.acquire().await.unwrap().spend();
        assert_eq!(limiter.status("api").await.unwrap().unwrap().quotas[0].remaining, 2);
        return;
    }
    let server = RedisServer::builder().tls().start();
    // No authority of this machine has signed its certificate.
    let limiter = open(&server.url()).await;
    let error = limiter.bucket("api", "5/s").unwrap().acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");

    let ca = server.ca_file().to_string_lossy().into_owned();
    let variables = [("SSL_CERT_FILE", &*ca), ("PACELINE_TEST_TLS_URL", &server.url())];
    environment::is_set(name, &variables);
    let keys = server.command(&["KEYS", "*"]);
    assert_eq!(keys.list().map(<[_]>::len), Some(1), "{keys:?}");
}

#[tokio::test]
async fn an_own_authority_and_a_client_certificate_are_named_in_the_url() {
    let server = RedisServer::builder().tls().config("tls-auth-clients", "yes").start();
    let ca = server.ca_file().display();
    let (cert, key) = server.client_files();
    let (cert, key) = (cert.display(), key.display());
    let limiter = open(&format!("{}?ca={ca}&cert={cert}&key={key}", server.url())).await;
    let bucket = limiter.bucket("api", "1/d burst 3").unwrap();
    bucket.acquire().await.unwrap().spend();
    assert_eq!(limiter.status("api").await.unwrap().unwrap().quotas[0].remaining, 2);

    // Without a certificate the server lets nobody in.
    let limiter = open(&format!("{}?ca={ca}", server.url())).await;
    let error = limiter.bucket("api", "5/s").unwrap().acquire().await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");

    for (url, says) in [
        (format!("{}?ca=/no/such.pem", server.url()), "/no/such.pem"),
        (format!("{}?ca={ca}&cert={key}&key={cert}", server.url()), "127.0.0.1"),
        (format!("{}?ca={ca}&cert={cert}", server.url()), "cert= and key= go together"),
    ] {
        let error = Limiter::open(&url).await.unwrap_err();
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
    }
}

async fn open(url: &str) -> Limiter {
    assert!(url.starts_with("rediss://"), "{url}");
    let builder = Limiter::builder(url).when_away(WhenAway::Refuse);
    builder.timeout(Duration::from_secs(5)).open().await.unwrap()
}
