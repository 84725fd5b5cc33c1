//! The host's services for a native call while it runs: log, settings and models. The host does not
//! see actions by the program's own means.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::permissions::grants::Rights;
use conclave_core::protocol::call_log::{Before, CallLog};
use conclave_core::setup::PluginSetup;
use conclave_core::types::capability::Capability;
use conclave_core::types::completion::{Completion, ModelError, ModelRequest};
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::fault::CallReport;
use conclave_core::types::ids::{CallId, Millis, PluginName, RoomId};
use conclave_core::types::tool::{NestedAnswer, NestedCall, NestedError};
use serde_json::Value;

use super::failure::ModelCallFailure;
use crate::calls::{CallStart, ModelPort, Observer, Proof, SignaturePort, ToolPort};
use crate::imports::call::log::LogBook;
use crate::observe::subscribe::Level;

/// The host's side of one call. Cloning is cheap. After the end of the call its methods have no
/// effect.
#[derive(Clone)]
pub struct CallAccess(Arc<AccessState>);

struct AccessState {
    room: RoomId,
    call: CallId,
    plugin: PluginName,
    now: Millis,
    setup: Arc<PluginSetup>,
    trace: Arc<CallLog>,
    models: Arc<dyn ModelPort>,
    tools: Arc<dyn ToolPort>,
    signatures: Arc<dyn SignaturePort>,
    observer: Arc<dyn Observer>,
    book: LogBook,
    requests: AtomicU32,
    tool_requests: AtomicU32,
    denials: Mutex<Vec<DenialRecord>>,
    is_over: AtomicBool,
}

impl CallAccess {
    pub(super) fn new(start: CallStart, setup: Arc<PluginSetup>) -> Self {
        // Unused fields are named, so that a new field causes a compile error here.
        let CallStart {
            room,
            secret: _,
            call,
            plugin,
            setup: in_room,
            now,
            scratch: _,
            trace,
            task: _,
            models,
            tools,
            effects: _,
            signatures,
            observer,
        } = start;
        // A resumed room can have less than the config grants.
        let setup = in_room.unwrap_or(setup);
        let book = LogBook::new(call, Arc::clone(&observer), setup.limits.log);
        let (requests, tool_requests) = (AtomicU32::new(0), AtomicU32::new(0));
        let (denials, is_over) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(AccessState {
            room,
            call,
            plugin,
            now,
            setup,
            trace,
            models,
            tools,
            signatures,
            observer,
            book,
            requests,
            tool_requests,
            denials,
            is_over,
        }))
    }

    /// The room of the call.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.0.room
    }

    /// The number of the call, which is unique in its room.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.0.call
    }

    /// The plugin's name in the config.
    #[must_use]
    pub fn plugin(&self) -> &PluginName {
        &self.0.plugin
    }

    /// The time of the run's clock when the call began.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.0.now
    }

    /// The plugin's settings: the operator's `config` with defaults filled in, an object.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.0.setup.config
    }

    /// Whether a request to a channel comes from its service: the host has the secret. Outside the
    /// reading of a request no proof is valid.
    #[must_use]
    pub fn verify(&self, proof: &Proof) -> bool {
        !self.is_over() && self.0.signatures.verify(proof)
    }

    /// Writes a line to the plugin's log, until its volume (`limits.log`) is used up. Control
    /// characters are escaped.
    pub fn log(&self, level: Level, message: &str) {
        if !self.is_over() {
            self.0.book.line(level, message);
        }
    }

    /// Reports the progress of the call. It shares the volume of the log.
    pub fn progress(&self, completed: u64, total: Option<u64>, message: &str) {
        if !self.is_over() {
            self.0.book.progress(completed, total, message);
        }
    }

    /// Sends a request to a model. The plugin needs the `model` grant, and the budgets of grant and
    /// run apply. Dropping the future abandons the request.
    ///
    /// # Errors
    /// Returns the error of the room or of the model's client: denied, budget exhausted, unknown,
    /// too long or unavailable.
    pub async fn ask(&self, request: ModelRequest) -> Result<Completion, ModelCallFailure> {
        if self.is_over() {
            return Err(ModelCallFailure(ModelError::Other {
                message: "the call is over".to_owned(),
            }));
        }
        let plugin = &self.0.plugin;
        let model = request.model.as_deref().unwrap_or("default");
        let smallest = || Some(format!("[plugins.{plugin}] grants.model = [{model:?}]"));
        if let Err(record) = self.rights().require(Capability::Model, model, smallest) {
            let denial = record.denial.clone();
            self.refused(*record);
            return Err(ModelCallFailure(ModelError::Denied { denial }));
        }
        let ordinal = self.0.requests.fetch_add(1, Ordering::Relaxed);
        let before = self.0.trace.models.get(&ordinal).map(|logged| logged.before(&request));
        match before.unwrap_or(Before::New) {
            // A replayed answer, which was paid for in the first run.
            Before::Answered(answer) => answer.clone().map_err(ModelCallFailure),
            Before::New | Before::Open => {
                self.0.models.ask(self.0.call, ordinal, request).await.map_err(ModelCallFailure)
            }
            Before::Otherwise => {
                let message = format!(
                    "request {ordinal} of this call was another before the host stopped, so there is no answer to this one"
                );
                Err(ModelCallFailure(ModelError::Other { message }))
            }
        }
    }

    /// Calls a tool of the agent that called this one. The room decides about the call.
    pub(super) async fn call_tool(&self, call: NestedCall) -> NestedAnswer {
        let failed = |why: &str| Err(NestedError::Failed { message: why.to_owned() });
        if self.is_over() {
            return failed("the call is over");
        }
        let ordinal = self.0.tool_requests.fetch_add(1, Ordering::Relaxed);
        let calls = vec![call];
        let before = self.0.trace.tools.get(&ordinal).map(|logged| logged.before(&calls));
        let answers = match before.unwrap_or(Before::New) {
            Before::Answered(answers) => answers.clone(),
            Before::New | Before::Open => self.0.tools.ask(self.0.call, ordinal, calls).await,
            Before::Otherwise => {
                return failed(&format!(
                    "tool request {ordinal} of this call was another before the host stopped, so there is no answer to this one"
                ));
            }
        };
        answers.into_iter().next().unwrap_or_else(|| failed("the call has no answer"))
    }

    fn rights(&self) -> Rights<'_> {
        Rights {
            plugin: self.0.plugin.as_str(),
            manifest: &self.0.setup.facts.manifest,
            grants: &self.0.setup.grants,
            narrowed: None,
        }
    }

    /// Records a refusal that the host of the program gave in the course of this call, such as the
    /// proxy of a server.
    pub fn refused(&self, record: DenialRecord) {
        if self.is_over() {
            return;
        }
        let mut denials = self.0.denials.lock().unwrap_or_else(PoisonError::into_inner);
        // Each denial is recorded once, because a closure can repeat it ten thousand times.
        if !denials.contains(&record) {
            self.0.observer.denied(self.0.call, &record);
            denials.push(record);
        }
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }

    /// Ends the call and returns its usage and denials.
    pub(super) fn end(&self, wall_us: u64) -> CallReport {
        self.0.is_over.store(true, Ordering::Relaxed);
        let denials =
            std::mem::take(&mut *self.0.denials.lock().unwrap_or_else(PoisonError::into_inner));
        CallReport { wall_us, log_dropped: self.0.book.dropped(), denials, ..CallReport::default() }
    }
}

impl fmt::Debug for CallAccess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Access")
            .field("room", &self.0.room)
            .field("call", &self.0.call)
            .finish_non_exhaustive()
    }
}
