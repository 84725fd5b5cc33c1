//! Components in OCI registries: what is pushed is pulled again, by tag and by digest, and a registry
//! that lies, stalls or leads elsewhere is refused.

use std::process::Output;
use std::sync::Arc;

use conclave_core::types::limits::COMPONENT_BYTES;
use conclave_core::types::oci::OciReference;
use conclave_runtime::plugin::{
    Artifact, Envelope, Login, NoLogins, Package, Registry, RegistryError, RegistryLogins,
    SigningKey, Statement, Subject, inspect, signers,
};
use conclave_test_support::registry::{Misbehaviour, TestRegistry, digest};
use conclave_test_support::{Rig, block_on, guest};
use serde_json::{Value, json};

use crate::cli::text;

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn component() -> Vec<u8> {
    std::fs::read(guest("weather")).expect("it is built")
}

fn package(component: &[u8]) -> Package {
    Package::new(component.to_owned(), &inspect(component).expect("it is a plugin"))
}

/// A client that keeps nothing.
fn client() -> Registry {
    Registry::new(Arc::new(NoLogins), None)
}

fn reference(registry: &TestRegistry, name: &str) -> OciReference {
    registry.reference(name).parse().expect("it is a reference")
}

fn push(registry: &TestRegistry, name: &str, component: &[u8]) -> OciReference {
    push_artifact(registry, name, component).reference().clone()
}

fn push_artifact(registry: &TestRegistry, name: &str, component: &[u8]) -> Artifact {
    let (to, package) = (reference(registry, name), package(component));
    block_on(async { client().push(&to, &package).await }).unwrap_or_else(|error| panic!("{error}"))
}

fn pull(client: &Registry, from: &OciReference) -> Result<Vec<u8>, RegistryError> {
    pull_up_to(client, from, COMPONENT_BYTES)
}

fn pull_up_to(
    client: &Registry,
    from: &OciReference,
    limit: u64,
) -> Result<Vec<u8>, RegistryError> {
    block_on(async {
        let artifact: Artifact = client.artifact(from, || {}).await?;
        client.component(&artifact, limit, || {}).await
    })
}

#[test]
fn a_pushed_component_has_the_layout_of_wkg() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "team/weather:1.0.0", &component);
    let manifest = registry.manifest("team/weather", "1.0.0").expect("the tag is there");
    assert_eq!(manifest["schemaVersion"], 2);
    assert_eq!(manifest["mediaType"], MANIFEST);
    assert_eq!(
        manifest["layers"],
        json!([{ "mediaType": "application/wasm", "digest": digest(&component), "size": component.len() }])
    );
    assert_eq!(manifest["config"]["mediaType"], CONFIG);
    let about = inspect(&component).expect("it is a plugin").manifest;
    assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], about.version);
    let config = manifest["config"]["digest"].as_str().expect("it has one");
    let config = registry.blob("team/weather", config).expect("the config was pushed");
    let config: Value = serde_json::from_slice(&config).expect("it is JSON");
    assert_eq!((&config["os"], &config["architecture"]), (&json!("wasip2"), &json!("wasm")));
    assert_eq!(config["layerDigests"], json!([digest(&component)]));
    assert!(config["component"]["exports"].as_array().is_some_and(|list| !list.is_empty()));
    let elsewhere = push(&registry, "mirror:latest", &component);
    assert_eq!(pushed.digest(), elsewhere.digest(), "the digest follows from the component");
}

#[test]
fn a_component_is_pulled_by_tag_and_by_digest() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    assert_eq!(pull(&client(), &reference(&registry, "weather:1")).unwrap(), component);
    assert_eq!(pull(&client(), &pushed).unwrap(), component);
    let _ = registry.take_requests();
    let _ = push(&registry, "weather:1", &component);
    let again = registry.take_requests();
    assert!(again.iter().all(|request| !request.starts_with("POST")), "{again:?}");
}

