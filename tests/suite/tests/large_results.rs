//! Results of parallel calls that are too much for one message: none is dropped, because the tools have
//! run.

use conclave_models::test_server::{Server, TestReply};
use conclave_test_support::Rig;
use serde_json::{Value, json};

use crate::cli::{conclave, text};

/// Returns the results that the model reads after it has read files of so many bytes at once.
fn results(lengths: &[usize]) -> Vec<String> {
    let path = |number: usize| format!("docs/{number}.txt");
    let calls: Vec<(&str, Value)> = (0..lengths.len())
        .map(|number| ("search__read", json!({ "path": format!("/{}", path(number)) })))
        .collect();
    let server = Server::start(vec![TestReply::calls(&calls), TestReply::says("all is told")]);
    let config = format!(
        "entry = \"chat\"\n[models.default]\nkind = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\n\
         [plugins.chat]\nsource = \"stock:chat\"\ngrants.model = [\"default\"]\ngrants.tools = [\"search.*\"]\n\
         [plugins.search]\nsource = \"stock:search\"\n\
         grants.files = [{{ dir = \"docs\", at = \"/docs\", mode = \"read\" }}]\n[tasks.chat]\nagent = \"chat\"\n",
        server.url(),
    );
    let rig = Rig::new().with_file("c.toml", config);
    let rig = lengths
        .iter()
        .enumerate()
        .fold(rig, |rig, (number, length)| rig.with_file(&path(number), "x".repeat(*length)));
    let output = conclave(&rig, &["run", "c.toml", "go"]);
    assert_eq!(text(&output.stdout), "all is told\n", "{}", text(&output.stderr));
    let last = server.requests()[1].json()["messages"].clone();
    let messages = last.as_array().expect("messages").iter();
    let results = messages.filter(|message| message["role"] == "tool");
    results.map(|result| result["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn results_that_are_too_much_together_are_cut_by_share_and_none_is_dropped() {
    let (small, large) = (1_000, 60_000);
    let mut lengths = [large; 60];
    lengths[1] = small;
    let read = results(&lengths);
    assert_eq!(read.len(), lengths.len());
    assert_eq!(read[1].matches('x').count(), small, "a small one is whole");
    for result in read.iter().take(1).chain(read.iter().skip(2)) {
        let kept = result.matches('x').count();
        assert!(kept > 10_000 && kept < large, "{kept}");
        assert!(result.contains("results were too long together"), "the model is told: {kept}");
    }
    // What fits is whole.
    let read = results(&[small; 60]);
    assert!(read.iter().all(|result| result.matches('x').count() == small));
}
