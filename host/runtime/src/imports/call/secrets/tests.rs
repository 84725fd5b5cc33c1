use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use conclave_core::config::KeyRef;
use conclave_core::permissions::fetch::HostPattern;
use conclave_core::permissions::grants::{SecretGrant, SecretPlace};
use conclave_core::permissions::manifest::CapabilityRequest;
use conclave_core::types::ids::{CallId, PluginName, RoomId};
use conclave_models::ApiKey;

use super::*;
use crate::imports::secrets::SecretSource;
use crate::imports::secrets::vault::Vault;
use crate::imports::testing::setup;
use crate::support::clock::BoxFuture;

/// Counts its reads.
#[derive(Default)]
struct Counting(AtomicUsize);

impl SecretSource for Counting {
    fn secret(&self, from: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let found = match from {
            KeyRef::Env(name) if name != "NONE" => Ok(ApiKey::new(name.clone())),
            _ => Err("it is not there".to_owned()),
        };
        Box::pin(std::future::ready(found))
    }

    fn check(&self, _: &KeyRef) -> Result<(), String> {
        Ok(())
    }
}

/// The value of each secret is the name of its variable.
fn plugin_with(source: &Arc<Counting>) -> Arc<PluginContext> {
    let mut setup = setup();
    setup.facts.manifest.asks.insert("secrets".to_owned(), CapabilityRequest::default());
    let from: BTreeMap<SecretName, KeyRef> =
        [("met", "value-of-met"), ("none", "NONE"), ("short", "abc")]
            .map(|(name, variable)| (SecretName::from(name), KeyRef::Env(variable.to_owned())))
            .into();
    setup.grants.secrets = from
        .keys()
        .map(|name| SecretGrant {
            name: name.clone(),
            hosts: vec![HostPattern::parse("api.example.org").unwrap()],
            request_parts: BTreeSet::from([SecretPlace::Header, SecretPlace::Query]),
        })
        .collect();
    let mut plugin = PluginContext::new(PluginName::from("subject"), Arc::new(setup)).unwrap();
    plugin.vault = Arc::new(Vault::new(Arc::clone(source) as Arc<dyn SecretSource>, from).unwrap());
    Arc::new(plugin)
}

fn call(plugin: &Arc<PluginContext>, number: u64) -> CallSecrets {
    let seed = plugin.vault.seed(&RoomId::from("r"), CallId(number));
    CallSecrets::new(Arc::clone(plugin), None, seed)
}

fn get(url: &str, header: &str) -> RequestParts {
    RequestParts {
        method: "GET".to_owned(),
        url: Url::parse(url).unwrap(),
        headers: vec![("x-key".to_owned(), header.to_owned())],
        body: None,
    }
}

const HERE: &str = "https://api.example.org/";

#[tokio::test]
async fn a_value_is_read_at_first_use_and_once() {
    let source = Arc::new(Counting::default());
    let plugin = plugin_with(&source);
    let secrets = call(&plugin, 1);
    let parts = get(HERE, &secrets.placeholder("met").unwrap());
    let plan = secrets.check(&parts).unwrap();
    assert_eq!(source.0.load(Ordering::Relaxed), 0);
    for _ in 0..2 {
        assert_eq!(secrets.put_in(&parts, &plan).await.unwrap().headers[0].1, "value-of-met");
    }
    assert_eq!(source.0.load(Ordering::Relaxed), 1);
    assert_eq!(secrets.scrub_text("a value-of-met"), "a [secret met]");
    assert_eq!(secrets.scrub_bytes(vec![b' '; SMALL + 1]).await.len(), SMALL + 1);
    assert!(
        !format!("{:?} {:?}", plugin.vault, parts).contains("value-of"),
        "neither shows a value"
    );
}

#[tokio::test]
async fn a_placeholder_is_worth_nothing_in_another_call_or_another_vault() {
    let source = Arc::new(Counting::default());
    let (first, second) = (plugin_with(&source), plugin_with(&source));
    let parts = get(HERE, &call(&first, 1).placeholder("met").unwrap());
    assert!(call(&first, 1).check(&parts).is_ok());
    assert!(call(&first, 2).check(&parts).is_err() && call(&second, 1).check(&parts).is_err());
}

#[tokio::test]
async fn without_a_value_nothing_is_sent() {
    let plugin = plugin_with(&Arc::default());
    for (name, reason) in [("none", "it is not there"), ("short", "fewer than 8 bytes")] {
        let secrets = call(&plugin, 1);
        let parts = get(HERE, &secrets.placeholder(name).unwrap());
        let plan = secrets.check(&parts).unwrap();
        let record = secrets.put_in(&parts, &plan).await.unwrap_err();
        assert!(record.reason.contains(reason) && !record.reason.contains("abc"), "{record:?}");
    }
}

#[tokio::test]
async fn what_a_redirect_leads_to_is_decided_anew() {
    let plugin = plugin_with(&Arc::default());
    let secrets = call(&plugin, 1);
    let first = get(HERE, &secrets.placeholder("met").unwrap());
    let plan = secrets.check(&first).unwrap();
    secrets.put_in(&first, &plan).await.unwrap();
    let hop = |to: &str| {
        let mut parts = first.clone();
        secrets.check_hop(&mut parts, Url::parse(to).unwrap()).map(|plan| (parts, plan))
    };
    let (parts, plan) = hop("https://api.example.org/next?key=value%2Dof-met").unwrap();
    assert_eq!(plan.names(), ["met"]);
    assert!(
        parts.url.query().is_some_and(|query| query.starts_with("key=conclave-secret-")),
        "the value is a placeholder again"
    );
    assert!(
        hop("https://evil.example/")
            .is_ok_and(|(parts, plan)| parts.headers.is_empty() && plan.is_empty())
    );
    assert!(hop("https://evil.example/?key=value-of-met").is_err());
    assert!(hop("https://api.example.org/value-of-met").is_err());
}

#[tokio::test]
async fn a_value_that_the_guest_wrote_itself_is_not_sent() {
    let plugin = plugin_with(&Arc::default());
    let secrets = call(&plugin, 1);
    let first = get(HERE, &secrets.placeholder("met").unwrap());
    secrets.put_in(&first, &secrets.check(&first).unwrap()).await.unwrap();
    for parts in [get(HERE, "value-of-met"), get("https://evil.example/?q=dmFsdWUtb2YtbWV0", "x")] {
        assert!(
            secrets.check(&parts).is_err_and(|record| record.reason.contains("holds the value"))
        );
    }
    assert!(secrets.check(&get("https://evil.example/?q=value-of-me", "x")).is_ok());
}