#[test]
fn what_has_a_digest_is_downloaded_once() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    let folder = tempfile::tempdir().expect("a test can make a folder");
    let client = Registry::new(Arc::new(NoLogins), Some(folder.path().to_owned()));
    assert_eq!(pull(&client, &pushed).unwrap(), component);
    let _ = registry.take_requests();
    assert_eq!(pull(&client, &pushed).unwrap(), component);
    assert_eq!(registry.take_requests(), Vec::<String>::new());
    for entry in std::fs::read_dir(folder.path()).expect("it is there").flatten() {
        std::fs::write(entry.path(), "changed by another").expect("a test can write a file");
    }
    assert_eq!(pull(&client, &pushed).unwrap(), component, "a changed copy is downloaded again");
}

#[test]
fn bytes_of_another_digest_are_refused() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    let mut tampered = component.clone();
    *tampered.last_mut().expect("it is not empty") ^= 1;
    registry.misbehave("/blobs/", Misbehaviour::Replace(tampered.clone()));
    for from in [&pushed, &reference(&registry, "weather:1")] {
        let refused = pull(&client(), from);
        let found = digest(&tampered).replace("sha256:", "");
        assert!(
            matches!(&refused, Err(RegistryError::OtherDigest { actual: other, .. }) if *other == found),
            "{refused:?}"
        );
    }
    registry.behave();
    let mut manifest = registry.manifest("weather", "1").expect("it is there");
    manifest["annotations"] = json!({});
    let other = manifest.to_string().into_bytes();
    registry.misbehave("/manifests/", Misbehaviour::Replace(other));
    let refused = pull(&client(), &pushed);
    assert!(
        matches!(&refused, Err(RegistryError::OtherDigest { what: "the manifest", .. })),
        "{refused:?}"
    );
}

#[test]
fn a_download_that_ends_early_is_refused() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    registry.misbehave("/blobs/", Misbehaviour::Truncate);
    let refused = pull(&client(), &pushed);
    assert!(matches!(&refused, Err(RegistryError::Unreachable { .. })), "{refused:?}");
    registry.behave();
    let half = component[..component.len() / 2].to_vec();
    registry.misbehave("/blobs/", Misbehaviour::Replace(half));
    let refused = pull(&client(), &pushed);
    assert!(matches!(&refused, Err(RegistryError::OtherDigest { .. })), "{refused:?}");
}

#[test]
fn a_download_stops_at_its_limit() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    let _ = registry.take_requests();
    let refused = pull_up_to(&client(), &pushed, component.len() as u64 - 1);
    assert!(matches!(&refused, Err(RegistryError::TooLarge { .. })), "{refused:?}");
    let asked = registry.take_requests();
    assert!(asked.iter().all(|request| !request.contains("/blobs/")), "{asked:?}");
    registry.misbehave("/blobs/", Misbehaviour::Endless);
    let refused = pull(&client(), &pushed).unwrap_err();
    assert!(refused.to_string().contains("longer than its manifest says"), "{refused}");
    registry.behave();
    registry.misbehave("/manifests/", Misbehaviour::Endless);
    let refused = pull(&client(), &pushed);
    assert!(
        matches!(&refused, Err(RegistryError::TooLarge { what: "the manifest", .. })),
        "{refused:?}"
    );
}

#[test]
fn a_registry_leads_to_no_address_without_tls_but_this_machine() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    for inner in ["http://10.0.0.7/blob", "http://169.254.169.254/latest"] {
        registry.behave();
        registry.misbehave("/blobs/", Misbehaviour::Redirect(inner.to_owned()));
        let refused = pull(&client(), &pushed);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("a redirect is not followed"), "{inner}: {refused}");
    }
    registry.behave();
    let mirror = TestRegistry::start();
    let blob = digest(&component);
    let _ = mirror.put_blob("weather", &component);
    let there = format!("http://{}/v2/weather/blobs/{blob}", mirror.host());
    registry.misbehave("/blobs/", Misbehaviour::Redirect(there));
    assert_eq!(pull(&client(), &pushed).unwrap(), component, "a mirror on this machine");
    let challenge = "www-authenticate: Bearer realm=\"http://10.0.0.7/token\"\r\n";
    registry.behave();
    registry.misbehave("/blobs/", Misbehaviour::Status(401, challenge.to_owned()));
    let refused = pull(&client(), &pushed);
    assert!(matches!(&refused, Err(RegistryError::Protocol { .. })), "{refused:?}");
}

