use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline_testkit::{FaultProxy, Mode, RedisServer, ScriptedServer, eventually};

use crate::wire::{connect, expect, expect_closed, expect_silence, send};

const PING: &str = "*1\r\n$4\r\nPING\r\n";

/// A target that numbers its answers, and the count of those it gave.
fn target() -> (ScriptedServer, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let server = ScriptedServer::start({
        let count = Arc::clone(&count);
        move |_| Some(format!(":{}\r\n", count.fetch_add(1, Ordering::SeqCst) + 1))
    });
    (server, count)
}

#[test]
fn passing_passes_and_counts() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    let first = connect(proxy.addr());
    send(&first, PING);
    expect(&first, ":1\r\n");
    let second = connect(proxy.addr());
    send(&second, PING);
    expect(&second, ":2\r\n");
    assert_eq!((proxy.connections_total(), proxy.connections_now()), (2, 2));
    assert_eq!(proxy.bytes_up(), 2 * PING.len() as u64);
    drop(first);
    eventually("the proxy sees the client leave", || proxy.connections_now() == 1);
    assert_eq!(proxy.connections_total(), 2);
}

#[test]
fn a_swallowed_answer_was_given_and_never_comes() {
    let (server, answered) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    proxy.set(Mode::SwallowReplies);
    send(&client, PING);
    // The second answer is asked for only to know that the first is long past the proxy.
    eventually("the target answers", || answered.load(Ordering::SeqCst) == 1);
    let other = connect(proxy.addr());
    send(&other, PING);
    eventually("the target answers again", || answered.load(Ordering::SeqCst) == 2);
    expect_silence(&client);
    drop(other);
    // With the client's own half closed, the target's end arrives behind its answers.
    client.shutdown(std::net::Shutdown::Write).unwrap();
    expect_closed(&client);
}

#[test]
fn a_stall_holds_bytes_back_and_keeps_the_connection() {
    let (server, answered) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":1\r\n");
    proxy.set(Mode::Stall);
    send(&client, PING);
    let new = connect(proxy.addr());
    eventually("the new client is let in", || proxy.connections_now() == 2);
    expect_silence(&client);
    assert_eq!(answered.load(Ordering::SeqCst), 1);
    assert_eq!(proxy.bytes_up(), PING.len() as u64);
    proxy.set(Mode::Pass);
    expect(&client, ":2\r\n");
    send(&new, PING);
    expect(&new, ":3\r\n");
}

#[test]
fn what_a_client_sent_into_a_stall_arrives_after_it_has_given_up() {
    let (server, answered) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    proxy.set(Mode::Stall);
    send(&client, PING);
    drop(client);
    eventually("the proxy sees the client come and leave", || {
        proxy.connections_total() == 1 && proxy.connections_now() == 0
    });
    assert_eq!(answered.load(Ordering::SeqCst), 0);
    proxy.set(Mode::Pass);
    eventually("the request arrives", || answered.load(Ordering::SeqCst) == 1);
}

#[test]
fn cutting_closes_all_and_refuses_until_told_otherwise() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":1\r\n");
    proxy.set(Mode::Cut);
    expect_closed(&client);
    expect_closed(&connect(proxy.addr()));
    assert_eq!((proxy.connections_total(), proxy.connections_now()), (1, 0));
    assert_eq!(proxy.refused_total(), 1);
    proxy.set(Mode::Pass);
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":2\r\n");
}

#[test]
fn refusing_leaves_those_inside_alone() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":1\r\n");
    proxy.set(Mode::Refuse);
    expect_closed(&connect(proxy.addr()));
    send(&client, PING);
    expect(&client, ":2\r\n");
}

#[test]
fn cutting_connections_alone_lets_the_next_one_in() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":1\r\n");
    proxy.cut_connections();
    expect_closed(&client);
    assert_eq!(proxy.connections_now(), 0);
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":2\r\n");
}

#[test]
fn a_target_that_is_away_closes_the_client() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    drop(server);
    expect_closed(&connect(proxy.addr()));
    assert_eq!(proxy.connections_total(), 0);
}

#[test]
fn a_proxy_dropped_in_a_stall_stops() {
    let (server, _) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, PING);
    expect(&client, ":1\r\n");
    proxy.set(Mode::Stall);
    send(&client, PING);
    let addr = proxy.addr();
    drop(proxy);
    expect_closed(&client);
    assert!(std::net::TcpStream::connect(addr).is_err());
}

#[test]
fn a_delay_holds_each_piece_back_and_keeps_the_order() {
    let (server, answered) = target();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    proxy.set(Mode::Delay(Duration::from_millis(5)));
    for _ in 0..20 {
        send(&client, PING);
    }
    for i in 1..=20 {
        expect(&client, &format!(":{i}\r\n"));
    }

    proxy.set(Mode::Delay(Duration::from_secs(3600)));
    send(&client, PING);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    // Its end has been taken in, so what came before has been too, and is on its way.
    eventually("the proxy sees the client leave", || proxy.connections_now() == 0);
    expect_silence(&client);
    assert_eq!(answered.load(Ordering::SeqCst), 20);
    assert_eq!(proxy.bytes_up(), 20 * PING.len() as u64);
    // The end of the stream comes behind the rest, and so the answer before the end.
    proxy.set(Mode::Delay(Duration::from_millis(5)));
    expect(&client, ":21\r\n");
    expect_closed(&client);
}

#[test]
fn a_half_open_connection_tells_its_client_nothing_and_the_next_one_works() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    send(&client, "CLIENT SETNAME lost\r\n");
    expect(&client, "+OK\r\n");
    proxy.set(Mode::HalfOpen);
    eventually("the server has lost its client", || {
        let list = server.command(&["CLIENT", "LIST"]);
        !list.text().unwrap().contains("name=lost")
    });
    for _ in 0..3 {
        send(&client, "SET k v\r\n");
    }
    let next = connect(proxy.addr());
    send(&next, "EXISTS k\r\n");
    expect(&next, ":0\r\n");
    assert_eq!(proxy.connections_now(), 2);
    // No later mode finds the server again.
    proxy.set(Mode::Pass);
    send(&client, "SET k v\r\n");
    send(&next, "EXISTS k\r\n");
    expect(&next, ":0\r\n");
    expect_silence(&client);
    drop(client);
    eventually("the proxy sees the client leave", || proxy.connections_now() == 1);

    proxy.set(Mode::HalfOpen);
    expect_silence(&next);
    proxy.cut_connections();
    expect_closed(&next);
}
