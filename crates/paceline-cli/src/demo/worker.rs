//! One worker process: a few callers that acquire, spend and call, until stdin closes.

use std::io::Read;
use std::net::SocketAddr;

use paceline::{Bucket, Limiter, Policy};
use tokio::task::JoinSet;

use super::client::Client;
use crate::exit::{Exit, Failure};

/// What a worker is told by the demo.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Worker {
    #[arg(long)]
    provider: SocketAddr,
    #[arg(long)]
    bucket: String,
    #[arg(long)]
    quota: Policy,
    #[arg(long)]
    number: u16,
    #[arg(long)]
    callers: u16,
}

impl Worker {
    pub(crate) async fn run(self, limiter: &Limiter) -> Result<Exit, Failure> {
        let bucket = limiter.bucket(&self.bucket, self.quota.clone())?;
        let mut callers = JoinSet::new();
        for _ in 0..self.callers {
            callers.spawn(call(bucket.clone(), limiter.clone(), self.provider, self.number));
        }
        let parent_gone = tokio::task::spawn_blocking(|| {
            // Nothing is ever written; the end comes with the parent's.
            let _ = std::io::stdin().read(&mut [0]);
        });
        tokio::select! {
            _ = parent_gone => Ok(Exit::DONE),
            // Callers end only where something failed.
            Some(ended) = callers.join_next() => match ended {
                Ok(failure) => Err(failure),
                Err(error) => Err(Failure::new(Exit::FAILED, format!("a caller ended: {error}"))),
            },
        }
    }
}

async fn call(bucket: Bucket, limiter: Limiter, provider: SocketAddr, number: u16) -> Failure {
    let failed = |error: std::io::Error| {
        Failure::new(Exit::IO, format!("worker {number} cannot call the provider: {error}"))
    };
    let mut client = match Client::connect(provider).await {
        Ok(client) => client,
        Err(error) => return failed(error),
    };
    loop {
        let permit = match bucket.acquire().await {
            Ok(permit) => permit,
            Err(error) => return error.into(),
        };
        let waited = permit.waited();
        permit.spend();
        if let Err(error) = client.call(number, waited, limiter.stats().store_operations).await {
            return failed(error);
        }
    }
}