#[derive(Debug)]
struct OneLogin(String, Login);

impl RegistryLogins for OneLogin {
    fn login(&self, registry: &str) -> Result<Option<Login>, String> {
        Ok((registry == self.0).then(|| self.1.clone()))
    }
}

#[test]
fn a_login_goes_to_its_registry_alone() {
    let (registry, component) = (TestRegistry::start(), component());
    let pushed = push(&registry, "weather:1", &component);
    registry.require_login("ada", "secret");
    let refused = pull(&client(), &pushed);
    assert!(
        matches!(&refused, Err(RegistryError::Unauthorized { status: 401, .. })),
        "{refused:?}"
    );
    let login = |password: &str| Login { user: "ada".to_owned(), password: password.to_owned() };
    let with = |password| Registry::new(Arc::new(OneLogin(registry.host(), login(password))), None);
    let refused = pull(&with("wrong"), &pushed);
    assert!(matches!(&refused, Err(RegistryError::Unauthorized { .. })), "{refused:?}");
    assert_eq!(pull(&with("secret"), &pushed).unwrap(), component);
    let other = reference(&registry, "weather:2");
    let pushed_with_login =
        block_on(async { with("secret").push(&other, &package(&component)).await });
    assert!(pushed_with_login.is_ok(), "{pushed_with_login:?}");
    // A host to which the registry redirects is another one, and gets neither login nor token.
    let stranger = TestRegistry::start();
    stranger.require_login("ada", "secret");
    let there = format!("http://{}/v2/weather/blobs/x", stranger.host());
    registry.misbehave("/blobs/", Misbehaviour::Redirect(there));
    let refused = pull(&with("secret"), &pushed);
    assert!(matches!(&refused, Err(RegistryError::Unauthorized { .. })), "{refused:?}");
    assert_eq!(stranger.take_requests().len(), 1, "no token was requested there");
    assert!(!format!("{:?}", login("secret")).contains("secret"));
}

#[test]
fn what_is_no_single_component_is_refused() {
    let (registry, component) = (TestRegistry::start(), component());
    push(&registry, "weather:1", &component);
    let whole = registry.manifest("weather", "1").expect("it is there");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut manifest = whole.clone();
        change(&mut manifest);
        registry.put_manifest("weather", "other", &manifest);
        pull(&client(), &reference(&registry, "weather:other"))
    };
    let layer = &whole["layers"][0];
    let cases: [&dyn Fn(&mut Value); 8] = [
        &|manifest| manifest["layers"] = json!([]),
        &|manifest| manifest["layers"] = json!([layer, layer]),
        &|manifest| manifest["layers"][0]["mediaType"] = json!("application/x-tar"),
        &|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../../etc/passwd"),
        &|manifest| manifest["layers"][0]["digest"] = json!(format!("sha512:{}", "0".repeat(128))),
        &|manifest| manifest["layers"][0]["size"] = json!(-1),
        &|manifest| {
            manifest["config"]["mediaType"] = json!("application/vnd.oci.image.config.v1+json")
        },
        &|manifest| *manifest = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [] }),
    ];
    for (index, change) in cases.iter().enumerate() {
        let refused = changed(*change);
        assert!(
            matches!(&refused, Err(RegistryError::NotAComponent { .. })),
            "{index}: {refused:?}"
        );
    }
    let missing = pull(&client(), &reference(&registry, "weather:none"));
    assert!(matches!(&missing, Err(RegistryError::NotFound { .. })), "{missing:?}");
}

/// Runs the program with a cache of the rig's own, so that no other test fills it.
fn conclave(rig: &Rig, arguments: &[&str]) -> Output {
    let mut command = rig.conclave(arguments);
    command.env("CONCLAVE_CACHE", rig.root().join("cache")).output().expect("the program runs")
}

