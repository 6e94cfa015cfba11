use std::time::Duration;

use paceline_testkit::{Mode, RedisServer, Reply, SentinelSet, eventually};

use crate::wire::{connect, expect, send};

fn ok() -> Reply {
    Reply::Text("OK".into())
}

fn ports(servers: &[&RedisServer]) -> Vec<u16> {
    servers.iter().map(|server| server.port()).collect()
}

/// What a client hears that asks a sentinel where the primary is.
#[track_caller]
fn expect_primary(sentinel: u16, login: &str, port: u16) {
    let client = connect(([127, 0, 0, 1], sentinel).into());
    if !login.is_empty() {
        send(&client, &format!("AUTH {login}\r\n"));
        expect(&client, "+OK\r\n");
    }
    send(&client, "SENTINEL get-master-addr-by-name main\r\n");
    expect(&client, &format!("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n{port}\r\n"));
}

#[test]
fn a_set_names_its_primary_and_replaces_it_when_it_dies() {
    let set = SentinelSet::start();
    let [a, b, c] = set.sentinel_ports()[..] else { panic!("three sentinels") };
    let hosts = format!("127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}");
    assert_eq!(set.url(), format!("redis+sentinel://{hosts}/main"));
    let [first, second] = set.servers() else { panic!("two servers") };
    assert_eq!(set.primary().port(), first.port());
    assert_eq!(ports(&set.replicas()), [second.port()]);
    for sentinel in [a, b, c] {
        expect_primary(sentinel, "", first.port());
    }
    assert!(set.replication().is_none());

    // Two of three are enough.
    set.kill_sentinel(2);
    let old_port = set.kill_primary();
    assert_eq!(old_port, first.port());
    set.wait_for_promotion(old_port);
    assert_eq!(second.command(&["SET", "k", "v"]), ok());
    eventually("the others hear of it", || set.primary().port() == second.port());
    assert_eq!(ports(&set.replicas()), [first.port()]);
    expect_primary(a, "", second.port());
}

#[test]
fn a_set_fails_over_when_told_to() {
    let set = SentinelSet::builder().replicas(2).config("hz", "50").start();
    assert_eq!(set.servers().len(), 3);
    let old_port = set.fail_over();
    set.wait_for_promotion(old_port);
    eventually("all hear of it", || set.primary().port() != old_port);
    let replicas = ports(&set.replicas());
    assert!(replicas.len() == 2 && replicas.contains(&old_port));
    let hz = set.primary().command(&["CONFIG", "GET", "hz"]);
    assert_eq!(hz.list().unwrap()[1], Reply::Text("50".into()));
}

#[test]
fn passwords_of_servers_and_of_sentinels_are_two_things() {
    let set = SentinelSet::builder().password("a@b").sentinel_password("c&d").start();
    let url = set.url();
    assert!(url.starts_with("redis+sentinel://:a%40b@127.0.0.1:"), "{url}");
    assert!(url.ends_with("/main?sentinel_password=c%26d"), "{url}");
    let sentinel = set.sentinel_ports()[0];
    expect_primary(sentinel, "c&d", set.primary().port());
    let stranger = connect(([127, 0, 0, 1], sentinel).into());
    send(&stranger, "PING\r\n");
    expect(&stranger, "-NOAUTH ");
    let stranger = connect(set.primary().addr());
    send(&stranger, "PING\r\n");
    expect(&stranger, "-NOAUTH ");
    let old_port = set.kill_primary();
    set.wait_for_promotion(old_port);
}

#[test]
fn a_replica_behind_a_stalled_proxy_is_promoted_without_what_it_missed() {
    let down_after = Duration::from_millis(300);
    let set = SentinelSet::builder().replication_proxy().down_after(down_after).start();
    let (old, new) = (&set.servers()[0], &set.servers()[1]);
    set.replication().unwrap().set(Mode::Stall);
    assert_eq!(old.command(&["SET", "late", "1"]), ok());
    // The sentinels see that it follows a stranger, and must not set it right meanwhile.
    let follow = new.command(&["SLAVEOF", "127.0.0.1", &old.port().to_string()]);
    assert!(matches!(follow, Reply::Error(e) if e.starts_with("NOPERM ")));
    let old_port = set.kill_primary();
    set.wait_for_promotion(old_port);
    assert_eq!(new.command(&["GET", "late"]), Reply::Nil);
    assert_eq!(new.command(&["SET", "own", "1"]), ok());
    // From here on it is a server like the other.
    old.restart();
    eventually("the old primary has what the new one has", || {
        // Sentinels cut a server's clients off when they make it a replica.
        old.try_command(&["GET", "own"]).is_ok_and(|own| own == Reply::Text("1".into()))
    });
    let old_port = set.fail_over();
    assert_eq!(old_port, new.port());
    set.wait_for_promotion(old_port);
    eventually("the first replica follows", || {
        let role = new.try_command(&["ROLE"]);
        role.is_ok_and(|role| role.list().unwrap()[0] == Reply::Text("slave".into()))
    });
}
