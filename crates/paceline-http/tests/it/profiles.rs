//! The profiles that come with the crate, and what is said to those who write their own.

use http::{HeaderMap, Method, Uri};
use paceline_http::Profiles;

#[test]
fn all_providers_that_are_promised_have_a_profile_with_sources() {
    let profiles = Profiles::builtin();
    for name in [
        "github",
        "github-graphql",
        "gitlab",
        "stripe",
        "shopify",
        "shopify-graphql",
        "hubspot",
        "slack",
        "discord",
        "openai",
        "anthropic",
        "google",
        "azure-arm",
        "microsoft-graph",
        "salesforce",
        "zendesk",
        "atlassian",
        "notion",
        "airtable",
        "twilio",
        "xero",
        "okta",
        "linear",
        "docker-hub",
        "reddit",
        "binance",
        "ncbi",
        "nominatim",
        "generic",
    ] {
        let profile = profiles.get(name).unwrap_or_else(|| panic!("{name}"));
        assert!(!profile.buckets().is_empty(), "{name}");
        assert_eq!(profile.hosts().count() == 0, name == "generic", "{name}");
    }
}

#[track_caller]
fn bucket(uri: &str, method: Method, lines: &[(&'static str, &str)]) -> String {
    let uri: Uri = uri.parse().unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.insert(*name, value.parse().unwrap());
    }
    let profile = Profiles::builtin().for_uri(&uri);
    profile.bucket_of(&method, &uri, &headers).bucket
}

#[test]
fn a_call_finds_its_bucket_by_host_path_method_and_account() {
    let token = [("authorization", "Bearer sk_secret")];
    for (uri, method, want) in [
        ("https://api.github.com/user", Method::GET, "github:core:HASH"),
        ("https://api.github.com/search/code?q=x", Method::GET, "github:code-search:HASH"),
        ("https://api.github.com/graphql", Method::POST, "github:graphql:HASH"),
        (
            "https://acme.myshopify.com/admin/api/2026-01/graphql.json",
            Method::POST,
            "shopify:graphql:acme.myshopify.com:anonymous",
        ),
        (
            "https://acme.myshopify.com/admin/api/2026-01/orders.json",
            Method::GET,
            "shopify:rest:acme.myshopify.com:anonymous",
        ),
        ("https://slack.com/api/conversations.list", Method::GET, "slack:conversations.list:HASH"),
        ("https://slack.com/api/chat.postMessage", Method::POST, "slack:post:HASH"),
        ("https://discord.com/api/v10/channels/7/messages", Method::POST, "discord:global:HASH"),
        (
            "https://management.azure.com/subscriptions/s1/resourceGroups",
            Method::GET,
            "azure-arm:reads:s1:HASH",
        ),
        (
            "https://management.azure.com/subscriptions/s1/x",
            Method::DELETE,
            "azure-arm:deletes:s1:HASH",
        ),
        ("https://api.airtable.com/v0/appX/Table", Method::GET, "airtable:appX"),
        (
            "https://acme.atlassian.net/rest/api/3/issue",
            Method::PUT,
            "atlassian:PUT:acme.atlassian.net:HASH",
        ),
        ("https://acme.zendesk.com/api/v2/tickets", Method::GET, "zendesk:acme.zendesk.com"),
        (
            "https://registry-1.docker.io/v2/library/redis/manifests/7",
            Method::GET,
            "docker-hub:pulls:HASH",
        ),
        (
            "https://registry-1.docker.io/v2/library/redis/manifests/7",
            Method::HEAD,
            "docker-hub:HASH",
        ),
        ("https://nominatim.openstreetmap.org/search?q=x", Method::GET, "nominatim"),
        ("https://api.x.com/2/tweets/search/recent?query=a", Method::GET, "x:search:recent:HASH"),
        ("https://api.x.com/2/tweets", Method::POST, "x:post:HASH"),
        ("https://api.x.com/2/users/7/followers", Method::GET, "x:user:followers:HASH"),
        ("https://api.x.com/2/users/7/likes/9", Method::DELETE, "x:user:likes:DELETE:HASH"),
        ("https://api.x.com/2/dm_events/5", Method::GET, "x:messages:HASH"),
        ("https://api.x.com/2/tweets?ids=1", Method::GET, "x:HASH"),
        ("https://acme.okta.com/api/v1/apps", Method::GET, "okta:apps:list:acme.okta.com"),
        ("https://acme.okta.com/api/v1/apps/0oa1", Method::GET, "okta:apps:acme.okta.com"),
        ("https://acme.okta.com/api/v1/logs", Method::GET, "okta:logs:acme.okta.com"),
        ("https://fapi.binance.com/fapi/v1/depth", Method::GET, "binance:futures:fapi.binance.com"),
        ("https://api.binance.com/api/v3/depth", Method::GET, "binance:api.binance.com"),
        ("https://api.example.org/x", Method::GET, "api.example.org:HASH"),
    ] {
        let name = bucket(uri, method, &token);
        assert!(!name.contains("secret"), "{name}");
        let hash = name.rsplit(':').next().unwrap().to_owned();
        let is_hash = hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let told = if is_hash { name.replace(&hash, "HASH") } else { name };
        assert_eq!(told, want, "{uri}");
    }
}

#[test]
fn an_account_is_the_same_under_any_scheme_and_no_other() {
    let of =
        |value| bucket("https://api.github.com/user", Method::GET, &[("authorization", value)]);
    assert_eq!(of("Bearer abc"), of("token abc"));
    assert_ne!(of("Bearer abc"), of("Bearer abd"));
    let none = bucket("https://api.github.com/user", Method::GET, &[]);
    assert_eq!(none, "github:core:anonymous");
    let key = bucket(
        "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/x.fcgi?db=a&api_key=k1",
        Method::GET,
        &[],
    );
    assert!(key.starts_with("ncbi:") && !key.contains("k1"), "{key}");
}

#[test]
fn the_quota_depends_on_whether_there_is_an_account() {
    let profiles = Profiles::builtin();
    let uri: Uri = "https://api.github.com/user".parse().unwrap();
    let github = profiles.for_uri(&uri);
    let placed = github.bucket_of(&Method::GET, &uri, &HeaderMap::new());
    assert_eq!(placed.rule.policy_text, "strict 60/h");
    let placed = github.bucket_for(&Method::GET, &uri, &HeaderMap::new(), "me");
    assert_eq!(placed.rule.policy_text, "strict 5000/h");
    // A search without an account has less than one with it, and more than other calls without.
    let uri: Uri = "https://api.github.com/search/issues?q=x".parse().unwrap();
    let placed = github.bucket_of(&Method::GET, &uri, &HeaderMap::new());
    assert_eq!(placed.bucket, "github:search:anonymous");
    assert_eq!(placed.rule.policy_text, "strict 10/m");
    let placed = github.bucket_for(&Method::GET, &uri, &HeaderMap::new(), "me");
    assert_eq!(placed.rule.policy_text, "strict 30/m");
}

/// A profile that is right but for one line.
fn with(wrong: &str) -> String {
    let (place, line) = wrong.split_once(' ').unwrap();
    let mut text = String::new();
    let fields = [
        ("profile", "name = \"own\""),
        ("profile", "title = \"Own\""),
        ("profile", "hosts = [\"api.example.com\"]"),
        ("profile", "counts = \"unknown\""),
    ];
    let bucket = [
        ("bucket", "name = \"own\""),
        ("bucket", "policy = \"strict 5/s\""),
        ("bucket", "date = \"2026-12-01\""),
        ("bucket", "source = \"https://example.com\""),
        ("bucket", "grade = \"documented\""),
    ];
    let key = line.split(" =").next().unwrap();
    text.push_str("[[profile]]\n");
    let write = |text: &mut String, table: &str, lines: &[(&str, &str)]| {
        for (_, it) in
            lines.iter().filter(|(_, it)| table != place || !it.starts_with(&format!("{key} =")))
        {
            text.push_str(it);
            text.push('\n');
        }
        if table == place {
            text.push_str(line);
            text.push('\n');
        }
    };
    write(&mut text, "profile", &fields);
    text.push_str("[[profile.bucket]]\n");
    write(&mut text, "bucket", &bucket);
    if !["profile", "bucket"].contains(&place) {
        text.push_str(&format!("[[profile.{place}]]\n{}\n", line.replace("; ", "\n")));
    }
    text
}

#[test]
fn a_wrong_value_is_named_with_file_profile_field_and_what_is_allowed() {
    for (wrong, words) in [
        ("profile name = \"Own\"", &["profile 1: name: \"Own\"", "letters a-z"][..]),
        ("profile title = 5", &["profile \"own\": title: 5", "not empty"]),
        ("profile hosts = [\"https://x\"]", &["hosts: \"https://x\"", "*.example.com"]),
        ("profile account = [\"cookie\"]", &["account: \"cookie\"", "header:NAME"]),
        ("profile wait_max = \"soon\"", &["wait_max: \"soon\"", "30s"]),
        ("profile colour = \"red\"", &["colour: \"red\"", "no such field", "title"]),
        (
            "bucket policy = \"5 a second\"",
            &["profile \"own\": bucket 1: policy: \"5 a second\"", "LIMIT/INTERVAL"],
        ),
        ("bucket grade = \"sure\"", &["bucket 1: grade: \"sure\"", "hearsay"]),
        ("bucket date = \"yesterday\"", &["date: \"yesterday\"", "2026-12-01"]),
        ("bucket source = \"a friend\"", &["source: \"a friend\"", "https://"]),
        ("bucket name = \"own:{user}\"", &["name: \"own:{user}\"", "{account}"]),
        ("bucket path = \"v1\"", &["path: \"v1\"", "/v1/**"]),
        ("bucket signed = \"yes\"", &["signed: \"yes\"", "true or false"]),
        ("bucket methods = [\"GET\"]", &["bucket: 1 of them", "for every call"]),
        ("header name = \"x-a\"; means = \"lots\"", &["header 1: means: \"lots\"", "remaining"]),
        ("header name = \"X-A\"; means = \"limit\"", &["name: \"X-A\"", "lower case"]),
        ("refusal status = [999]; means = \"rate\"", &["refusal 1: status: 999", "100 to 599"]),
        ("refusal means = \"rate\"", &["refusal 1: status: none"]),
        (
            "refusal status = [429]; means = \"rate\"; body = [\"Slow\"]",
            &["body: \"Slow\"", "lower case"],
        ),
        (
            "refusal status = [429]; means = \"rate\"; wait = \"1 m\"",
            &["wait: \"1 m\"", "span of time"],
        ),
        ("limit window = \"1m\"", &["limit 1: name is missing"]),
        ("body means = \"cost\"", &["body 1: key", "either key or after"]),
    ] {
        let error =
            Profiles::builtin().clone().with(&with(wrong), "own.toml").unwrap_err().to_string();
        assert!(error.starts_with("own.toml: "), "{error}");
        for word in words {
            assert!(error.contains(word), "{wrong}: {word:?} is missing in: {error}");
        }
    }
    let twice = format!("{0}{0}", with("limit name = \"*\""));
    let error = Profiles::builtin().clone().with(&twice, "own.toml").unwrap_err().to_string();
    assert!(error.contains("each profile of a file has its own name"), "{error}");
    let error = Profiles::builtin().clone().with("[[profile]", "own.toml").unwrap_err().to_string();
    assert!(error.contains("own.toml: no TOML") && error.contains("line 1"), "{error}");
}

#[test]
fn a_profile_of_the_same_name_replaces_the_one_that_is_built_in() {
    let text = with("profile name = \"github\"");
    let profiles = Profiles::builtin().clone().with(&text, "own.toml").unwrap();
    assert_eq!(profiles.get("github").unwrap().title(), "Own");
    assert_eq!(profiles.for_uri(&"https://api.example.com".parse().unwrap()).name(), "github");
    assert_eq!(profiles.for_uri(&"https://api.github.com".parse().unwrap()).name(), "generic");
}
