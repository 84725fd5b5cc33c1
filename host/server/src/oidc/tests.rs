//! Log-ins at a provider on loopback with real signatures, and everything that must be refused.

use std::collections::BTreeMap;

use conclave_core::config::KeyRef;
use conclave_runtime::clock::BoxFuture;
use conclave_test_servers::{ProviderBehaviour, TestProvider, TokenSignature};
use serde_json::json;
use url::Url;

use super::*;

const REDIRECT: &str = "http://127.0.0.1:8800/login/callback";

/// A source with one secret.
struct ClientSecret(&'static str);

impl SecretSource for ClientSecret {
    fn secret(&self, _: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
        Box::pin(std::future::ready(Ok(ApiKey::new(self.0.to_owned()))))
    }

    fn check(&self, _: &KeyRef) -> Result<(), String> {
        Ok(())
    }
}

/// A provider, and the server's side of it.
struct Fixture {
    provider: TestProvider,
    oidc: Arc<Oidc>,
}

fn config(issuer: String) -> OidcConfig {
    OidcConfig {
        issuer,
        client_id: "conclave".to_owned(),
        client_secret: Some(KeyRef::Env("SECRET".to_owned())),
        scopes: vec!["openid".to_owned()],
        name_claim: OidcConfig::NAME_CLAIM.to_owned(),
        roles_claim: OidcConfig::ROLES_CLAIM.to_owned(),
        roles: [("ops".to_owned(), Role::Operator)].into(),
        role: None,
        session_ms: OidcConfig::SESSION_MS,
        refresh_ms: OidcConfig::REFRESH_MS,
    }
}

impl Fixture {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut OidcConfig)) -> Self {
        let provider = TestProvider::start().unwrap();
        provider.change(|it| drop(it.person.insert("groups".to_owned(), json!(["ops"]))));
        let mut config = config(provider.issuer());
        change(&mut config);
        let secret = ClientSecret(provider.client().1);
        let oidc = Arc::new(Oidc::new(config, Arc::new(secret)).unwrap());
        Self { provider, oidc }
    }

    /// Begins a log-in in a browser. Returns the query with which the provider leads back.
    async fn begin(&self, attempt: &Attempt) -> Callback {
        let url = self.oidc.authorization_url(attempt, REDIRECT).await.unwrap();
        let back = self.provider.log_in(&url).unwrap();
        assert!(back.starts_with(REDIRECT), "{back}");
        let fields: BTreeMap<_, _> =
            Url::parse(&back).unwrap().query_pairs().into_owned().collect();
        let field = |name: &str| fields.get(name).cloned();
        Callback {
            code: field("code"),
            state: field("state"),
            issuer: field("iss"),
            error: field("error"),
        }
    }

    async fn end(&self, attempt: Attempt, callback: Callback) -> Result<OidcPerson, OidcRefusal> {
        self.oidc.finish(attempt, callback, REDIRECT.to_owned()).await
    }

    async fn log_in(&self) -> Result<OidcPerson, OidcRefusal> {
        let attempt = attempt();
        let callback = self.begin(&attempt).await;
        // Without the place of a log-in, which a failed one occupies for a while.
        self.oidc.person(&attempt, callback, REDIRECT).await
    }

    /// Logs in while the provider behaves otherwise.
    async fn log_in_with(
        &self,
        change: impl FnOnce(&mut ProviderBehaviour),
    ) -> Result<OidcPerson, OidcRefusal> {
        let mut before = None;
        self.provider.change(|behaviour| {
            before = Some(behaviour.clone());
            change(behaviour);
        });
        let outcome = self.log_in().await;
        self.provider.change(|behaviour| before.into_iter().for_each(|it| *behaviour = it));
        outcome
    }
}

/// A client at a provider.
const CLIENT: &str = "conclave https://login.example.org";

fn attempt() -> Attempt {
    Attempt::new("/runs".to_owned(), CLIENT.to_owned()).unwrap()
}

