//! Words of changes: the script publishes on a bucket's own key when somebody suspends, resumes or
//! sets a policy, and a connection of its own hears them. A word that is lost costs time and never
//! correctness: who waits looks again, only later.

use futures_util::StreamExt;
use redis::aio::PubSub;

use super::{Redis, globbed};
use crate::error::Error;

/// A subscription to all buckets under the store's prefix.
pub(crate) struct Words {
    subscribed: PubSub,
    prefix: String,
}

impl Redis {
    /// Subscribes, within the bound of one operation.
    pub(crate) async fn words(&self) -> Result<Words, Error> {
        let subscribing = async {
            let mut subscribed = self.connector.client().get_async_pubsub().await?;
            subscribed.psubscribe(format!("{}{{*}}", globbed(&self.prefix))).await?;
            redis::RedisResult::Ok(subscribed)
        };
        match tokio::time::timeout(self.timeout, subscribing).await {
            Ok(Ok(subscribed)) => Ok(Words { subscribed, prefix: self.prefix.clone() }),
            Ok(Err(error)) => Err(self.connector.no_connection(&error)),
            Err(_) => Err(Error::unavailable(format!(
                "{} did not answer within {:?}",
                self.connector.server(),
                self.timeout
            ))),
        }
    }
}

impl Words {
    /// The name of a bucket that was changed; `None` when the connection has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            let word = self.subscribed.on_message().next().await?;
            let key = word.get_channel_name();
            let name = key.strip_prefix(&self.prefix).and_then(|it| it.strip_prefix('{'));
            if let Some(name) = name.and_then(|it| it.strip_suffix('}')) {
                return Some(name.to_owned());
            }
        }
    }
}
