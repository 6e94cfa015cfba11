use std::net::TcpStream;

use paceline_testkit::{RedisServer, Reply, TimeShiftProxy};

use crate::wire::{connect, expect, expect_closed, send};

const HOUR_US: i64 = 3_600_000_000;

/// A server with a script that says which operation it was told, and a client's call of it.
fn server() -> (RedisServer, String) {
    let server = RedisServer::start();
    let Reply::Text(sha) = server.command(&["SCRIPT", "LOAD", "return ARGV[1]"]) else {
        panic!("the script is loaded")
    };
    (server, format!("*5\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n1\r\n$1\r\nk\r\n$4\r\ntake\r\n"))
}

/// The time the server itself would have told the script.
fn server_now_us(server: &RedisServer) -> i64 {
    let reply = server.command(&["TIME"]);
    let [seconds, micros] = [0, 1].map(|i| reply.list().unwrap()[i].text().unwrap().to_owned());
    seconds.parse::<i64>().unwrap() * 1_000_000 + micros.parse::<i64>().unwrap()
}

#[track_caller]
fn told_us(client: &TcpStream, call: &str) -> i64 {
    send(client, call);
    // Five letters and sixteen digits, until the year 2286.
    expect(client, "$21\r\ntake@");
    let mut digits = [0; 18];
    std::io::Read::read_exact(&mut &*client, &mut digits).unwrap();
    String::from_utf8_lossy(&digits).trim_end().parse().unwrap()
}

#[test]
fn the_script_is_told_the_time_that_was_set_and_the_server_keeps_its_own() {
    let (server, call) = server();
    let proxy = TimeShiftProxy::start(server.addr());
    assert_eq!(proxy.url(), format!("redis://{}", proxy.addr()));
    let client = connect(proxy.addr());
    send(&client, &call);
    expect(&client, "$4\r\ntake\r\n");
    for shift_us in [HOUR_US, -HOUR_US, 1] {
        proxy.set(shift_us);
        let before_us = server_now_us(&server);
        let told_us = told_us(&client, &call);
        let after_us = server_now_us(&server);
        assert!((before_us..=after_us).contains(&(told_us - shift_us)), "{shift_us}: {told_us}");
    }
    // Several in one piece, and one in two.
    send(&client, "*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$4\r\nta");
    expect(&client, "+PONG\r\n");
    send(&client, "ke\r\n");
    expect(&client, "$4\r\ntake\r\n");
    proxy.set(0);
    send(&client, &call);
    expect(&client, "$4\r\ntake\r\n");
}

#[test]
fn a_client_that_sends_nonsense_is_closed_alone() {
    let (server, call) = server();
    let proxy = TimeShiftProxy::start(server.addr());
    let (client, other) = (connect(proxy.addr()), connect(proxy.addr()));
    send(&other, "PING\r\n");
    expect_closed(&other);
    send(&client, &call);
    expect(&client, "$4\r\ntake\r\n");
    // Who has said all still hears the answer.
    send(&client, &call);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    expect(&client, "$4\r\ntake\r\n");
    expect_closed(&client);
}

#[test]
fn a_new_target_is_for_new_connections() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    old.command(&["SET", "k", "old"]);
    new.command(&["SET", "k", "new"]);
    let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let proxy = TimeShiftProxy::start(old.addr());
    let client = connect(proxy.addr());
    send(&client, get);
    expect(&client, "$3\r\nold\r\n");
    proxy.retarget(new.addr());
    send(&client, get);
    expect(&client, "$3\r\nold\r\n");
    proxy.cut_connections();
    expect_closed(&client);
    let client = connect(proxy.addr());
    send(&client, get);
    expect(&client, "$3\r\nnew\r\n");
    let addr = proxy.addr();
    drop(proxy);
    expect_closed(&client);
    assert!(TcpStream::connect(addr).is_err());
}
