use paceline_testkit::{Mode, RedisServer, ReplicaPair, Reply, eventually};

fn get(server: &RedisServer, key: &str) -> Reply {
    server.command(&["GET", key])
}

#[test]
fn a_replica_has_what_its_primary_has() {
    let pair = ReplicaPair::start();
    pair.primary().command(&["SET", "k", "v"]);
    pair.wait_synced();
    assert_eq!(get(pair.replica(), "k"), Reply::Text("v".into()));
    let refused = pair.replica().command(&["SET", "k", "w"]);
    assert!(matches!(refused, Reply::Error(e) if e.starts_with("READONLY ")));
    assert_eq!(pair.link().connections_now(), 1);
}

#[test]
fn a_replica_promoted_behind_a_stall_misses_what_was_answered() {
    let pair = ReplicaPair::builder().password("p@ss").config("hz", "50").start();
    pair.primary().command(&["SET", "early", "1"]);
    pair.wait_synced();
    pair.link().set(Mode::Stall);
    pair.primary().command(&["SET", "late", "1"]);
    pair.primary().kill();
    pair.promote();
    assert_eq!(get(pair.replica(), "early"), Reply::Text("1".into()));
    assert_eq!(get(pair.replica(), "late"), Reply::Nil);
    assert_eq!(pair.replica().command(&["SET", "own", "1"]), Reply::Text("OK".into()));
    let hz = pair.replica().command(&["CONFIG", "GET", "hz"]);
    assert_eq!(hz.list().unwrap()[1], Reply::Text("50".into()));
}

#[test]
fn a_cut_replica_catches_up() {
    let pair = ReplicaPair::start();
    pair.link().set(Mode::Cut);
    pair.primary().command(&["SET", "k", "v"]);
    eventually("the primary has lost its replica", || {
        let role = pair.primary().command(&["ROLE"]);
        role.list().unwrap()[2] == Reply::List(vec![])
    });
    assert_eq!(get(pair.replica(), "k"), Reply::Nil);
    pair.link().set(Mode::Pass);
    pair.wait_synced();
    assert_eq!(get(pair.replica(), "k"), Reply::Text("v".into()));
}
