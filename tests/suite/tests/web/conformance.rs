//! Schemathesis compares the server with its OpenAPI document.

use conclave_test_support::until;
use serde_json::json;

use super::{data, desk, python};
use crate::cli::text;
use crate::serve::client::Served;
use crate::serve::people::token;

#[test]
#[ignore = "cargo xtask test runs it"]
fn the_server_does_what_its_openapi_document_says() {
    let rig = desk();
    let root = token(&rig, "root", "admin");
    let mut served = Served::start(&rig, &[]);
    let cookie = served.log_in(&root);
    served.with_cookie(&cookie);
    // Something to find: a run that waits for an approval, with changes.
    let started = served.post("/api/v1/runs", &json!({ "text": "go" }));
    assert_eq!(started.status, 201, "{}", started.text);
    until("a question", || {
        let questions = served.get("/api/v1/questions").body;
        questions["questions"].as_array().is_some_and(|all| !all.is_empty()).then_some(())
    });
    let checked = rig
        .bare(python().with_file_name("schemathesis"))
        .arg("--config-file")
        .arg(data("schemathesis.toml"))
        .arg("run")
        .arg(format!("http://{}/api/v1/openapi.json", served.address()))
        .args(["--header", &format!("Authorization: Bearer {root}")])
        // The same requests each time.
        .args(["--seed", "1", "--max-examples", "4", "--suppress-health-check", "all"])
        .args(["--phases", "coverage,fuzzing", "--checks", "all"])
        .output()
        .expect("it runs");
    let printed = text(&checked.stdout) + &text(&checked.stderr);
    assert!(checked.status.success(), "{printed}");
    assert_eq!(served.get("/healthz").status, 200, "the server lives");
}
