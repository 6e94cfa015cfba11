//! A plain client over TCP, one command at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Long enough for any answer that is going to come.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[track_caller]
pub(crate) fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("a listener");
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    stream
}

#[track_caller]
pub(crate) fn send(mut stream: &TcpStream, line: &str) {
    stream.write_all(line.as_bytes()).unwrap();
}

#[track_caller]
pub(crate) fn expect(mut stream: &TcpStream, want: &str) {
    let mut got = vec![0; want.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), want);
}

/// Reads on until the other side is gone, whether it left politely or not.
#[track_caller]
pub(crate) fn expect_closed(mut stream: &TcpStream) {
    match stream.read(&mut [0; 64]) {
        Ok(0) => {}
        Ok(n) => panic!("{n} bytes instead of the end"),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

/// Nothing is there to be read now.
#[track_caller]
pub(crate) fn expect_silence(stream: &TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let got = stream.peek(&mut [0; 1]).map_err(|e| e.kind());
    stream.set_nonblocking(false).unwrap();
    assert_eq!(got, Err(std::io::ErrorKind::WouldBlock));
}
