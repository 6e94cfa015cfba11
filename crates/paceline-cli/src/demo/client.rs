//! One kept-alive connection to the provider.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::provider::{STORE_OPERATIONS, WAITED_US, WORKER};

/// The connection.
#[derive(Debug)]
pub(super) struct Client {
    addr: SocketAddr,
    sender: SendRequest<Empty<Bytes>>,
}

impl Client {
    pub(super) async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self { addr, sender })
    }

    /// One call, which tells of its caller.
    pub(super) async fn call(
        &mut self,
        worker: u16,
        waited: Duration,
        operations: u64,
    ) -> io::Result<StatusCode> {
        let request = Request::get("/")
            .header("host", self.addr.to_string())
            .header(WORKER, worker)
            .header(WAITED_US, u64::try_from(waited.as_micros()).unwrap_or(u64::MAX))
            .header(STORE_OPERATIONS, operations)
            .body(Empty::new())
            .map_err(io::Error::other)?;
        self.sender.ready().await.map_err(io::Error::other)?;
        let response = self.sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status();
        response.into_body().collect().await.map_err(io::Error::other)?;
        Ok(status)
    }
}
