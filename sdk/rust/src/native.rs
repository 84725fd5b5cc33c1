//! The host's side of a native test: what each import returns there. It belongs to the test's
//! thread. Without a [`FakeHost`](crate::testing::FakeHost) nothing is granted, so every import is
//! denied, and none aborts the test. A component contains none of this.

pub(crate) mod blobs;
pub(crate) mod exec;
pub(crate) mod fetch;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod kv;
pub(crate) mod model;
pub(crate) mod secrets;
pub(crate) mod toolbox;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use crate::Denial;
use crate::channel::Proof;
use crate::fetch::Header;
use crate::model::Completion;
use crate::testing::TaskSnapshot;

/// The grants and the data of a fake host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    /// The granted folders, and whether they can be written.
    pub(crate) roots: Vec<(String, bool)>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The keys; `None` if they are not granted.
    pub(crate) kv: Option<BTreeMap<String, Vec<u8>>>,
    pub(crate) responses: BTreeMap<String, FakeResponse>,
    pub(crate) requests: Vec<FakeRequest>,
    /// The replies of the model; `None` if no model is granted.
    pub(crate) replies: Option<VecDeque<Completion>>,
    pub(crate) secrets: Vec<String>,
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    /// The valid proofs of requests to a channel.
    pub(crate) proofs: Vec<Proof>,
    /// The conversation of a tool call; `None` if it is not granted.
    pub(crate) history: Option<Box<TaskSnapshot>>,
    /// The answers of other tools, by name; empty if none is granted.
    pub(crate) tools: BTreeMap<String, String>,
    /// The calls of other tools, with their arguments.
    pub(crate) calls: Vec<(String, Value)>,
    /// The exit codes and outputs of programs, by command; empty if none is granted.
    pub(crate) programs: BTreeMap<String, (u8, String)>,
    /// The programs that ran: command, directory, input.
    pub(crate) ran: Vec<RanProgram>,
}

/// A program that ran: its command, its directory and its input.
pub(crate) type RanProgram = (String, Option<String>, Vec<u8>);

/// An answer of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<Header>,
    pub(crate) body: Vec<u8>,
}

/// A request that was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeRequest {
    /// Such as `GET`.
    pub method: String,
    /// The address with its query.
    pub url: String,
    /// The headers, with placeholders in place of secrets.
    pub headers: Vec<Header>,
    /// The body, if there was one.
    pub body: Option<Vec<u8>>,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static CONFIG: RefCell<Option<String>> = const { RefCell::new(None) };
    static FAKE: RefCell<Fake> = RefCell::new(Fake::default());
}

/// Reads or changes what the fake host of this thread holds.
pub(crate) fn fake<T>(work: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with_borrow_mut(work)
}

/// The refusal of a capability that no fake host of this thread grants.
pub(crate) fn denied(capability: &str, target: &str) -> Denial {
    Denial {
        capability: capability.to_owned(),
        target: target.to_owned(),
        detail: "no conclave_sdk::testing::FakeHost of this test grants it".to_owned(),
    }
}

pub(crate) fn scratch() -> Vec<u8> {
    SCRATCH.with_borrow(Clone::clone)
}

pub(crate) fn set_scratch(value: Vec<u8>) {
    SCRATCH.set(value);
}

/// The plugin's settings as JSON; an empty object if none were set.
pub(crate) fn config() -> String {
    CONFIG.with_borrow(|config| config.clone().unwrap_or_else(|| "{}".to_owned()))
}

/// Sets them, and returns the previous ones.
pub(crate) fn set_config(config: Option<String>) -> Option<String> {
    CONFIG.replace(config)
}
