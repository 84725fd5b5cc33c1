//! The context of an approval: the setup with the rules written during the run, and the config
//! file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::permissions::grants::FileMode;
use conclave_core::permissions::policy_rules::Decide;
use conclave_core::policy::decision::{DecisionSource, derived};
use conclave_core::policy::permit::{self, Permit};
use conclave_core::setup::{PluginSetup, Setup};
use conclave_core::tool_calls::arguments::{Wrong, check};
use conclave_core::types::approval::ApprovalRequest;
use conclave_core::types::ids::PluginName;
use conclave_runtime::Prepared;
use serde_json::Value;

use super::always;
use crate::program::error::CliError;
use crate::ui::show::printable;

/// The plugin that executes the call or action, with its setup.
pub(crate) type Performer = (PluginName, Arc<PluginSetup>);

/// The action's executor, or the tool's plugin.
pub(crate) fn plugin_of(setup: &Setup, request: &ApprovalRequest) -> Option<Performer> {
    let of_tool = || request.tool.split_once('.').map(|(plugin, _)| plugin);
    let name = request.executor.as_ref().map(PluginName::as_str).or_else(of_tool)?;
    setup.plugins.get_key_value(name).map(|(name, plugin)| (name.clone(), Arc::clone(plugin)))
}

/// Returns what does not fit, in the words of an error of the command line.
fn wrong_words(wrong: &[Wrong]) -> String {
    let place =
        |path: &str| if path.is_empty() { "the whole".to_owned() } else { format!("`{path}`") };
    let wrong: Vec<String> =
        wrong.iter().map(|wrong| format!("{} {}", place(&wrong.path), wrong.reason)).collect();
    wrong.join("; ")
}

/// The setup and the config file that it comes from.
pub(crate) struct RequestContext {
    setup: Mutex<Arc<Setup>>,
    sources: BTreeMap<PluginName, String>,
    file: PathBuf,
}

impl RequestContext {
    pub(crate) fn new(prepared: &Prepared, file: &Path) -> Self {
        Self {
            setup: Mutex::new(Arc::clone(prepared.setup())),
            sources: prepared.sources().clone(),
            file: file.to_owned(),
        }
    }

    pub(super) fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn sources(&self) -> &BTreeMap<PluginName, String> {
        &self.sources
    }

    /// Returns why the call's tool does not take these arguments; `None` if it may.
    pub(super) fn unfit(&self, request: &ApprovalRequest, arguments: &Value) -> Option<String> {
        let setup = self.setup();
        let (_, tool) = setup.tool(&request.tool)?;
        check(&tool.input_schema, arguments).err().map(|wrong| wrong_words(&wrong))
    }

    /// The plugin that would execute the request.
    pub(super) fn plugin_of(&self, request: &ApprovalRequest) -> Option<Performer> {
        plugin_of(&self.setup(), request)
    }

    /// The rules that would allow the request.
    pub(super) fn leave(&self, request: &ApprovalRequest, is_exact: bool) -> Option<Permit> {
        permit::leave(&self.setup(), request, is_exact)
    }

    /// Whether `[a] always` can work: the config is a file with the rules of this run, and a rule
    /// can allow the call.
    pub(super) fn can_write(&self, request: &ApprovalRequest) -> bool {
        (self.leave(request, false).is_some() || self.leave(request, true).is_some())
            && always::has_same_policy(&self.file, &self.setup())
    }

    /// Writes the rules into the config, and applies them to this run. Returns the written lines,
    /// for display.
    pub(super) fn write(
        &self,
        request: &ApprovalRequest,
        is_exact: bool,
    ) -> Result<String, CliError> {
        let none = || CliError::usage("no rule can allow this call".to_owned());
        let leave = self.leave(request, is_exact).ok_or_else(none)?;
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, policy) = always::write(&self.file, &setup, &leave)?;
        *setup = Arc::new(Setup { policy, ..Setup::clone(&setup) });
        Ok(text)
    }

    /// The config lines that would make the question unnecessary.
    pub(super) fn missing(&self, request: &ApprovalRequest) -> Option<String> {
        let leave = self.leave(request, false).or_else(|| self.leave(request, true))?;
        let setup = self.setup();
        let before = leave.before.and_then(|index| setup.policy.get(index));
        let place =
            before.map(|rule| format!(", before the rule at {}", rule.source)).unwrap_or_default();
        let why = Self::why_text(&setup, request);
        let overlay = Self::overlay_text(&setup, request);
        let file = self.file.display().to_string();
        let (tool, rules) = (printable(&request.tool), leave.to_toml());
        Some(format!(
            "no user could be asked to approve {tool} ({}). To allow it, write into {}{place}:\n\n{rules}{overlay}",
            printable(&why),
            printable(&file)
        ))
    }

    /// The grant that makes the question unnecessary without a rule, if the host asks only because
    /// the tool's plugin may write folders.
    fn overlay_text(setup: &Setup, request: &ApprovalRequest) -> String {
        let decision = request.decide(setup, &request.arguments);
        let DecisionSource::Grants { plugin, setup } = decision.why else { return String::new() };
        let mut changed = PluginSetup::clone(setup);
        for grant in &mut changed.grants.files {
            if grant.mode == FileMode::ReadWrite {
                grant.mode = FileMode::Overlay;
            }
        }
        if derived(&changed) != Decide::Allow {
            return String::new();
        }
        format!(
            "\n\nOr let it write into an overlay, whose changes you read and apply: mode = \"overlay\" in [plugins.{plugin}] grants.files"
        )
    }

    /// The cause of the question: `notes may write notes/`, or `the rule at conclave.toml:49 asks`.
    fn why_text(setup: &Setup, request: &ApprovalRequest) -> String {
        let decision = request.decide(setup, &request.arguments);
        match decision.why {
            DecisionSource::Rule { rule, .. } => format!("the rule at {} requires it", rule.source),
            why => why.to_string(),
        }
    }
}

