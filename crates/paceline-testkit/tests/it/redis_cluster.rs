use paceline_testkit::{RedisCluster, Reply, eventually};

use crate::wire::{connect, expect, send};

fn ok() -> Reply {
    Reply::Text("OK".into())
}

fn error(reply: Reply) -> String {
    if let Reply::Error(e) = reply { e } else { panic!("{reply:?} instead of an error") }
}

fn get(cluster: &RedisCluster, node: usize, key: &str) -> Reply {
    cluster.nodes()[node].command(&["GET", key])
}

#[test]
fn a_cluster_shares_its_slots_and_moves_them() {
    let cluster = RedisCluster::start();
    let ports: Vec<_> =
        cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    assert_eq!(ports.len(), 6);
    assert_eq!(cluster.url(), format!("redis-cluster://{}", ports.join(",")));
    for key in ["", "k", "{a}b", "x{}y", "x{y", "a}{b}", "clé", "{{}}", "paceline:{api}"] {
        let slot = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot, Reply::Int(cluster.slot_of(key).into()), "of {key:?}");
    }
    for (slot, owner) in [(0, 0), (5460, 0), (5461, 1), (10922, 2), (16383, 2)] {
        assert_eq!(cluster.owner(slot), owner, "of {slot}");
    }
    assert_eq!([0, 1, 2].map(|node| cluster.replica_of(node)), [3, 4, 5]);

    let slot = cluster.slot_of("{tag}");
    let (from, to) = (cluster.owner(slot), (cluster.owner(slot) + 1) % 3);
    let keys: Vec<_> = (0..250).map(|i| format!("{{tag}}{i}")).collect();
    for key in &keys {
        assert_eq!(cluster.nodes()[from].command(&["SET", key, "v"]), ok());
    }
    let moved = |node: usize| format!("MOVED {slot} {}", ports[node]);
    assert_eq!(error(get(&cluster, to, "{tag}0")), moved(from));

    // Amid the move the old owner has what it has, and sends on for the rest.
    cluster.begin_move(slot, to);
    assert_eq!(get(&cluster, from, "{tag}0"), Reply::Text("v".into()));
    assert_eq!(error(get(&cluster, from, "{tag}none")), format!("ASK {slot} {}", ports[to]));
    assert_eq!(cluster.migrate_keys(slot), keys.len());
    assert_eq!(error(get(&cluster, from, "{tag}0")), format!("ASK {slot} {}", ports[to]));
    assert_eq!(error(get(&cluster, to, "{tag}0")), moved(from));
    assert_eq!(cluster.owner(slot), from);
    cluster.finish_move(slot);
    assert_eq!(cluster.owner(slot), to);
    for node in [from, 3 - from - to] {
        assert_eq!(error(get(&cluster, node, "{tag}0")), moved(to));
    }
    let count = ["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()];
    assert_eq!(cluster.nodes()[to].command(&count), Reply::Int(250));

    cluster.move_slots(5440..=5480, 2);
    assert_eq!([5439, 5440, 5460, 5461, 5480].map(|slot| cluster.owner(slot)), [0, 2, 2, 2, 2]);
}

#[test]
fn a_primary_that_dies_is_replaced_and_one_that_is_failed_over_follows() {
    let cluster = RedisCluster::builder().password("p@ss").start();
    assert!(cluster.url().starts_with("redis-cluster://:p%40ss@127.0.0.1:"));
    let stranger = connect(cluster.nodes()[0].addr());
    send(&stranger, "PING\r\n");
    expect(&stranger, "-NOAUTH ");
    let slot = cluster.slot_of("k");
    let owner = cluster.owner(slot);
    assert_eq!(cluster.nodes()[owner].command(&["SET", "k", "v"]), ok());

    // A password on both sides of a move.
    let to = (owner + 1) % 3;
    cluster.move_slot(slot, to);
    assert_eq!(get(&cluster, to, "k"), Reply::Text("v".into()));

    let new = cluster.fail_over(to);
    assert_eq!((new, cluster.owner(slot)), (to + 3, new));
    assert_eq!(get(&cluster, new, "k"), Reply::Text("v".into()));
    assert_eq!(cluster.replica_of(new), to);

    cluster.kill(new);
    cluster.wait_for_promotion(new);
    assert_eq!(cluster.owner(slot), to);
    eventually("all slots are served again", || get(&cluster, to, "k") == Reply::Text("v".into()));
    // Who comes back is the node it was, and follows.
    cluster.nodes()[new].restart();
    assert_eq!(cluster.replica_of(to), new);
}

#[test]
fn a_cluster_may_have_another_shape() {
    let cluster = RedisCluster::builder()
        .primaries(1)
        .replicas(2)
        .node_timeout(std::time::Duration::from_millis(500))
        .config("cluster-require-full-coverage", "no")
        .start();
    assert_eq!(cluster.nodes().len(), 3);
    assert_eq!((cluster.owner(0), cluster.owner(16383), cluster.replica_of(0)), (0, 0, 1));
    let coverage = ["CONFIG", "GET", "cluster-require-full-coverage"];
    let coverage = cluster.nodes()[2].command(&coverage);
    assert_eq!(coverage.list().unwrap()[1], Reply::Text("no".into()));
}
