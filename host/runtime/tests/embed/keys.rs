//! Keys of model servers: where and when they are looked up, and that they are never shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conclave_runtime::clock::BoxFuture;
#[cfg(feature = "http-models")]
use conclave_runtime::config::ProblemCode;
use conclave_runtime::config::{KeyRef, Problems};
use conclave_runtime::models::ApiKey;
use conclave_runtime::native::{Plugin, Step};
use conclave_runtime::secrets::SecretSource;
#[cfg(feature = "http-models")]
use conclave_runtime::secrets::Sources;
use conclave_runtime::{Host, HostOptions};

use crate::support::parse;

fn text(key: &str) -> String {
    format!(
        "entry = \"desk\"\n[models.default]\nkind = \"openai\"\nurl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n{key}\n[plugins.desk]\nsource = \"native:desk\"\ngrants.model = [\"default\"]\n[tasks.desk]\nagent = \"desk\"\n"
    )
}

fn host(secrets: Arc<dyn SecretSource>) -> Host {
    let desk = Plugin::agent("desk", |_: Step| async { Ok("") });
    Host::new(HostOptions { native: vec![desk], secrets, ..HostOptions::default() }).unwrap()
}

async fn problem(secrets: Arc<dyn SecretSource>, key: &str) -> Problems {
    host(secrets).load(&parse(&text(key))).await.map(drop).expect_err("it should be refused").into()
}

/// A source that counts its queries.
#[derive(Default)]
struct Counting {
    checks: AtomicUsize,
    secrets: AtomicUsize,
}

impl SecretSource for Counting {
    fn secret(&self, _: &KeyRef) -> BoxFuture<'static, Result<ApiKey, String>> {
        self.secrets.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(ApiKey::new("sk-secret".to_owned()))))
    }

    fn check(&self, from: &KeyRef) -> Result<(), String> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        assert_eq!(*from, KeyRef::Command(vec!["pass".to_owned(), "show".to_owned()]));
        Ok(())
    }
}

#[cfg(not(feature = "http-models"))]
#[tokio::test]
async fn without_the_feature_a_server_is_a_problem_that_names_it() {
    let counting = Arc::new(Counting::default());
    let problem = problem(
        Arc::clone(&counting) as Arc<dyn SecretSource>,
        "key = { command = [\"pass\", \"show\"] }",
    )
    .await;
    assert_eq!(problem.0[0].line, 3, "{problem}");
    assert!(
        problem.to_string().contains("the feature `http-models` of conclave-runtime"),
        "{problem}"
    );
}

#[cfg(feature = "http-models")]
#[tokio::test]
async fn preparing_looks_whether_a_key_is_there_and_never_takes_it() {
    let counting = Arc::new(Counting::default());
    let secrets = Arc::clone(&counting) as Arc<dyn SecretSource>;
    host(secrets)
        .load(&parse(&text("key = { command = [\"pass\", \"show\"] }")))
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (counting.checks.load(Ordering::Relaxed), counting.secrets.load(Ordering::Relaxed)),
        (1, 0)
    );
}

#[cfg(feature = "http-models")]
#[tokio::test]
async fn a_key_that_is_not_there_is_told_at_its_line() {
    let sources = || Arc::new(Sources::new(|_| None)) as Arc<dyn SecretSource>;
    for key in [
        "key = { env = \"MY_KEY\" }",
        "key = { file = \"no-such-file\" }",
        "key = { command = [\"./no-such-program\"] }",
    ] {
        let problem = problem(sources(), key).await;
        assert_eq!(problem.codes(), [ProblemCode::MissingSecret], "{problem}");
        assert_eq!((problem.0[0].line, problem.0[0].column), (6, 1), "{problem}");
    }
    let problem = problem(HostOptions::default().secrets, "key = { env = \"MY_KEY\" }").await;
    assert_eq!(problem.codes(), [ProblemCode::MissingSecret], "{problem}");
}

#[test]
fn options_show_no_secrets() {
    let options = HostOptions { secrets: Arc::new(Counting::default()), ..HostOptions::default() };
    assert!(!format!("{options:?}").contains("secret"));
}
