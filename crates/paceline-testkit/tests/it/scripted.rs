use paceline_testkit::ScriptedServer;

use crate::wire::{connect, expect, expect_closed, send};

#[test]
fn a_scripted_server_says_what_it_is_told_and_remembers_what_it_heard() {
    let server = ScriptedServer::start(|command| match command[0].as_str() {
        "OLD" => Some("-ERR too old\r\n".into()),
        "BYE" => None,
        _ => Some(format!(":{}\r\n", command.len())),
    });
    let client = connect(server.addr());
    send(&client, "*2\r\n$1\r\nA\r\n$2\r\n\r\n\r\n*1\r\n$3\r\nOLD\r\n");
    expect(&client, ":2\r\n-ERR too old\r\n");
    send(&client, "*1\r\n$3\r\nBYE\r\n");
    expect_closed(&client);
    assert_eq!(server.commands(), [vec!["A", "\r\n"], vec!["OLD"], vec!["BYE"]]);
    assert_eq!(server.connections_total(), 1);
}

#[test]
fn a_scripted_server_that_is_dropped_lets_its_clients_go() {
    let server = ScriptedServer::start(|_| Some("+OK\r\n".into()));
    let client = connect(server.addr());
    send(&client, "*1\r\n$4\r\nPING\r\n");
    expect(&client, "+OK\r\n");
    let addr = server.addr();
    drop(server);
    expect_closed(&client);
    assert!(std::net::TcpStream::connect(addr).is_err());
}
