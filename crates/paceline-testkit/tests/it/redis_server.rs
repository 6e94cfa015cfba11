use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paceline_testkit::{FaultProxy, Mode, RedisServer, Reply, eventually, free_port};

use crate::wire::{connect, expect, expect_closed, expect_silence, send};

const PING: &str = "*1\r\n$4\r\nPING\r\n";

fn text(text: &str) -> Reply {
    Reply::Text(text.into())
}

/// False of a process that is gone, or dead and only waiting for its parent to hear of it.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn folder_of(server: &RedisServer) -> PathBuf {
    let reply = server.command(&["CONFIG", "GET", "dir"]);
    PathBuf::from(reply.list().unwrap()[1].text().unwrap())
}

#[test]
fn a_server_answers_and_is_gone_when_dropped() {
    let server = RedisServer::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["SET", "k", "v"]), text("OK"));
    assert_eq!(server.command(&["GET", "k"]), text("v"));
    assert_eq!(server.command(&["GET", "none"]), Reply::Nil);
    assert_eq!(server.command(&["PTTL", "k"]), Reply::Int(-1));
    assert_eq!(server.command(&["LRANGE", "none", "0", "-1"]), Reply::List(vec![]));
    assert!(matches!(server.command(&["NOSUCH"]), Reply::Error(e) if e.starts_with("ERR ")));
    let client = connect(server.addr());
    send(&client, PING);
    expect(&client, "+PONG\r\n");

    let (pid, folder, addr) = (server.pid(), folder_of(&server), server.addr());
    assert!(runs(pid) && folder.exists());
    drop(server);
    assert!(!runs(pid) && !folder.exists());
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn many_servers_start_at_once_each_on_its_own() {
    let servers: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..8).map(|_| scope.spawn(RedisServer::start)).collect();
        starting.into_iter().map(|server| server.join().unwrap()).collect()
    });
    for server in &servers {
        assert_eq!(server.command(&["INCR", "n"]), Reply::Int(1));
        let info = server.command(&["INFO", "server"]);
        let info = info.text().unwrap();
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid())));
        assert!(info.contains(&format!("tcp_port:{}\r\n", server.port())));
    }
}

