//! The kinds of plugin. `kinds!` declares the export of each, which is looked up once for a
//! component; [`ExportCall`] calls its functions, and converts their answers to the core's types.
//! The kinds themselves are the core's [`PluginKind`].

use conclave_core::setup::plugin_query::{PluginQuery, PluginReply};
use conclave_core::types::delivery::Wake;
use conclave_core::types::fault::Fault;
use conclave_core::types::plugin_kind::PluginKind;
use conclave_core::types::tool::ToolError;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

use super::{Inspection, LoadError};
use crate::calls::PluginOutput;
use crate::imports::bindings::exports::conclave::plugin as bindings;
use crate::imports::convert::queries::{
    checked, condensation_in, ending_out, gate_input_out, gate_verdict_in, judged_out,
    memories_limit, observed_out, observer_reply_in, reason_out, ruling_in, task_result_in,
    verdict_in,
};
use crate::imports::convert::{
    action_out, channel_delivery_in, channel_message_out, channel_reception_in,
    channel_request_out, decision_in, outcome_in, tool_error_in, turn_in, wake_out,
};
use crate::imports::interfaces::judge_feedback::JudgeFeedback;
use crate::imports::state::CallState;
use crate::sandbox::plain::{Excess, FunctionDocs, PlainTool, PlainTools};
use crate::sandbox::run::GuestCall;
use crate::support::escape::excerpt;

/// Declares each kind with its module of the bindings, and says whether the plugin reads the view
/// of a task. The bindings have types of their own for each export, and no trait that joins them.
macro_rules! kinds {
    ($($kind:ident: $interface:ident { reads_view: $reads_view:literal },)*) => {
        /// The exports of the contract that a component has; `None` for those that it lacks.
        #[derive(Default)]
        pub(crate) struct Exports {
            $($interface: Option<bindings::$interface::GuestIndices>,)*
            plain: Option<PlainTools>,
        }

        impl Exports {
            fn of_contract(
                code: &InstancePre<CallState>,
                inspection: &Inspection,
            ) -> wasmtime::Result<Self> {
                let mut exports = Self::default();
                for kind in &inspection.kinds {
                    match kind {
                        $(PluginKind::$kind => {
                            let indices = bindings::$interface::GuestIndices::new(code)?;
                            exports.$interface = Some(indices);
                        })*
                    }
                }
                Ok(exports)
            }

            /// Checks that every export has the contract's type.
            pub(super) fn check_types(
                &self,
                store: &mut Store<CallState>,
                instance: &Instance,
            ) -> wasmtime::Result<()> {
                $(if let Some(indices) = &self.$interface {
                    indices.load(&mut *store, instance)?;
                })*
                Ok(())
            }

            /// Whether the component exports the interface of a kind. Functions that are served as
            /// tools are no such export.
            pub(crate) fn has(&self, kind: PluginKind) -> bool {
                match kind {
                    $(PluginKind::$kind => self.$interface.is_some(),)*
                }
            }
        }

        /// Whether a plugin of a kind reads the view of a task to answer a query.
        pub(crate) fn reads_view(kind: PluginKind) -> bool {
            match kind {
                $(PluginKind::$kind => $reads_view,)*
            }
        }
    };
}

kinds! {
    Agent: agent { reads_view: true },
    Responder: responder { reads_view: true },
    Memory: memory { reads_view: false },
    Tools: tools { reads_view: false },
    DeliveryStrategy: delivery_strategy { reads_view: false },
    SecurityAnalyzer: security_analyzer { reads_view: true },
    Condenser: condenser { reads_view: true },
    Gate: gate { reads_view: false },
    Judge: judge { reads_view: true },
    SimulatedUser: simulated_user { reads_view: true },
    Observer: observer { reads_view: false },
    Channel: channel { reads_view: false },
}

impl Exports {
    /// Looks up the exports of a component.
    ///
    /// # Errors
    /// `Types` if one of the contract lacks a function. For a component that is not built for the
    /// contract, `Budget` if its functions and their types are too many, and `NothingExported` if
    /// none of them can be a tool.
    pub(super) fn find(
        code: &InstancePre<CallState>,
        inspection: &Inspection,
        docs: &FunctionDocs,
    ) -> Result<Self, LoadError> {
        if !inspection.is_plain {
            return Self::of_contract(code, inspection)
                .map_err(|error| LoadError::Types(excerpt(&format!("{error:#}"), 600)));
        }
        let plain = PlainTools::find(code.component(), docs)
            .map_err(|Excess { what, limit }| LoadError::Budget { what, limit })?;
        if plain.is_empty() {
            let mut reasons = plain.unserved.join("; ");
            if !reasons.is_empty() {
                reasons.insert_str(0, ": ");
            }
            return Err(LoadError::NothingExported(excerpt(&reasons, 600)));
        }
        Ok(Self { plain: Some(plain), ..Self::default() })
    }

    pub(crate) fn plain(&self) -> Option<&PlainTools> {
        self.plain.as_ref()
    }

    pub(super) fn tools(&self) -> Option<&bindings::tools::GuestIndices> {
        self.tools.as_ref()
    }
}

/// Calls a function of an export and checks the lists of its answer. A component without the export
/// is not instantiated, because its caller asks [`Exports::has`] before.
macro_rules! call {
    (
        $exports:ident.$interface:ident.$function:ident($($argument:expr),*)
        in $store:ident, $instance:ident
    ) => {{
        let Some(indices) = &$exports.$interface else {
            return Err(wasmtime::Error::msg(concat!("no export ", stringify!($interface))));
        };
        let export = indices.load(&mut *$store, $instance)?;
        let answer = export.$function(&mut *$store, $($argument),*).await?;
        $store.data().core.meter.check_lists(&answer)?;
        answer
    }};
}

