//! Shapes of real answers with the reading that is wanted, each a test by its id. `samples.json`
//! says of each where it comes from and how sure that is; a sample that was corrected says why in
//! its note.

use http::HeaderMap;
use paceline_http::{Profile, Profiles, Suspension, UnixMicros, read};
use serde_json::Value;

const SAMPLES: &str = include_str!("samples.json");

/// A provider of a sample, and the profile that knows it; the rest have the generic one.
const PROFILES: [(&str, &str); 37] = [
    ("GitHub", "github"),
    ("GitHub GraphQL", "github-graphql"),
    ("GitLab", "gitlab"),
    ("Stripe", "stripe"),
    ("Shopify REST", "shopify"),
    ("Shopify GraphQL", "shopify-graphql"),
    ("HubSpot", "hubspot"),
    ("Slack", "slack"),
    ("Discord", "discord"),
    ("Reddit", "reddit"),
    ("OpenAI", "openai"),
    ("Anthropic", "anthropic"),
    ("Azure ARM", "azure-arm"),
    ("Azure Compute", "azure-arm"),
    ("Microsoft Graph", "microsoft-graph"),
    ("Google APIs", "google"),
    ("Google Gemini", "google"),
    ("Salesforce", "salesforce"),
    ("Zendesk", "zendesk"),
    ("Jira Cloud", "atlassian"),
    ("Bitbucket Cloud", "bitbucket"),
    ("Airtable", "airtable"),
    ("Twilio", "twilio"),
    ("Xero", "xero"),
    ("Okta", "okta"),
    ("Linear", "linear"),
    ("Docker Hub", "docker-hub"),
    ("Binance", "binance"),
    ("Kraken", "kraken"),
    ("X (Twitter)", "x"),
    ("Dropbox", "dropbox"),
    ("Intercom", "intercom"),
    ("Buildkite", "buildkite"),
    ("Prisjakt", "prisjakt"),
    ("Xendit", "xendit"),
    ("AWS", "aws"),
    ("Meta Graph API", "meta"),
];

pub(crate) fn profile(provider: &str) -> &'static Profile {
    let known = PROFILES.iter().find(|(name, _)| *name == provider);
    let name = known.map_or("generic", |(_, name)| name);
    Profiles::builtin().get(name).unwrap_or_else(|| panic!("there is no profile {name}"))
}

pub(crate) fn headers(sample: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in sample["headers"].as_object().unwrap() {
        let name: http::HeaderName = name.parse().unwrap();
        let lines = match value {
            Value::Array(lines) => lines.clone(),
            line => vec![line.clone()],
        };
        for line in lines {
            headers.append(&name, line.as_str().unwrap().parse().unwrap());
        }
    }
    headers
}

pub(crate) fn samples() -> Vec<Value> {
    serde_json::from_str(SAMPLES).unwrap()
}

/// Seconds of a sample in whole microseconds.
fn micros(seconds: &Value) -> Option<i64> {
    seconds.as_f64().map(|seconds| (seconds * 1e6).round() as i64)
}

#[track_caller]
fn check(id: &str) {
    let samples = samples();
    let id = id.replace('_', "-");
    let sample = samples.iter().find(|sample| sample["id"] == *id).expect("a sample of this id");
    let headers = headers(sample);
    let body = sample["body"].as_str().map(str::as_bytes);
    let now: UnixMicros = sample["now_unix"].as_i64().unwrap() * 1_000_000;
    let status = u16::try_from(sample["status"].as_u64().unwrap()).unwrap();
    let profile = profile(sample["provider"].as_str().unwrap());
    let reading = read(status, &headers, body, now, profile);

    let expect = &sample["expect"];
    let about = format!("{id}: {}\n{reading:#?}", expect["note"]);
    let asked = reading.suspension.as_ref().map(|it| it.asked_us);
    // Moments of samples are doubles, good to a microsecond.
    let near = |one: Option<i64>, other: Option<i64>| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 1,
        (one, other) => one == other,
    };
    assert!(near(asked, micros(&expect["suspend_for_s"])), "suspend_for_s of {about}");
    let binding = reading.binding();
    assert_eq!(binding.and_then(|it| it.limit), expect["limit"].as_u64(), "limit of {about}");
    let remaining = binding.and_then(|it| it.remaining);
    assert_eq!(remaining, expect["remaining"].as_u64(), "remaining of {about}");
    let window = binding.and_then(|it| it.window_us);
    assert_eq!(window, micros(&expect["window_s"]), "window_s of {about}");
    let stated = reading.suspension.as_ref().and_then(|it| it.at);
    let reset = binding.and_then(|it| it.reset_at).or(stated);
    assert!(near(reset, micros(&expect["reset_at_unix"])), "reset_at_unix of {about}");
    if let Some(Suspension { wait_us, asked_us, .. }) = reading.suspension {
        assert_eq!(wait_us, asked_us.min(profile.wait_max_us()), "the cap of {about}");
    }
}

