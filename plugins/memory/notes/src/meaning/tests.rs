use conclave_sdk::testing::FakeHost;
use serde_json::{Value, json};

use super::{catch_up, search};
use crate::book::{forget, remember};
use crate::store::Granted;
use crate::vectors;

const URL: &str = "https://models.example.org/v1/embeddings";

fn host() -> FakeHost {
    let embeddings = json!({ "url": URL, "model": "small" });
    FakeHost::new().config(json!({ "embeddings": embeddings })).kv()
}

/// Returns an answer with these vectors.
fn answer(vectors: &[&[f32]]) -> String {
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, embedding)| json!({ "index": index, "embedding": embedding }))
        .collect();
    json!({ "data": data }).to_string()
}

fn keep(texts: &[&str]) {
    for text in texts {
        remember(&mut Granted, text, Vec::new()).unwrap();
    }
}

fn found(query: &str) -> Vec<u64> {
    search(&mut Granted, query, 10).unwrap().into_iter().map(|found| found.id).collect()
}

fn sent(host: &FakeHost) -> Vec<Vec<String>> {
    let texts = |body: &[u8]| -> Vec<String> {
        let body: Value = serde_json::from_slice(body).unwrap();
        serde_json::from_value(body["input"].clone()).unwrap()
    };
    host.requests().iter().map(|request| texts(request.body.as_deref().unwrap())).collect()
}

#[test]
fn notes_are_found_by_meaning_and_by_words() {
    let mut host = host().response(URL, 200, answer(&[&[1.0, 0.1, 0.0]]));
    let (by_meaning, by_words) = host.run(|| {
        keep(&["The dog is ill.", "Tea is at four.", "A pier."]);
        vectors::add(&mut Granted, "small", 1, &[1.0, 0.0, 0.0]).unwrap();
        vectors::add(&mut Granted, "small", 2, &[0.5, 0.5, 0.0]).unwrap();
        vectors::add(&mut Granted, "small", 3, &[-1.0, 0.0, 0.0]).unwrap();
        vectors::advance(&mut Granted, "small", 4).unwrap();
        (found("animals that are unwell"), found("pier"))
    });
    assert_eq!(by_meaning, [1, 2], "what points away does not fit");
    assert_eq!(by_words, [3, 1, 2], "the first of both rankings, the newest first");
}

#[test]
fn a_note_of_both_rankings_comes_first() {
    let mut host = host().response(URL, 200, answer(&[&[1.0, 0.0]]));
    let found = host.run(|| {
        keep(&["tea, tea, tea", "tea at four", "a drink"]);
        vectors::add(&mut Granted, "small", 2, &[0.9, 0.1]).unwrap();
        vectors::add(&mut Granted, "small", 3, &[1.0, 0.0]).unwrap();
        vectors::advance(&mut Granted, "small", 4).unwrap();
        found("tea")
    });
    assert_eq!(found[0], 2);
}

#[test]
fn a_query_brings_vectors_of_older_notes() {
    let mut host = host().response(URL, 200, answer(&[&[0.0, 1.0], &[1.0, 0.0], &[0.0, 1.0]]));
    let ids = host.run(|| {
        keep(&["one", "two"]);
        found("three")
    });
    assert_eq!(ids, [2], "it has its vector in time for the query");
    assert_eq!(sent(&host), [["three", " one", " two"]]);
    let mut host = host.response(URL, 200, answer(&[&[0.0, 1.0]]));
    assert_eq!(host.run(|| found("three")), [2]);
    assert_eq!(sent(&host)[1], ["three"]);
}

#[test]
fn vectors_of_another_model_are_made_again() {
    let mut host = host().response(URL, 200, answer(&[&[1.0, 0.0], &[0.0, 1.0]]));
    let ids = host.run(|| {
        keep(&["one"]);
        vectors::add(&mut Granted, "large", 1, &[1.0, 0.0]).unwrap();
        vectors::advance(&mut Granted, "large", 2).unwrap();
        found("x")
    });
    assert!(ids.is_empty(), "{ids:?}: orthogonal by the new model");
    assert_eq!(sent(&host), [["x", " one"]]);
}

#[test]
fn a_forgotten_note_has_no_vector() {
    let mut host = host().response(URL, 200, answer(&[&[1.0]]));
    host.run(|| {
        keep(&["one"]);
        catch_up(&mut Granted).unwrap();
        assert_eq!(found("x"), [1]);
        forget(&mut Granted, 1).unwrap();
        assert!(found("x").is_empty());
    });
    assert_eq!(host.value("vector/000000000001"), None);
}

#[test]
fn without_the_server_a_search_goes_by_words() {
    for host in [host().response(URL, 503, ""), host()] {
        let mut host = host;
        assert_eq!(
            host.run(|| {
                keep(&["tea at four"]);
                found("tea")
            }),
            [1]
        );
    }
}

#[test]
fn a_text_that_the_server_refuses_is_passed_over() {
    let mut host = host().response(URL, 400, "");
    assert_eq!(
        host.run(|| {
            keep(&["tea", "milk"]);
            found("tea")
        }),
        [1]
    );
    let of_tea = [vec!["tea", " tea", " milk"], vec!["tea", " tea"], vec!["tea"]];
    assert_eq!(sent(&host), of_tea, "together, then one, then the query alone");
    host.run(|| found("tea"));
    assert_eq!(sent(&host)[3], ["tea", " milk"], "the next note is tried");
}

#[test]
fn a_mistake_in_the_settings_is_an_error() {
    let mut host = FakeHost::new().config(json!({ "embeddings": { "url": URL } })).kv();
    let error = host.run(|| search(&mut Granted, "x", 1)).unwrap_err();
    assert!(error.to_string().contains("model"), "{error}");
}