/// A function of a component, with its arguments. A task or a room is not among them: the guest
/// reads it through imports.
pub(crate) enum GuestFunction<'a> {
    Step,
    Respond,
    Tool { name: String, arguments: String },
    Plain { tool: &'a PlainTool, arguments: String },
    Query(PluginQuery),
    Decide(Wake),
}

/// The call of a function of these exports.
pub(crate) struct ExportCall<'a> {
    pub(crate) exports: &'a Exports,
    pub(crate) function: GuestFunction<'a>,
}

impl GuestCall for ExportCall<'_> {
    type Answer = PluginOutput;

    async fn run(
        &self,
        store: &mut Store<CallState>,
        instance: &Instance,
    ) -> wasmtime::Result<PluginOutput> {
        let exports = self.exports;
        Ok(match &self.function {
            GuestFunction::Step => {
                let answer = call!(exports.agent.call_step() in store, instance);
                let turn = answer.map_err(Fault::from).and_then(turn_in);
                PluginOutput::Step(turn.map(|turn| store.data_mut().blobs().own_turn(turn)))
            }
            GuestFunction::Respond => {
                let answer = call!(exports.responder.call_respond() in store, instance);
                let turn =
                    answer.map_err(Fault::from).and_then(|turn| turn.map(turn_in).transpose());
                let own = |turn| store.data_mut().blobs().own_turn(turn);
                PluginOutput::Respond(turn.map(|turn| turn.map(own)))
            }
            GuestFunction::Tool { name, arguments } => {
                let answer = call!(exports.tools.call_call(name, arguments) in store, instance);
                PluginOutput::Tool(match answer {
                    Ok(outcome) => outcome_in(outcome)
                        .map(|outcome| store.data_mut().blobs().own_outcome(outcome))
                        .map_err(|fault| ToolError::Fault { fault }),
                    Err(error) => Err(store.data().core.refusals.own_error(tool_error_in(error))),
                })
            }
            GuestFunction::Plain { tool, arguments } => {
                PluginOutput::Tool(tool.call(store, instance, arguments).await?)
            }
            GuestFunction::Query(query) => {
                let reply = ask(exports, query, store, instance).await?;
                let limit = memories_limit(query);
                PluginOutput::Query(reply.and_then(|reply| checked(reply, limit)))
            }
            GuestFunction::Decide(wake) => {
                let wake = wake_out(wake);
                let answer = call!(exports.delivery_strategy.call_decide(&wake) in store, instance);
                let decisions = answer.map(|all| all.into_iter().map(decision_in).collect());
                PluginOutput::Decide(decisions.map_err(Fault::from))
            }
        })
    }
}

/// Asks the export that answers a query. The sizes of its reply are not checked yet.
async fn ask(
    exports: &Exports,
    query: &PluginQuery,
    store: &mut Store<CallState>,
    instance: &Instance,
) -> wasmtime::Result<Result<PluginReply, Fault>> {
    Ok(match query {
        PluginQuery::Memories { query, limit } => {
            call!(exports.memory.call_search(query, *limit) in store, instance)
                .map(|memories| PluginReply::Memories { memories })
                .map_err(Fault::from)
        }
        PluginQuery::Risk { action, thought } => {
            let action = action_out(action);
            call!(exports.security_analyzer.call_assess(&action, thought) in store, instance)
                .map(|verdict| PluginReply::Risk { verdict: verdict_in(verdict) })
                .map_err(Fault::from)
        }
        PluginQuery::Condense { reason } => {
            call!(exports.condenser.call_condense(reason_out(*reason)) in store, instance)
                .map(|condensation| condensation.map(condensation_in))
                .map(|condensation| PluginReply::Condense { condensation })
                .map_err(Fault::from)
        }
        PluginQuery::Gate { input } => {
            call!(exports.gate.call_check(&gate_input_out(input)) in store, instance)
                .map(|verdict| PluginReply::Gate { verdict: gate_verdict_in(verdict) })
                .map_err(Fault::from)
        }
        PluginQuery::Rule { answer } => {
            store.data_mut().feedback = JudgeFeedback::Open(None);
            let ruling = call!(exports.judge.call_rule(&judged_out(answer)) in store, instance);
            let feedback = store.data_mut().feedback.take();
            ruling
                .map(|ruling| PluginReply::Rule { ruling: ruling_in(ruling, feedback) })
                .map_err(Fault::from)
        }
        PluginQuery::Conclude { ending } => {
            call!(exports.judge.call_conclude(&ending_out(ending)) in store, instance)
                .map_err(Fault::from)
                .and_then(|result| result.map(task_result_in).transpose())
                .map(|result| PluginReply::Conclude { result })
        }
        PluginQuery::AnswerAsUser { prompt } => {
            call!(exports.simulated_user.call_answer(prompt) in store, instance)
                .map(|text| PluginReply::AnswerAsUser { text })
                .map_err(Fault::from)
        }
        PluginQuery::Observe { events } => {
            let events: Vec<_> = events.iter().map(observed_out).collect();
            observer_reply_in(call!(exports.observer.call_observe(&events) in store, instance))
                .map(|reply| PluginReply::Observe { reply })
        }
        PluginQuery::Deliver { message } => {
            call!(exports.channel.call_send(&channel_message_out(message)) in store, instance)
                .map_err(Fault::from)
                .and_then(channel_delivery_in)
                .map(|delivery| PluginReply::Deliver { delivery })
        }
        PluginQuery::Receive { request } => {
            call!(exports.channel.call_received(&channel_request_out(request)) in store, instance)
                .map_err(Fault::from)
                .and_then(channel_reception_in)
                .map(|reception| PluginReply::Receive { reception })
        }
    })
}
