use std::cell::RefCell;
use std::collections::BTreeMap;

use conclave_sdk::Error;
use conclave_sdk::kv::KvError;

use super::{
    MOST_NOTES, Store, Totals, forget, key_of, newest, remember, search, set_totals, totals,
};

/// A store with a quota, which counts what is read.
#[derive(Default)]
struct Fake {
    values: BTreeMap<String, Vec<u8>>,
    bytes: Option<usize>,
    read: RefCell<Vec<String>>,
}

impl Store for Fake {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, KvError> {
        self.read.borrow_mut().push(key.to_owned());
        Ok(self.values.get(key).cloned())
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), KvError> {
        let others: usize = self
            .values
            .iter()
            .filter(|(other, _)| *other != key)
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if let Some(limit) = self.bytes.filter(|limit| others + key.len() + value.len() > *limit) {
            return Err(KvError::QuotaExceeded(limit as u64));
        }
        self.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &str) -> Result<(), KvError> {
        self.values.remove(key);
        Ok(())
    }

    fn keys(&self, prefix: &str, after: &str, count: u32) -> Result<Vec<String>, KvError> {
        let after = self
            .values
            .range(after.to_owned()..)
            .map(|(key, _)| key)
            .filter(|key| *key != after && key.starts_with(prefix));
        Ok(after.take(count.min(7) as usize).cloned().collect())
    }
}

fn with(texts: &[&str]) -> Fake {
    let mut store = Fake::default();
    texts.iter().for_each(|text| assert!(remember(&mut store, text, Vec::new()).is_ok()));
    store
}

fn found(store: &Fake, query: &str) -> Vec<u64> {
    search(store, query, None, 10).unwrap().into_iter().map(|found| found.id).collect()
}

#[test]
fn notes_are_found_by_their_words_and_tags() {
    let mut store = with(&[
        "The user likes black tea.",
        "The boxes are in the shed.",
        "Skerryvore was lit in 1844.",
    ]);
    remember(&mut store, "Call on Mondays.", vec!["telephone".into()]).unwrap();
    for (query, expected) in [
        ("tea", &[1][..]),
        ("Where is my BOX?", &[2]),
        ("skerryvore 1844", &[3]),
        ("telephones", &[4]),
        ("coffee", &[]),
        ("", &[]),
        ("?!", &[]),
    ] {
        assert_eq!(found(&store, query), expected, "{query}");
    }
}

#[test]
fn better_notes_come_first_and_newer_ones_of_equals() {
    let store = with(&[
        "tea",
        "tea and coffee and bread and butter and jam and milk",
        "tea",
        "tea tea tea, and coffee",
        "coffee",
    ]);
    assert_eq!(found(&store, "tea coffee")[0], 4);
    assert_eq!(found(&store, "tea"), [4, 3, 1, 2]);
    assert_eq!(search(&store, "tea", None, 2).unwrap().len(), 2);
}

#[test]
fn the_score_is_that_of_bm25() {
    // Two notes, three words altogether: rare = ln(1 + (2 - 1 + 0.5) / 1.5), and the mean length is
    // 1.5.
    let store = with(&["alpha beta", "beta"]);
    assert_eq!(found(&store, "alpha"), [1]);
    assert_eq!(found(&store, "beta"), [2, 1], "the shorter one first");
    assert_eq!(found(&store, "alpha beta"), [1, 2]);
}

#[test]
fn what_is_forgotten_is_not_found() {
    let mut store = with(&["tea", "tea and milk"]);
    assert_eq!(forget(&mut store, 1).unwrap().unwrap().text, "tea");
    assert_eq!(found(&store, "tea"), [2]);
    assert_eq!(forget(&mut store, 1).unwrap(), None);
    forget(&mut store, 2).unwrap();
    assert_eq!(store.values.keys().collect::<Vec<_>>(), ["totals"], "nothing is left of the index");
    assert_eq!(totals(&store).unwrap(), Totals { next: 3, notes: 0, words: 0 });
    assert_eq!(
        remember(&mut store, "milk", Vec::new()).unwrap(),
        (3, 1),
        "a number never comes again"
    );
}

