//! The worker processes, as the demo sees them. None outlives it: each ends when its stdin closes,
//! which the system sees to even where the demo is killed.

use std::io;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use paceline::{Policy, STORE_VARIABLE, WHEN_AWAY_VARIABLE};
use tokio::process::{Child, Command};

use super::Plan;
use crate::exit::{Exit, Failure};

/// How long a worker may take to end by itself.
const END_MAX: Duration = Duration::from_secs(5);

/// All of them.
#[derive(Debug)]
pub(super) struct Workers {
    children: Vec<Child>,
}

impl Workers {
    pub(super) fn start(
        plan: &Plan,
        provider: SocketAddr,
        store: &str,
        bucket: &str,
        policy: &Policy,
    ) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let spawn = |number: u16| {
            Command::new(&program)
                .args(["--timeout", &format!("{}us", plan.timeout.as_micros())])
                .args(["demo-worker", "--bucket", bucket, "--quota", policy.as_str()])
                .args(["--provider", &provider.to_string()])
                .args(["--number", &number.to_string(), "--callers", &plan.callers.to_string()])
                // Not among the arguments, where everybody could read a password.
                .env(STORE_VARIABLE, store)
                .env_remove(WHEN_AWAY_VARIABLE)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .kill_on_drop(true)
                .spawn()
        };
        Ok(Self { children: (0..plan.processes).map(spawn).collect::<io::Result<_>>()? })
    }

    /// Fails where one has ended, which none does by itself.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        for child in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(ended(status));
            }
        }
        Ok(())
    }

    /// Lets all end, and waits for them.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            match tokio::time::timeout(END_MAX, child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => return Err(ended(status)),
                Ok(Err(error)) => {
                    return Err(Failure::new(Exit::IO, format!("a worker is lost: {error}")));
                }
                Err(_) => {
                    let words = format!("a worker did not end within {END_MAX:?}");
                    return Err(Failure::new(Exit::FAILED, words));
                }
            }
        }
        Ok(())
    }
}

fn ended(status: ExitStatus) -> Failure {
    Failure::new(Exit::FAILED, format!("a worker ended early ({status})"))
}
