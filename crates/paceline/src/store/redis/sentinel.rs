//! Sentinels: which server of theirs is the primary of a service. One may be down, or not know yet
//! what the others have agreed on, so all are asked and the address most name comes first; the
//! server itself then has to say that it is a primary.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Client, Value};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::access::Access;
use super::address::Address;
use super::connection::{connect, no_connection};
use crate::error::Error;

/// The sentinels of one service.
#[derive(Debug)]
pub(super) struct Sentinels {
    service: Arc<str>,
    sentinels: Vec<(Address, Arc<Client>)>,
    /// To the servers that they name.
    servers: Access,
    timeout: Duration,
    /// The one that is asked every second, and the connection to it.
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    index: usize,
    connection: Option<MultiplexedConnection>,
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sentinel {}", self.index)
    }
}

impl Sentinels {
    pub(super) fn new(
        service: &str,
        addresses: &[Address],
        access: &Access,
        servers: Access,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut sentinels = Vec::new();
        for address in addresses {
            sentinels.push((address.clone(), Arc::new(access.client(address)?)));
        }
        let asked = Asked { index: fastrand::usize(..sentinels.len().max(1)), connection: None };
        let asked = Mutex::new(asked);
        Ok(Self { service: service.into(), sentinels, servers, timeout, asked })
    }

    /// A client of a server that they name.
    pub(super) fn client(&self, address: &Address) -> Result<Client, Error> {
        self.servers.client(address)
    }

    /// The name of the service.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// What each of them says, in the URL's order; each has the whole bound. `None` where one does
    /// not know the service.
    pub(super) async fn survey(&self) -> Vec<(Address, Result<Option<Address>, Error>)> {
        let asking = self.sentinels.iter().map(|(address, client)| async move {
            let asked = asked_anew(client, &self.service, address);
            let answer = match tokio::time::timeout(self.timeout, asked).await {
                Ok(answer) => answer.map_err(|error| no_connection(&error, "the sentinel")),
                Err(_) => Err(Error::unavailable(format!("no answer within {:?}", self.timeout))),
            };
            (address.clone(), answer)
        });
        join_all(asking).await
    }

    /// The addresses they name, the one most do first. Waits until more than half name one, all
    /// have answered, or the bound of one operation is over.
    pub(super) async fn primaries(&self) -> Result<Vec<Address>, Error> {
        let mut asking = JoinSet::new();
        for (address, client) in &self.sentinels {
            let (address, client) = (address.clone(), Arc::clone(client));
            let service = Arc::clone(&self.service);
            asking.spawn(async move {
                let asked = asked_anew(&client, &service, &address);
                asked.await.map_err(|error| no_connection(&error, &format!("sentinel {address}")))
            });
        }
        let mut votes: HashMap<Address, usize> = HashMap::new();
        let (mut unknown, mut failed) = (0, None);
        let counting = async {
            while let Some(answer) = asking.join_next().await {
                match answer {
                    Ok(Ok(Some(address))) => {
                        let count = votes.entry(address).or_default();
                        *count += 1;
                        if *count * 2 > self.sentinels.len() {
                            return;
                        }
                    }
                    Ok(Ok(None)) => unknown += 1,
                    Ok(Err(error)) => failed = Some(error),
                    Err(_) => {}
                }
            }
        };
        // Who has not answered by then does not count.
        let _ = tokio::time::timeout(self.timeout, counting).await;
        let mut primaries: Vec<_> = votes.into_iter().collect();
        primaries.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
        if !primaries.is_empty() {
            return Ok(primaries.into_iter().map(|(address, _)| address).collect());
        }
        if unknown > 0 {
            return Err(Error::input(format!(
                "the sentinels know no service {:?}; its name stands behind the hosts",
                &*self.service
            )));
        }
        Err(failed.unwrap_or_else(|| {
            Error::unavailable(format!("no sentinel of {:?} answers", &*self.service))
        }))
    }

    /// Whether another server than `used` is the primary now. One sentinel is asked over a
    /// connection that is kept, and all of them only where it says so.
    pub(super) async fn named_otherwise(&self, used: &Address) -> bool {
        let mut asked = self.asked.lock().await;
        // Taken out while it is in use: dropped half way, the next time asks another one.
        let (address, client) = &self.sentinels[asked.index % self.sentinels.len()];
        let connection = asked.connection.take();
        asked.index += 1;
        let answer = async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => connect(client).await?,
            };
            let named = named(&mut connection, &self.service, address).await?;
            redis::RedisResult::Ok((connection, named))
        };
        let Ok((connection, named)) = answer.await else { return false };
        asked.connection = Some(connection);
        asked.index -= 1;
        drop(asked);
        if named.is_none_or(|named| named == *used) {
            return false;
        }
        self.primaries().await.is_ok_and(|primaries| primaries.first() != Some(used))
    }
}

/// What one sentinel says, over a connection for this alone.
async fn asked_anew(
    client: &Client,
    service: &str,
    sentinel: &Address,
) -> redis::RedisResult<Option<Address>> {
    named(&mut connect(client).await?, service, sentinel).await
}

/// What one sentinel says; `None` where it does not know the service.
async fn named(
    connection: &mut MultiplexedConnection,
    service: &str,
    sentinel: &Address,
) -> redis::RedisResult<Option<Address>> {
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answer: Value = ask.query_async(connection).await?;
    if answer == Value::Nil {
        return Ok(None);
    }
    let (host, port): (String, String) = redis::from_redis_value(answer)?;
    Ok(Address::told(&format!("{host}:{port}"), sentinel))
}