#[test]
fn a_search_reads_no_more_than_the_words_and_what_it_gives() {
    let texts: Vec<String> =
        (0..300).map(|number| format!("note {number} about subject{number}")).collect();
    let store = with(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    store.read.borrow_mut().clear();
    assert_eq!(found(&store, "subject7 subject9"), [10, 8]);
    assert_eq!(store.read.borrow().len(), 1 + 2 + 2, "{:?}", store.read.borrow());
}

#[test]
fn the_newest_are_listed_past_gaps() {
    let texts: Vec<String> = (1..=100).map(|number| format!("note {number}")).collect();
    let mut store = with(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let ids = |store: &Fake, limit: usize| {
        newest(store, limit).unwrap().0.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&store, 3), [100, 99, 98]);
    (20..=99).for_each(|id| drop(forget(&mut store, id).unwrap()));
    assert_eq!(ids(&store, 3), [100, 19, 18]);
    assert_eq!(ids(&store, 50).len(), 20);
    assert_eq!(newest(&store, 0).unwrap(), (Vec::new(), 20));
    assert_eq!(newest(&Fake::default(), 5).unwrap(), (Vec::new(), 0));
}

#[test]
fn a_full_store_says_so_and_stays_as_it_was() {
    let mut store = with(&["tea and milk"]);
    let size = |store: &Fake| {
        store.values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    };
    let fits = size(&store);
    // Wherever the room ends, everything is as before, but for the number that is spent.
    for room in 0..400 {
        let mut tight =
            Fake { values: store.values.clone(), bytes: Some(fits + room), ..Fake::default() };
        let mut before = tight.values.clone();
        let Err(error) = remember(&mut tight, "sugar tea honey", Vec::new()) else { break };
        let Error::Other(text) = error else { panic!("{error:?}") };
        assert!(text.starts_with("The memory is full: it may hold "), "{text}");
        before.remove("totals");
        let mut after = tight.values.clone();
        after.remove("totals");
        assert_eq!(after, before, "{room}");
        assert_eq!(totals(&tight).unwrap().notes, 1);
        assert_eq!(found(&tight, "tea"), [1]);
    }
    store.bytes = None;
    remember(&mut store, "sugar tea honey", Vec::new()).unwrap();
}

#[test]
fn what_is_too_much_is_refused() {
    let mut store = Fake::default();
    for (text, tags, expected) in [
        (" ".to_owned(), vec![], "text: there is nothing to remember"),
        (
            "x".repeat(40_000),
            vec![],
            "text: has 40000 bytes, and a note may have 32768; remember what matters of it",
        ),
        ("x".to_owned(), vec!["t".to_owned(); 17], "tags: at most 16, each of 1 to 64 bytes"),
        ("x".to_owned(), vec![String::new()], "tags: at most 16, each of 1 to 64 bytes"),
    ] {
        assert_eq!(
            remember(&mut store, &text, tags),
            Err(Error::InvalidArguments(expected.into()))
        );
    }
    set_totals(&mut store, Totals { next: 20_000, notes: MOST_NOTES, words: 0 }).unwrap();
    let Err(Error::Other(text)) = remember(&mut store, "x", Vec::new()) else { panic!() };
    assert!(text.starts_with("The memory is full: it holds 10000 notes."), "{text}");
}

#[test]
fn what_was_cut_off_does_no_harm() {
    let mut store = with(&["tea", "tea too"]);
    store.values.remove(&key_of(1));
    assert_eq!(found(&store, "tea"), [2], "an index entry without its note");
    store.values.insert("index/00".into(), b"broken".to_vec());
    assert!(search(&store, "a b c d e f g h tea", None, 10).is_ok());
    store.values.insert(key_of(2), b"broken".to_vec());
    assert_eq!(found(&store, "tea"), [0; 0]);
}