macro_rules! samples {
    ($($id:ident,)*) => {
        $(
            #[test]
            fn $id() {
                check(stringify!($id));
            }
        )*

        #[test]
        fn every_sample_is_a_test() {
            let mut named = vec![$(stringify!($id).replace('_', "-")),*];
            let mut there: Vec<String> =
                samples().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect();
            named.sort();
            there.sort();
            assert_eq!(named, there);
        }
    };
}

samples! {
    github_01,
    github_02,
    github_04,
    github_05,
    github_07,
    github_08,
    github_graphql_01,
    github_10,
    github_12,
    gitlab_01,
    gitlab_03,
    stripe_01,
    stripe_03,
    stripe_04,
    shopify_rest_02,
    shopify_rest_03,
    shopify_graphql_02,
    hubspot_01,
    hubspot_03,
    slack_01,
    discord_01,
    discord_02,
    discord_04,
    discord_05,
    reddit_01,
    reddit_02,
    reddit_04,
    openai_01,
    openai_03,
    openai_04,
    openai_06,
    openai_07,
    azure_openai_01,
    azure_openai_02,
    azure_openai_04,
    azure_openai_05,
    anthropic_02,
    anthropic_03,
    anthropic_05,
    azure_arm_01,
    azure_compute_01,
    azure_compute_02,
    microsoft_graph_02,
    microsoft_graph_03,
    sharepoint_online_01,
    sharepoint_online_02,
    google_apis_01,
    google_apis_02,
    google_apis_04,
    google_gemini_01,
    salesforce_02,
    salesforce_03,
    zendesk_01,
    zendesk_02,
    jira_cloud_01,
    jira_cloud_02,
    jira_cloud_04,
    jira_data_center_01,
    bitbucket_cloud_01,
    bitbucket_cloud_02,
    airtable_01,
    twilio_01,
    sendgrid_02,
    xero_01,
    xero_03,
    xero_04,
    okta_02,
    auth0_01,
    linear_02,
    docker_hub_01,
    docker_hub_03,
    docker_hub_04,
    binance_01,
    binance_02,
    binance_04,
    kraken_01,
    x_twitter_01,
    x_twitter_02,
    dropbox_02,
    intercom_01,
    mailgun_01,
    buildkite_01,
    prisjakt_01,
    xendit_01,
    whoop_01,
    honeycomb_01,
    cloudflare_api_01,
    visma_eaccounting_01,
    riot_games_02,
    trello_01,
    aws_01,
    meta_graph_api_01,
    sentry_01,
    contentful_01,
    ietf_old_draft_01,
    ietf_old_draft_02,
    ietf_old_draft_04,
    ietf_structured_01,
    ietf_structured_03,
    ietf_structured_04,
    ietf_structured_06,
    ietf_structured_07,
    ietf_structured_09,
    ietf_structured_10,
    generic_retry_after_02,
    generic_retry_after_03,
    generic_retry_after_05,
    generic_retry_after_06,
    generic_retry_after_08,
    generic_retry_after_09,
    generic_retry_after_11,
    generic_retry_after_12,
    generic_retry_after_14,
    generic_retry_after_15,
    generic_retry_after_17,
    generic_retry_after_18,
    generic_retry_after_20,
    generic_retry_after_21,
    generic_retry_after_23,
    generic_retry_after_24,
    generic_retry_after_26,
    generic_x_ratelimit_01,
    generic_x_ratelimit_03,
    generic_x_ratelimit_04,
    generic_x_ratelimit_06,
    generic_x_ratelimit_07,
    generic_x_ratelimit_09,
    generic_x_ratelimit_10,
    generic_x_ratelimit_12,
    generic_x_ratelimit_13,
    generic_x_ratelimit_15,
    generic_x_ratelimit_16,
    generic_x_ratelimit_18,
    generic_x_ratelimit_19,
    x_twitter_03,
    attio_01,
    rocket_chat_01,
    app_net_01,
    toast_01,
    hugging_face_01,
    pypi_01,
    ietf_structured_11,
    ietf_structured_13,
    ietf_structured_14,
}
