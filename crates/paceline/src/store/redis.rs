//! Buckets in Redis.
use std::sync::Arc;
use std::time::Duration;

use paceline_core::{Ask, Booking, Look, Micros, Policy, Standing, Suspension};

use super::Taken;
use super::url::RedisUrl;
use crate::clock::Clock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Redis {}

impl Redis {
    pub(crate) async fn open(
        _server: &RedisUrl,
        _clock: Clock,
        _timeout: Duration,
    ) -> Result<Self, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn take(
        &self,
        _name: &str,
        _policy: &Arc<Policy>,
        _ask: Ask,
    ) -> Result<Taken, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn check(&self, _name: &str, _booking: Booking) -> Result<Standing, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn give_back(&self, _name: &str, _booking: Booking) -> Result<bool, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn suspend(
        &self,
        _name: &str,
        _for_us: Micros,
        _why: Suspension,
    ) -> Result<Micros, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn resume(&self, _name: &str) -> Result<bool, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn set(
        &self,
        _name: &str,
        _policy: &Arc<Policy>,
        _pinned: bool,
    ) -> Result<bool, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn look(&self, _name: &str) -> Result<Look, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn delete(&self, _name: &str) -> Result<bool, Error> {
        Err(Error::unavailable("redis"))
    }
    pub(crate) async fn list(&self) -> Result<Vec<String>, Error> {
        Err(Error::unavailable("redis"))
    }
}