fn problem(outcome: Result<OidcPerson, OidcRefusal>) -> IdTokenProblem {
    match outcome {
        Err(OidcRefusal::IdToken(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

fn failure(outcome: Result<OidcPerson, OidcRefusal>) -> ProviderFailure {
    match outcome {
        Err(OidcRefusal::Provider(failure)) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_person_logs_in_with_each_kind_of_signature_that_counts() {
    let fixture = Fixture::new();
    for kind in [TokenSignature::Rs256, TokenSignature::Es256, TokenSignature::EdDsa] {
        let person = fixture.log_in_with(|it| it.signature = kind).await.unwrap();
        assert_eq!((&*person.principal.0, person.role), ("oidc:ada-17", Role::Operator));
    }
    // The address of a person's page survives the cookie.
    let attempt = Attempt::of_cookie(&attempt().cookie(), CLIENT.to_owned()).unwrap();
    assert_eq!(attempt.page(), "/runs");
    for cookie in ["", "x", ".L3J1bnM", &format!("{}.L3J1bnM", "g".repeat(64))] {
        assert!(Attempt::of_cookie(cookie, CLIENT.to_owned()).is_none(), "{cookie}");
    }
}

#[tokio::test]
async fn a_callback_counts_once_in_the_browser_that_began() {
    let fixture = Fixture::new();
    let (own, other) = (attempt(), attempt());
    let callback = fixture.begin(&own).await;
    let same_query = || Callback {
        code: callback.code.clone(),
        state: callback.state.clone(),
        issuer: callback.issuer.clone(),
        error: None,
    };
    let in_other_browser = fixture.end(other.clone(), same_query()).await;
    assert!(matches!(in_other_browser, Err(OidcRefusal::UnknownLogin)), "{in_other_browser:?}");
    for state in [None, Some(String::new()), Some(other.state())] {
        let wrong = fixture.end(own.clone(), Callback { state, ..same_query() }).await;
        assert!(matches!(wrong, Err(OidcRefusal::UnknownLogin)), "{wrong:?}");
    }
    // The code of one log-in is of no use to another, which has another secret of PKCE.
    let stolen = Callback { state: Some(other.state()), ..same_query() };
    assert_eq!(failure(fixture.end(other, stolen).await), ProviderFailure::Revoked);
    let own_two = attempt();
    let query = fixture.begin(&own_two).await;
    let code = query.code.clone();
    fixture.end(own_two.clone(), query).await.unwrap();
    let replayed = Callback { code, state: Some(own_two.state()), ..same_query() };
    let replayed = fixture.end(own_two, replayed).await;
    assert!(matches!(replayed, Err(OidcRefusal::UnknownLogin)), "{replayed:?}");
    // A person who changes its mind is told so.
    let denied = attempt();
    let callback = Callback {
        state: Some(denied.state()),
        issuer: Some(fixture.provider.issuer()),
        error: Some("access_denied".to_owned()),
        code: None,
    };
    let denied = fixture.end(denied, callback).await;
    assert!(matches!(denied, Err(OidcRefusal::Denied(_))), "{denied:?}");
}

#[tokio::test]
async fn a_token_for_something_else_is_refused() {
    let fixture = Fixture::new();
    let now = crate::http::now().0 / 1_000;
    let cases = [
        (json!({ "nonce": "other" }), IdTokenProblem::Nonce),
        (json!({ "nonce": null }), IdTokenProblem::Nonce),
        (json!({ "aud": "another" }), IdTokenProblem::Audience),
        (json!({ "aud": null }), IdTokenProblem::Audience),
        (json!({ "aud": ["conclave", "another"] }), IdTokenProblem::Audience),
        (json!({ "azp": "another" }), IdTokenProblem::Audience),
        (json!({ "iss": "https://evil.test" }), IdTokenProblem::Issuer),
        (json!({ "exp": now - 120 }), IdTokenProblem::Time),
        (json!({ "exp": null }), IdTokenProblem::Time),
        (json!({ "exp": "never" }), IdTokenProblem::Time),
        (json!({ "iat": now + 120 }), IdTokenProblem::Time),
        (json!({ "nbf": now + 120 }), IdTokenProblem::Time),
        (json!({ "sub": null }), IdTokenProblem::Malformed),
    ];
    for (claims, expected) in cases {
        let claims = claims.as_object().cloned().unwrap();
        let case = format!("{claims:?}");
        let refused = fixture.log_in_with(|it| it.claims = claims).await;
        assert_eq!(problem(refused), expected, "{case}");
    }
    // Clocks differ a little, and a token may be for several servers.
    let claims =
        json!({ "exp": now - 30, "iat": now + 30, "aud": ["a", "conclave"], "azp": "conclave" });
    let claims = claims.as_object().cloned().unwrap();
    fixture.log_in_with(|it| it.claims = claims).await.unwrap();
}

#[tokio::test]
async fn only_a_signature_by_a_key_of_the_provider_counts() {
    let fixture = Fixture::new();
    fixture.log_in().await.unwrap();
    for kind in [TokenSignature::None, TokenSignature::Hs256] {
        let refused = fixture.log_in_with(|it| it.signature = kind).await;
        assert_eq!(problem(refused), IdTokenProblem::Algorithm, "{kind:?}");
    }
    // A key that is not published, and then is: the keys are read again.
    let refused = fixture.log_in_with(|it| it.key = "two".to_owned()).await;
    assert_eq!(problem(refused), IdTokenProblem::UnknownKey);
    fixture.provider.change(|it| {
        it.key = "two".to_owned();
        it.published = vec!["two".to_owned()];
    });
    fixture.log_in().await.unwrap();
    let refused = fixture.log_in_with(|it| it.key = "one".to_owned()).await;
    assert_eq!(problem(refused), IdTokenProblem::UnknownKey, "it was taken away");
}

#[test]
fn a_changed_token_is_none() {
    for text in ["", "a", "a.b", "a.b.c", "..", "e30.e30.", "W10.e30.", &"x".repeat(70_000)] {
        assert!(id_token::parse(text).is_err(), "{text:.20}");
    }
    let key =
        id_token::VerifyingKey::of_jwk(&json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA" }));
    let key = key.unwrap();
    // {"alg":"EdDSA"}.{}.AAAA
    let token = id_token::parse("eyJhbGciOiJFZERTQSJ9.e30.AAAA").unwrap();
    let expected = Expected { issuer: "", client_id: "", nonce: None };
    let refused = token.verified(Some(&key), &expected, crate::http::now());
    assert_eq!(refused, Err(IdTokenProblem::Signature));
    // {"alg":"EdDSA","crit":["x"]}
    let critical = id_token::parse("eyJhbGciOiJFZERTQSIsImNyaXQiOlsieCJdfQ.e30.AAAA").err();
    assert_eq!(critical, Some(IdTokenProblem::Malformed));
    for jwk in [
        json!({ "kty": "oct", "k": "AAAA" }),
        json!({ "kty": "EC", "crv": "P-384", "x": "AA", "y": "AA" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA", "use": "enc" }),
        json!({ "kty": "RSA", "n": "AAAA", "e": "AQAB", "alg": "HS256" }),
    ] {
        assert_eq!(id_token::VerifyingKey::of_jwk(&jwk), None, "{jwk}");
    }
}

#[tokio::test]
async fn another_issuer_and_a_provider_that_fails_are_refused() {
    let fixture = Fixture::new();
    fixture.provider.change(|it| it.is_down = true);
    let down = fixture.oidc.authorization_url(&attempt(), REDIRECT).await;
    assert!(matches!(down, Err(OidcRefusal::Provider(ProviderFailure::Unusable))), "{down:?}");
    assert!(fixture.oidc.begins_to_fail(&down) && !fixture.oidc.begins_to_fail(&down));
    // No redirect is followed, wherever it leads.
    fixture.provider.change(|it| {
        it.is_down = false;
        it.redirect = Some("http://127.0.0.1:1/".to_owned());
    });
    let led = fixture.oidc.authorization_url(&attempt(), REDIRECT).await;
    assert!(matches!(led, Err(OidcRefusal::Provider(ProviderFailure::Unusable))), "{led:?}");
    fixture.provider.change(|it| {
        it.redirect = None;
        it.metadata_issuer = Some("https://evil.test".to_owned());
    });
    let other = fixture.oidc.authorization_url(&attempt(), REDIRECT).await;
    assert!(matches!(other, Err(OidcRefusal::Provider(ProviderFailure::Issuer))), "{other:?}");
    fixture.provider.change(|it| it.metadata_issuer = None);
    let person = fixture.log_in().await;
    assert!(person.is_ok() && !fixture.oidc.begins_to_fail(&person));
    let mixed =
        fixture.log_in_with(|it| it.callback_issuer = Some("https://evil.test".into())).await;
    assert_eq!(failure(mixed), ProviderFailure::Issuer);
    let absent = Fixture::with(|config| config.issuer = "http://127.0.0.1:1".to_owned());
    let refused = absent.oidc.authorization_url(&attempt(), REDIRECT).await;
    assert!(matches!(refused, Err(OidcRefusal::Provider(ProviderFailure::Unreachable))));
}

#[tokio::test]
async fn who_has_no_role_or_no_name_is_refused() {
    let fixture = Fixture::new();
    let claims = |claims: Value| claims.as_object().cloned().unwrap();
    let groups = claims(json!({ "groups": ["others"] }));
    let refused = fixture.log_in_with(|it| it.claims = groups).await;
    assert!(matches!(refused, Err(OidcRefusal::NoRole)), "{refused:?}");
    let by_email = Fixture::with(|config| config.name_claim = "email".to_owned());
    assert_eq!(&*by_email.log_in().await.unwrap().principal.0, "oidc:ada@example.org");
    let unverified = claims(json!({ "email_verified": false }));
    let refused = by_email.log_in_with(|it| it.claims = unverified).await;
    assert!(matches!(refused, Err(OidcRefusal::Unnamed(_))), "{refused:?}");
}

#[tokio::test]
async fn a_person_keeps_access_until_the_provider_says_otherwise() {
    let fixture = Fixture::new();
    assert!(!fixture.log_in().await.unwrap().is_renewable());
    fixture.provider.change(|it| it.is_refreshable = true);
    let mut person = fixture.log_in().await.unwrap();
    // Each refresh uses up its token and brings the next one.
    for _ in 0..2 {
        assert_eq!(fixture.oidc.renew(&mut person).await, Renewal::Valid);
    }
    // As long as nobody can be asked, the end of the session is the bound.
    fixture.provider.change(|it| it.is_down = true);
    assert_eq!(fixture.oidc.renew(&mut person).await, Renewal::Valid);
    fixture.provider.change(|it| it.is_down = false);
    for claims in [json!({ "groups": [] }), json!({ "sub": "bob" }), json!({ "aud": "another" })] {
        fixture.provider.change(|it| it.claims = claims.as_object().cloned().unwrap());
        assert_eq!(fixture.oidc.renew(&mut person).await, Renewal::Revoked, "{claims}");
    }
    fixture.provider.change(|it| {
        it.claims.clear();
        it.is_revoked = true;
    });
    assert_eq!(fixture.oidc.renew(&mut person).await, Renewal::Revoked);
}
