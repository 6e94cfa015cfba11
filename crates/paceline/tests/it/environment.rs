//! What the environment says. A test that needs its own runs itself again in a process of its own.

use std::process::Command;
use std::time::Duration;

use paceline::{LimiterBuilder, STORE_VARIABLE, WHEN_AWAY_VARIABLE};
use paceline_testkit::RedisServer;

/// Tells a test that it is the one with the environment.
const AGAIN: &str = "PACELINE_TEST_AGAIN";

/// Whether this is the process with the environment. If not, runs the test of that name again with
/// these variables, and fails as it fails.
#[track_caller]
pub(crate) fn is_set(name: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(AGAIN).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env_remove(STORE_VARIABLE)
        .env_remove(WHEN_AWAY_VARIABLE)
        .env(AGAIN, "1")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    false
}

#[tokio::test]
async fn the_environment_names_the_store() {
    let name = "environment::the_environment_names_the_store";
    let server = RedisServer::start();
    if !is_set(name, &[(STORE_VARIABLE, &server.url()), (WHEN_AWAY_VARIABLE, "allow")]) {
        let keys = server.command(&["KEYS", "*"]);
        assert_eq!(keys.list().map(<[_]>::len), Some(1), "{keys:?}");
        return;
    }
    let builder = LimiterBuilder::from_env().unwrap().timeout(Duration::from_secs(20));
    let limiter = builder.open().await.unwrap();
    limiter.bucket("api", "5/s").unwrap().acquire().await.unwrap().spend();
}

#[test]
fn a_variable_that_is_not_allowed_is_named_with_what_is() {
    let name = "environment::a_variable_that_is_not_allowed_is_named_with_what_is";
    if is_set(name, &[(WHEN_AWAY_VARIABLE, "panic")]) {
        let error = LimiterBuilder::from_env().unwrap_err();
        assert!(error.is_input(), "{error}");
        for word in ["\"panic\"", "refuse", "allow", "local/N"] {
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