fn well(rig: &Rig, arguments: &[&str]) -> (String, String) {
    let output = conclave(rig, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn ended(rig: &Rig, code: i32, arguments: &[&str]) -> String {
    let output = conclave(rig, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}", text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

fn file(rig: &Rig, path: &str) -> String {
    std::fs::read_to_string(rig.folder().join(path)).expect("it was written")
}

#[test]
fn a_plugin_is_pushed_added_by_tag_and_held_to_its_digest() {
    let registry = TestRegistry::start();
    let rig = Rig::new().with_file("weather.wasm", component());
    let (tag, moved) = (registry.reference("weather:1"), registry.reference("weather:2"));
    let (pushed, _) = well(&rig, &["plugin", "push", "weather.wasm", &tag]);
    let pushed = pushed.trim();
    assert!(pushed.starts_with(&format!("{tag}@sha256:")), "{pushed}");
    well(&rig, &["plugin", "pull", pushed, "--output", "copy.wasm"]);
    assert_eq!(std::fs::read(rig.folder().join("copy.wasm")).expect("it was written"), component());
    assert!(ended(&rig, 2, &["plugin", "pull", &tag, "-o", "copy.wasm"]).contains("--force"));
    let absent = ended(&rig, 5, &["plugin", "pull", &moved, "-o", "copy.wasm"]);
    assert!(absent.contains(&moved) && !absent.contains("--force"), "{absent}");
    well(&rig, &["plugin", "inspect", &tag]);
    let call = ["plugin", "call", &tag, "temperature", "{\"place\": \"Oslo\"}"];
    assert!(well(&rig, &call).0.contains("Oslo"));

    well(&rig, &["init"]);
    well(&rig, &["add", &tag, "--as", "rain"]);
    assert!(file(&rig, "conclave.toml").contains(&format!("source = \"{tag}\"")));
    assert!(file(&rig, "conclave.lock").contains(&format!("artifact = \"{pushed}\"")));
    well(&rig, &["plugin", "lock"]);
    well(&rig, &["check", "--locked"]);

    // Another component under the same tag changes nothing before it is accepted.
    let other = std::fs::read(guest("echo")).expect("it is built");
    push(&registry, "weather:1", &other);
    let _ = registry.take_requests();
    well(&rig, &["check", "--locked"]);
    assert_eq!(registry.take_requests(), Vec::<String>::new(), "the digest is there already");
    well(&rig, &["plugin", "lock"]);
    let shown = ended(&rig, 6, &["plugin", "upgrade", "rain"]);
    assert!(shown.contains("the artifact in a registry"), "{shown}");
    assert!(file(&rig, "conclave.lock").contains(pushed));

    // A tag that is not pinned is not loaded.
    push(&registry, "weather:2", &component());
    let config = file(&rig, "conclave.toml").replace(&tag, &moved);
    let rig = rig.with_file("conclave.toml", config);
    let refused = ended(&rig, 5, &["check"]);
    assert!(
        refused.contains("config/not-locked") && refused.contains("plugin upgrade rain"),
        "{refused}"
    );
    std::fs::remove_file(rig.folder().join("conclave.lock")).expect("it is there");
    let refused = ended(&rig, 5, &["check"]);
    assert!(refused.contains("config/not-locked") && refused.contains("plugin lock"), "{refused}");
    well(&rig, &["plugin", "lock"]);
    well(&rig, &["check", "--locked"]);
}

#[test]
fn a_digest_in_the_config_needs_no_lock() {
    let registry = TestRegistry::start();
    let rig = Rig::new().with_file("weather.wasm", component());
    let (pushed, _) =
        well(&rig, &["plugin", "push", "weather.wasm", &registry.reference("team/weather:1")]);
    well(&rig, &["init"]);
    let by_digest = pushed.trim().replace(":1@", "@");
    well(&rig, &["add", &by_digest, "--as", "rain"]);
    std::fs::remove_file(rig.folder().join("conclave.lock")).expect("it is there");
    well(&rig, &["check"]);
    for (source, code) in [("oci://registry.example/Weather:1", 2), ("oci://127.0.0.1:9/x:1", 5)] {
        ended(&rig, code, &["plugin", "inspect", source]);
    }
    let to = registry.reference(&format!("weather@sha256:{}", "0".repeat(64)));
    assert!(ended(&rig, 2, &["plugin", "push", "weather.wasm", &to]).contains("is not a tag"));
}

#[test]
fn a_login_is_read_from_the_configuration_of_docker() {
    use base64::Engine;
    let registry = TestRegistry::start();
    registry.require_login("ada", "secret");
    let rig = Rig::new().with_file("weather.wasm", component());
    let tag = registry.reference("weather:1");
    let refused = ended(&rig, 5, &["plugin", "push", "weather.wasm", &tag]);
    assert!(refused.contains(&format!("docker login {}", registry.host())), "{refused}");
    let auth = base64::engine::general_purpose::STANDARD.encode("ada:secret");
    let folder = rig.root().join("home/.docker");
    std::fs::create_dir_all(&folder).expect("a test can make a folder");
    let config = json!({ "auths": { registry.host(): { "auth": auth } } }).to_string();
    std::fs::write(folder.join("config.json"), config).expect("a test can write a file");
    well(&rig, &["plugin", "push", "weather.wasm", &tag]);
}

fn sign(artifact: &Artifact, key: &SigningKey) -> Envelope {
    let envelope = key.sign(&Statement::of_artifact(artifact));
    block_on(async { client().push_signature(artifact, &envelope).await })
        .unwrap_or_else(|error| panic!("{error}"));
    envelope
}

fn signatures(artifact: &Artifact) -> Vec<Envelope> {
    block_on(async { client().signatures(artifact).await })
        .unwrap_or_else(|error| panic!("{error}"))
        .envelopes
}

#[test]
fn signatures_travel_as_referrers_with_and_without_the_api() {
    for has_api in [true, false] {
        let (registry, component) = (TestRegistry::start(), component());
        if !has_api {
            registry.remove_referrers_api();
        }
        let artifact = push_artifact(&registry, "weather:1", &component);
        assert!(signatures(&artifact).is_empty());
        let keys = [(), ()].map(|()| SigningKey::generate().expect("there is randomness"));
        let mut expected: Vec<Envelope> = keys.iter().map(|key| sign(&artifact, key)).collect();
        sign(&artifact, &keys[0]);
        let mut found = signatures(&artifact);
        let order = |envelope: &Envelope| envelope.to_json();
        expected.sort_by_key(order);
        found.sort_by_key(order);
        assert_eq!(found, expected, "each once, with the API: {has_api}");
        let tag = format!("sha256-{}", artifact.reference().digest().unwrap_or_default());
        let index = registry.manifest("weather", &tag);
        assert_eq!(index.is_some(), !has_api, "{index:?}");
        let signed_by = signers(&found, Subject::Artifact(&artifact));
        assert_eq!(signed_by, keys.iter().map(SigningKey::public).collect());
    }
}

#[test]
fn a_signature_of_another_artifact_is_none_of_this_one() {
    let (registry, key) = (TestRegistry::start(), SigningKey::generate().expect("randomness"));
    let old = push_artifact(&registry, "weather:1", &component());
    let envelope = sign(&old, &key);
    let other = std::fs::read(guest("echo")).expect("it is built");
    let new = push_artifact(&registry, "weather:2", &other);
    // A replay: the old signature is attached to the new manifest.
    block_on(async { client().push_signature(&new, &envelope).await }).expect("it is stored");
    let found = signatures(&new);
    assert_eq!(found, [envelope], "the registry gives it out");
    assert!(signers(&found, Subject::Artifact(&new)).is_empty());
    // The same component under another manifest is another artifact too.
    let mut manifest = registry.manifest("weather", "1").expect("it is there");
    manifest["annotations"]["org.opencontainers.image.version"] = json!("9.9.9");
    registry.put_manifest("weather", "3", &manifest);
    let relabelled =
        block_on(async { client().artifact(&reference(&registry, "weather:3"), || {}).await })
            .expect("it is a component");
    assert_eq!(relabelled.component_sha256(), old.component_sha256());
    assert!(signers(&found, Subject::Artifact(&relabelled)).is_empty());
    assert!(!signers(&found, Subject::Artifact(&old)).is_empty());
}

#[test]
fn garbage_among_the_signatures_hides_none_and_counts_for_none() {
    let (registry, key) = (TestRegistry::start(), SigningKey::generate().expect("randomness"));
    let artifact = push_artifact(&registry, "weather:1", &component());
    let subject = json!({
        "mediaType": MANIFEST,
        "digest": format!("sha256:{}", artifact.reference().digest().unwrap_or_default()),
        "size": 1,
    });
    let of_type = |kind: &str, layers: Value| {
        json!({ "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "subject": subject,
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": "sha256:x", "size": 2 }, "layers": layers })
    };
    let kind = "application/vnd.conclave.signature.v1+json";
    let text = registry.put_blob("weather", b"no envelope");
    let layer = |digest: &str| json!([{ "mediaType": "application/vnd.dsse.envelope.v1+json", "digest": digest, "size": 11 }]);
    registry.put_manifest("weather", "a", &of_type(kind, layer(&text)));
    registry.put_manifest("weather", "b", &of_type(kind, json!([])));
    registry.put_manifest("weather", "c", &of_type(kind, json!("none")));
    registry.put_manifest("weather", "d", &of_type("application/x-sbom", layer(&text)));
    let envelope = sign(&artifact, &key);
    assert_eq!(signatures(&artifact), [envelope]);
}

/// Returns the rig with a config that names this plugin, and these lines of `[trust]`.
fn requiring(rig: Rig, source: &str, trust: &str) -> Rig {
    well(&rig, &["init", "--force"]);
    let config = file(&rig, "conclave.toml");
    let more = format!("\n[plugins.rain]\nsource = \"{source}\"\n\n[trust]\n{trust}\n");
    rig.with_file("conclave.toml", config + &more)
}

fn keygen(rig: &Rig, name: &str) -> String {
    well(rig, &["plugin", "keygen", name]).0.trim().to_owned()
}

#[test]
fn a_component_without_the_required_signatures_is_not_loaded() {
    let rig = Rig::new().with_file("weather.wasm", component());
    let (alice, bob) = (keygen(&rig, "alice.key"), keygen(&rig, "bob.key"));
    let mallory = keygen(&rig, "mallory.key");
    assert!(ended(&rig, 2, &["plugin", "keygen", "alice.key"]).contains("alice.key"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let access = std::fs::metadata(rig.folder().join("alice.key")).expect("it was written");
        assert_eq!(access.permissions().mode() & 0o777, 0o600);
    }
    let keys = format!("keys = {{ alice = \"{alice}\", bob = \"{bob}\" }}\n");
    let rig =
        requiring(rig, "./weather.wasm", &format!("{keys}require_signed = {{ threshold = 2 }}"));
    // Compiled before, so that it would come from the cache.
    well(&rig, &["plugin", "inspect", "weather.wasm"]);
    let refused = ended(&rig, 5, &["check"]);
    assert!(refused.contains("config/unsigned") && refused.contains(", and has none"), "{refused}");
    let sign = |key: &str| well(&rig, &["plugin", "sign", "weather.wasm", "--key", key]);
    sign("mallory.key");
    let refused = ended(&rig, 5, &["check"]);
    assert!(refused.contains("config/unsigned") && refused.contains(&mallory), "{refused}");
    sign("alice.key");
    sign("alice.key");
    assert_eq!(file(&rig, "weather.wasm.sig").lines().count(), 2, "signing again adds nothing");
    assert!(ended(&rig, 5, &["check"]).contains("has that of alice"));
    sign("bob.key");
    let shown = ended(&rig, 0, &["check"]);
    assert!(shown.contains("weather.wasm SIGNED"), "{shown}");

    let signed = file(&rig, "weather.wasm.sig");
    let rig = requiring(
        rig,
        "./weather.wasm",
        &format!("{keys}require_signed = {{ threshold = 2 }}\nrevoked = [\"{bob}\"]"),
    );
    let refused = ended(&rig, 5, &["check"]);
    assert!(refused.contains("config/unsigned") && refused.contains("revoked"), "{refused}");
    let digest = digest(&component());
    let rig = requiring(rig, "./weather.wasm", &format!("{keys}revoked = [\"{digest}\"]"));
    assert!(ended(&rig, 5, &["check"]).contains("config/revoked"));

    // The signatures of one component beside another one.
    let other = std::fs::read(guest("echo")).expect("it is built");
    let rig = rig.with_file("other.wasm", other).with_file("other.wasm.sig", signed);
    let rig =
        requiring(rig, "./other.wasm", &format!("{keys}require_signed = {{ threshold = 1 }}"));
    let refused = ended(&rig, 5, &["check"]);
    assert!(refused.contains("config/unsigned") && refused.contains(", and has none"), "{refused}");
}

#[test]
fn a_signed_plugin_is_published_added_and_run_without_a_network() {
    let registry = TestRegistry::start();
    let rig = Rig::new().with_file("weather.wasm", component());
    let (alice, bob) = (keygen(&rig, "alice.key"), keygen(&rig, "bob.key"));
    well(&rig, &["plugin", "sign", "weather.wasm", "--key", "bob.key"]);
    let tag = registry.reference("weather:1");
    let (pushed, _) = well(&rig, &["plugin", "push", "weather.wasm", &tag, "--sign", "alice.key"]);
    let (shown, _) = well(&rig, &["plugin", "inspect", pushed.trim(), "--no-tools"]);
    assert!(shown.contains(&alice) && shown.contains(&bob), "{shown}");
    well(&rig, &["plugin", "pull", &tag, "-o", "copy.wasm"]);
    assert_eq!(file(&rig, "copy.wasm.sig").lines().count(), 2);

    well(&rig, &["init"]);
    let trust = |keys: &str| {
        format!("\n[trust]\nkeys = {{ {keys} }}\nrequire_signed = {{ threshold = 1 }}\n")
    };
    let before = file(&rig, "conclave.toml");
    let stranger = format!("carol = \"ed25519:{}\"", "1".repeat(64));
    let rig = rig.with_file("conclave.toml", before.clone() + &trust(&stranger));
    let refused = ended(&rig, 5, &["add", &tag, "--as", "rain"]);
    assert!(refused.contains("needs a signature by carol"), "{refused}");
    let rig = rig.with_file("conclave.toml", before + &trust(&format!("alice = \"{alice}\"")));
    let (_, told) = well(&rig, &["add", &tag, "--as", "rain"]);
    assert!(told.contains("SIGNED by alice"), "{told}");
    well(&rig, &["check"]);
    registry.misbehave("/v2/", Misbehaviour::Status(500, String::new()));
    let shown = ended(&rig, 0, &["check"]);
    assert!(shown.contains("SIGNED") && !shown.contains("UNSIGNED"), "{shown}");
    well(&rig, &["run", "conclave.toml", "What is a grant?"]);
    let (entries, _) = well(&rig, &["audit", "--kind", "signed"]);
    assert!(entries.contains("is signed by alice"), "{entries}");
}

#[test]
fn a_tag_is_replaced_only_on_purpose_and_with_warnings() {
    let registry = TestRegistry::start();
    let other = std::fs::read(guest("echo")).expect("it is built");
    let rig = Rig::new().with_file("weather.wasm", component()).with_file("echo.wasm", other);
    let alice = keygen(&rig, "alice.key");
    let tag = registry.reference("weather:9.9.9");
    let (first, told) =
        well(&rig, &["plugin", "push", "weather.wasm", &tag, "--sign", "alice.key"]);
    assert!(told.contains("the tag is 9.9.9, and the manifest states version"), "{told}");
    let (again, _) = well(&rig, &["plugin", "push", "weather.wasm", &tag]);
    assert_eq!(again, first, "the same is no replacement");
    let refused = ended(&rig, 6, &["plugin", "push", "echo.wasm", &tag]);
    assert!(
        refused.contains("names another artifact") && refused.contains("--replace"),
        "{refused}"
    );
    let lost = format!("is signed by {alice}; this is not");
    assert!(refused.contains(&lost), "{refused}");
    let (still, _) = well(&rig, &["plugin", "inspect", &tag, "--no-tools"]);
    assert!(still.contains(&alice), "nothing was published: {still}");
    well(&rig, &["plugin", "push", "echo.wasm", &tag, "--replace"]);
    let (now, _) = well(&rig, &["plugin", "inspect", &tag, "--no-tools"]);
    assert!(!now.contains(&alice), "{now}");
}

/// The new file may be anybody's, so `--yes`, which is for what the author changed, is not enough.
#[test]
fn an_upgrade_that_loses_a_signature_is_not_accepted_by_yes() {
    let registry = TestRegistry::start();
    let other = std::fs::read(guest("echo")).expect("it is built");
    let rig =
        Rig::new().with_file("weather.wasm", component()).with_file("echo.wasm", other.clone());
    let alice = keygen(&rig, "alice.key");
    well(&rig, &["plugin", "sign", "weather.wasm", "--key", "alice.key"]);
    let tag = registry.reference("weather:1");
    well(&rig, &["plugin", "push", "weather.wasm", &tag, "--sign", "alice.key"]);
    well(&rig, &["init"]);
    well(&rig, &["trust", "add", "alice", &alice]);
    well(&rig, &["add", "./weather.wasm", "--as", "rain"]);
    well(&rig, &["add", &tag, "--as", "snow"]);
    let pinned = file(&rig, "conclave.lock");
    assert_eq!(pinned.matches(&format!("signed_by = [\"{alice}\"]")).count(), 2, "{pinned}");

    well(&rig, &["plugin", "push", "echo.wasm", &tag, "--replace"]);
    let rig = rig.with_file("weather.wasm", &other);
    std::fs::remove_file(rig.folder().join("weather.wasm.sig")).expect("it is there");
    for name in ["rain", "snow"] {
        let told = ended(&rig, 6, &["plugin", "upgrade", name, "--yes"]);
        let lost = told.find("it is no longer signed").expect("it is said");
        assert!(told.find("the component's SHA-256").is_some_and(|at| lost < at), "{told}");
        assert!(told.contains(&format!("- │ alice ({alice})")), "{told}");
        assert!(told.contains("lost a signature, which --yes does not accept"), "{told}");
    }
    assert_eq!(file(&rig, "conclave.lock"), pinned);

    // A new component of the same author is what `--yes` is for.
    well(&rig, &["plugin", "sign", "weather.wasm", "--key", "alice.key"]);
    well(&rig, &["plugin", "push", "echo.wasm", &tag, "--sign", "alice.key", "--replace"]);
    for name in ["rain", "snow"] {
        let (_, told) = well(&rig, &["plugin", "upgrade", name, "--yes"]);
        assert!(!told.contains("signed") && told.contains("is now pinned"), "{told}");
    }
}

#[test]
fn a_key_that_is_not_named_is_said_and_named_by_a_command() {
    let rig = Rig::new().with_file("weather.wasm", component());
    let alice = keygen(&rig, "alice.key");
    well(&rig, &["plugin", "sign", "weather.wasm", "--key", "alice.key"]);
    well(&rig, &["init"]);
    let (_, told) = well(&rig, &["add", "weather.wasm", "--as", "rain"]);
    let said = format!("SIGNED by {alice}, a key that [trust] does not name");
    assert!(told.contains(&said) && !told.contains("UNSIGNED"), "{told}");
    assert!(told.contains(&format!("conclave trust add NAME {alice}")), "{told}");
    let shown = ended(&rig, 0, &["check"]);
    assert!(shown.contains("SIGNED (unknown key)") && !shown.contains("UNSIGNED"), "{shown}");

    assert!(ended(&rig, 2, &["trust", "add", "alice", "ed25519:no"]).contains("is no public key"));
    well(&rig, &["trust", "add", "alice", &alice]);
    let (listed, _) = well(&rig, &["trust", "list"]);
    assert_eq!(listed.trim(), format!("alice {alice}"));
    let shown = ended(&rig, 0, &["check"]);
    assert!(shown.contains("weather.wasm SIGNED") && !shown.contains("unknown key"), "{shown}");
    let other = format!("ed25519:{}", "1".repeat(64));
    assert!(ended(&rig, 2, &["trust", "add", "alice", &other]).contains("the name of another key"));
    assert!(ended(&rig, 2, &["trust", "remove", "bob"]).contains("has no key bob"));
    well(&rig, &["trust", "remove", "alice"]);
    assert_eq!(well(&rig, &["trust", "list"]).0.trim(), "");
}