/// The error for `--arguments` that the schema of a tool refuses.
pub(crate) fn unfit_arguments(tool: &str, wrong: &[Wrong]) -> CliError {
    let wrong = wrong_words(wrong);
    CliError::usage(printable(&format!("--arguments do not fit {tool}: {wrong}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::{about, request};

    #[test]
    fn a_plugin_that_only_writes_folders_could_write_into_an_overlay() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("conclave.toml");
        let context = about(temp.path(), &file);
        let missing = context.missing(&request(json!({}))).expect("a rule would allow it");
        assert!(missing.contains("[[policy]]"), "{missing}");
        let overlay = "mode = \"overlay\" in [plugins.notes] grants.files";
        assert!(missing.ends_with(overlay), "{missing}");
    }

    #[test]
    fn where_a_rule_asks_an_overlay_is_no_remedy() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("conclave.toml");
        let config = "entry = \"desk\"\n[plugins.notes]\nsource = \"n.wasm\"\n[tasks.desk]\nagent = \"notes\"\n\
                      [[policy]]\ntool = \"notes.*\"\ndecide = \"ask\"\n";
        std::fs::write(&file, config).unwrap();
        let missing = about(temp.path(), &file).missing(&request(json!({})));
        let missing = missing.expect("a rule would allow it");
        assert!(missing.contains("requires it") && !missing.contains("overlay"), "{missing}");
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use conclave_core::config::Config;
    use conclave_core::permissions::grants::{FileGrant, FileMode, Grants};
    use conclave_core::permissions::manifest::{CONTRACT, CapabilityRequest, FORMAT, Manifest};
    use conclave_core::setup::{PluginFacts, PluginSetup, Provenance, Setup};
    use conclave_core::types::approval::{ApprovalCause, ApprovalRequest};
    use conclave_core::types::limits::RunLimits;
    use serde_json::{Value, json};

    use super::RequestContext;

    pub(in crate::approve) fn request(arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            task: "desk".into(),
            caller: "librarian".into(),
            led_by: Vec::new(),
            delegators: Vec::new(),
            executor: None,
            tool: "notes.save".into(),
            arguments,
            source: "conclave.toml:49".into(),
            causes: vec![ApprovalCause::Rule(0)],
            expires_ms: None,
            problem: None,
            risk: None,
            risk_reason: None,
        }
    }

    /// The context of a plugin `notes` that writes a folder, and of a config's rules.
    pub(in crate::approve) fn about(folder: &Path, file: &Path) -> RequestContext {
        let asks = [("files".to_owned(), CapabilityRequest::default())].into();
        let manifest = Manifest {
            format: FORMAT,
            name: "notes".into(),
            version: "0".into(),
            contract: CONTRACT.into(),
            asks,
            ..Manifest::default()
        };
        let facts = PluginFacts {
            manifest,
            kinds: [].into(),
            tools: Vec::new(),
            sha256: "00".into(),
            mcp: false,
            server: String::new(),
            confinement: None,
            provenance: Provenance::default(),
        };
        let dir = folder.to_string_lossy().into_owned();
        let files = vec![FileGrant {
            dir,
            display_path: "./notes".into(),
            at: "/notes".into(),
            mode: FileMode::ReadWrite,
            bytes: 1,
            files: 1,
        }];
        let grants = Grants { files, ..Grants::default() };
        let plugin = PluginSetup {
            facts,
            grants,
            limits: conclave_core::types::limits::PluginLimits::default(),
            config: json!({}),
        };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let policy = Config::parse(&file.display().to_string(), "", &text)
            .map(|config| config.policy)
            .unwrap_or_default();
        let setup = Setup {
            entry: "desk".into(),
            tasks: BTreeMap::new(),
            plugins: [("notes".into(), plugin.into())].into(),
            models: BTreeMap::new(),
            channels: Arc::default(),
            gates: Vec::new(),
            observers: Vec::new(),
            policy,
            policy_now: None,
            limits: RunLimits::default(),
        };
        RequestContext {
            setup: Mutex::new(Arc::new(setup)),
            sources: BTreeMap::new(),
            file: PathBuf::from(file),
        }
    }
}
