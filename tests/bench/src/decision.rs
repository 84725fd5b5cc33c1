//! The decisions at every call of a tool: the rules, and whether a capability was requested and
//! granted.

use std::hint::black_box;

use conclave_core::config::Config;
use conclave_core::permissions::grants::{Grants, ModelGrant, Rights};
use conclave_core::permissions::manifest::{CapabilityRequest, Manifest};
use conclave_core::permissions::policy_rules::Decide;
use conclave_core::policy::decision::decide;
use conclave_core::setup::Setup;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{ModelName, PluginName};
use conclave_core::types::limits::RunLimits;
use serde_json::{Value, json};

use crate::BenchError;

/// A setup with rules, and a call that the last rule allows.
pub(crate) struct Decisions {
    setup: Setup,
    callers: [PluginName; 1],
    arguments: Value,
    manifest: Manifest,
    grants: Grants,
}

impl Decisions {
    /// Prepares a setup with this many rules. The last one allows the call.
    pub(crate) fn prepare(rules: usize) -> Result<Self, BenchError> {
        let mut text = "entry = \"desk\"\n[plugins.chat]\nsource = \"stock:chat\"\n[plugins.notes]\nsource = \"notes.wasm\"\n\
            [tasks.desk]\nagent = \"chat\"\n"
            .to_owned();
        for number in 1..rules {
            text += &format!(
                "[[policy]]\ntool = \"notes.save\"\narguments = {{ path = \"/folder{number}/*\" }}\ndecide = \"deny\"\n"
            );
        }
        text += "[[policy]]\ntool = \"notes.*\"\ndecide = \"allow\"\n";
        let config = Config::parse("bench.toml", "", &text)
            .map_err(|problems| BenchError::Conclave(problems.to_string()))?;
        let setup = Setup {
            entry: "desk".into(),
            tasks: [].into(),
            plugins: [].into(),
            models: [].into(),
            gates: Vec::new(),
            observers: Vec::new(),
            channels: Default::default(),
            policy: config.policy,
            policy_now: None,
            limits: RunLimits::default(),
        };
        let asks = [(Capability::Model.as_str().to_owned(), CapabilityRequest::default())].into();
        let model = ModelGrant {
            names: vec![ModelName::from("default")],
            tokens: None,
            cost_micro_usd: None,
            calls: None,
        };
        let decisions = Self {
            setup,
            callers: [PluginName::from("chat")],
            arguments: json!({ "path": "/notes/today.md", "text": "x".repeat(1_000) }),
            manifest: Manifest { asks, ..Manifest::default() },
            grants: Grants { model: Some(model), ..Grants::default() },
        };
        if decisions.decide() && decisions.require() {
            Ok(decisions)
        } else {
            Err(BenchError::Answer("it was not allowed".to_owned()))
        }
    }

    /// Decides a call over all rules, which allow it.
    pub(crate) fn decide(&self) -> bool {
        decide(
            black_box(&self.setup),
            black_box(&self.callers),
            black_box("notes.save"),
            black_box(&self.arguments),
        )
        .decide
            == Decide::Allow
    }

    /// Checks whether a capability was granted, which it was.
    pub(crate) fn require(&self) -> bool {
        let rights = Rights {
            plugin: "chat",
            manifest: &self.manifest,
            grants: &self.grants,
            narrowed: None,
        };
        black_box(rights)
            .require(black_box(Capability::Model), black_box("default"), || None)
            .is_ok()
    }
}