#[test]
fn a_password_is_asked_for_and_is_in_the_url() {
    let server = RedisServer::builder().password("p@ss:1").start();
    assert_eq!(server.url(), format!("redis://:p%40ss%3A1@127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["PING"]), text("PONG"));
    let client = connect(server.addr());
    send(&client, PING);
    expect(&client, "-NOAUTH ");
}

#[test]
fn configuration_of_a_tests_own_reaches_the_server() {
    let server = RedisServer::builder().config("maxmemory", "4mb").config("hz", "50").start();
    let memory = server.command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(memory, Reply::List(vec![text("maxmemory"), text("4194304")]));
    let hz = server.command(&["CONFIG", "GET", "hz"]);
    assert_eq!(hz, Reply::List(vec![text("hz"), text("50")]));
}

#[test]
#[should_panic(expected = "no-such-directive")]
fn a_server_that_does_not_start_says_why() {
    RedisServer::builder().config("no-such-directive", "1").start();
}

#[test]
fn a_paused_server_keeps_its_connections_and_answers_later() {
    let server = RedisServer::start();
    let client = connect(server.addr());
    send(&client, PING);
    expect(&client, "+PONG\r\n");
    server.pause();
    eventually("the server stands still", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
        stat.contains(") T ")
    });
    send(&client, PING);
    expect_silence(&client);
    server.resume();
    expect(&client, "+PONG\r\n");
}

#[test]
fn a_paused_server_can_be_dropped() {
    let server = RedisServer::start();
    let pid = server.pid();
    server.pause();
    drop(server);
    assert!(!runs(pid));
}

#[test]
fn a_killed_server_refuses_and_comes_back_empty_on_its_port() {
    let server = RedisServer::start();
    server.command(&["SET", "k", "v"]);
    let (addr, url, pid) = (server.addr(), server.url(), server.pid());
    let client = connect(addr);
    server.kill();
    expect_closed(&client);
    assert!(TcpStream::connect(addr).is_err());
    assert!(server.try_command(&["PING"]).is_err());
    server.kill();

    server.restart();
    assert_eq!((server.addr(), server.url()), (addr, url));
    assert_ne!(server.pid(), pid);
    assert_eq!(server.command(&["GET", "k"]), Reply::Nil);
    let client = connect(addr);
    send(&client, PING);
    expect(&client, "+PONG\r\n");
}

#[test]
fn a_running_server_restarts_under_a_client() {
    let server = RedisServer::start();
    let client = connect(server.addr());
    server.command(&["SET", "k", "v"]);
    server.restart();
    expect_closed(&client);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn a_given_port_is_used() {
    let port = free_port();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let server = RedisServer::builder().port(port).start();
    assert_eq!(server.port(), port);
    let client = connect(server.addr());
    send(&client, PING);
    expect(&client, "+PONG\r\n");
}

#[test]
fn command_stats_count_each_command_apart_from_its_namesakes() {
    let server = RedisServer::start();
    assert_eq!(server.command_stats("evalsha"), None);
    server.command(&["EVAL", "return 1", "0"]);
    server.command(&["EVAL", "return 1", "0"]);
    let stats = server.command_stats("EVAL").unwrap();
    assert_eq!(stats.calls, 2);
    assert!(stats.usec_per_call > 0.0);
    assert_eq!(server.command_stats("evalsha"), None);
}

#[test]
fn a_tls_server_speaks_tls_alone_and_its_authority_vouches_for_it() {
    let server = RedisServer::builder().tls().start();
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{}", server.port()));
    assert_eq!(server.command(&["PING"]), text("PONG"));
    let plain = connect(server.addr());
    send(&plain, PING);
    // An alert may come before the end; an answer must not.
    let mut heard = Vec::new();
    let _ = (&plain).read_to_end(&mut heard);
    assert!(!String::from_utf8_lossy(&heard).contains("PONG"));
    let folder = folder_of(&server);
    assert_eq!(server.ca_file(), folder.join("ca.pem"));
    // Debian's redis-server brings redis-cli along; it checks the certificate against the file.
    for host in ["127.0.0.1", "localhost"] {
        let ping = |ca: &Path| {
            let port = server.port().to_string();
            let mut cli = Command::new("redis-cli");
            cli.args(["-h", host, "-p", &port, "--tls", "--cacert"]).arg(ca).arg("PING");
            cli.stdin(Stdio::null()).output().unwrap()
        };
        assert_eq!(String::from_utf8_lossy(&ping(server.ca_file()).stdout), "PONG\n");
        let stranger = RedisServer::builder().tls().start();
        assert!(!ping(stranger.ca_file()).status.success());
    }
}

#[test]
fn a_proxy_before_a_server_loses_the_answer_and_not_the_work() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let client = connect(proxy.addr());
    proxy.set(Mode::SwallowReplies);
    send(&client, "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n");
    eventually("the work is done", || server.command(&["GET", "n"]) == text("1"));
    proxy.cut_connections();
    expect_closed(&client);
}

#[test]
fn a_test_process_that_is_killed_leaves_no_server() {
    // This test runs itself again in a process of its own, which is the one to be killed.
    const CHILD: &str = "PACELINE_TESTKIT_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let server = RedisServer::start();
        let words = format!("\nserver {} {}\n", server.pid(), folder_of(&server).display());
        std::io::stderr().write_all(words.as_bytes()).unwrap();
        // Ends with its input, should nobody kill it.
        let _ = std::io::stdin().lines().next();
        return;
    }
    let name = "redis_server::a_test_process_that_is_killed_leaves_no_server";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let words = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .find_map(|line| line.unwrap().strip_prefix("server ").map(str::to_owned))
        .expect("the child tells of its server");
    let (pid, folder) = words.split_once(' ').unwrap();
    let (pid, folder) = (pid.parse().unwrap(), Path::new(folder));
    assert!(runs(pid) && folder.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the server is gone with its folder", || !runs(pid) && !folder.exists());
}
