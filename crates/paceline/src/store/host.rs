//! Buckets of one machine.
use std::path::Path;
use std::time::Duration;

use paceline_core::{Bucket, Micros};

use super::local::{Change, Local};
use crate::clock::Clock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Host {}

impl Host {
    pub(crate) fn open(
        _folder: Option<&Path>,
        _clock: Clock,
        _timeout: Duration,
    ) -> Result<Self, Error> {
        Err(Error::unavailable("host"))
    }

    pub(crate) fn list(&self) -> Result<Vec<String>, Error> {
        Err(Error::unavailable("host"))
    }
}

impl Local for Host {
    async fn update<R: Send>(
        &self,
        _name: &str,
        _operation: impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change) + Send,
    ) -> Result<R, Error> {
        Err(Error::unavailable("host"))
    }
}
