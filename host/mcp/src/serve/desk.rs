//! The calls of one service: their start, their permits, their questions and their end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::protocol::event::Principal;
use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::Subscriber;
use conclave_runtime::{CallToolError, Caller, RoomHandle, RunOptions, ToolRun};
use rmcp::model::{
    CallToolResponse, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ErrorCode,
    ErrorData, InputRequest, InputRequests, InputRequiredResult, InputResponses, ResourceContents,
    ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};

use super::approval::{answer, can_ask, no_approver, question, refused};
use super::arguments::{ArgumentForm, Unfilled};
use super::calling::{
    ClientQuestion, ClientQuestions, KEPT_FOR, RunStopper, Suspended, SuspendedRequests,
    ToolCallGuard,
};
use super::prompts::Prompts;
use super::reports::{ReportForwarder, ReportRequest};
use super::resources::{Resources, Unread};
use super::tools::{Offered, ServedTool, offered};
use super::{OfferError, Service, outcome};
use crate::text::display;

/// Maximum concurrent calls of one client.
const AT_ONCE: usize = 16;
/// Maximum calls that wait for a permit besides.
const QUEUE: usize = 240;
/// Maximum calls whose records are not all durable, those with a result included.
const RECORDING: usize = 4_096;
/// Time for a stopped call to end.
const STOPPING: Duration = Duration::from_secs(2);
/// The key of an approval where answers have keys.
const APPROVAL: &str = "approval";
/// Maximum forms that one request leads to.
const FORMS: usize = 8;

/// The state of one client's service.
pub(super) struct Desk {
    service: Service,
    pub(super) tools: BTreeMap<String, Offered>,
    pub(super) prompts: Prompts,
    pub(super) resources: Resources,
    at_once: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    recording: Arc<Semaphore>,
    suspended: SuspendedRequests,
    handles: Mutex<BTreeMap<u64, RoomHandle>>,
}

impl Desk {
    pub(super) fn new(service: Service) -> Result<Self, OfferError> {
        let tools = offered(&service.prepared, &service.selection)?;
        let tools = tools.into_iter().map(|tool| (tool.tool.name.to_string(), tool)).collect();
        let prompts = Prompts::new(&service.prepared, &service.selection.prompts)?;
        let resources = Resources::new(
            service.selection.files.clone(),
            service.selection.runs,
            Arc::clone(&service.options.journals),
            Arc::clone(&service.blobs),
        );
        let (at_once, queue) =
            (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(AT_ONCE + QUEUE)));
        Ok(Self {
            service,
            tools,
            prompts,
            resources,
            at_once,
            queue,
            recording: Arc::new(Semaphore::new(RECORDING)),
            suspended: SuspendedRequests::default(),
            handles: Mutex::default(),
        })
    }

    /// Stops the running calls.
    pub(super) fn stop_calls(&self) {
        self.suspended.clear();
        for handle in self.handles.lock().unwrap_or_else(PoisonError::into_inner).values() {
            handle.stop("the client has gone");
        }
    }

    /// Stops the running calls, and waits up to `grace` for them to end.
    pub(super) async fn close(&self, grace: Duration) {
        self.stop_calls();
        // All permits are free only when every call has ended, and its records are durable.
        let all = u32::try_from(RECORDING).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(grace, self.recording.acquire_many(all)).await;
    }

    /// Starts a call, which runs until it is stopped or dropped.
    pub(super) async fn start(
        self: &Arc<Self>,
        what: &ServedTool,
        arguments: Value,
        (context, reports): (&RequestContext<RoleServer>, ReportRequest),
    ) -> Result<ToolCallGuard, ErrorData> {
        let busy = || {
            ErrorData::new(
                ErrorCode::INTERNAL_ERROR,
                format!("{} calls wait already", AT_ONCE + QUEUE),
                None,
            )
        };
        // The queue is bounded first, so that waiting for a permit is bounded too.
        let queued = self.queue.clone().try_acquire_owned().map_err(|_| busy())?;
        let place = self.at_once.clone().acquire_owned().await.map_err(|_| busy())?;
        let recording = self.recording.clone().acquire_owned().await.map_err(|_| busy())?;
        let (asking, questions) = ClientQuestions::new();
        let reports = ReportForwarder::new(context.peer.clone(), reports);
        let options = self.options(asking, context, reports.clone());
        let internal =
            |error: &dyn std::fmt::Display| ErrorData::internal_error(error.to_string(), None);
        let desk = Arc::clone(self);
        let (sender, result) = oneshot::channel();
        let (run, handle) = match what {
            ServedTool::Tool(name) => {
                let calling = self
                    .service
                    .prepared
                    .start_tool(Caller::Mcp, name, arguments, options)
                    .map_err(|error| match error {
                        CallToolError::TooLarge { .. } => {
                            ErrorData::invalid_params(error.to_string(), None)
                        }
                        error => internal(&error),
                    })?;
                let (handle, name) = (calling.handle(), name.clone());
                self.resources.add_run(handle.room());
                let id = handle.room().clone();
                let run = tokio::spawn(async move {
                    let _recording = recording;
                    let (answer, answered) = oneshot::channel::<ToolRun>();
                    let passed_on = async {
                        let Ok(run) = answered.await else { return Some(sender) };
                        drop(queued);
                        let objects = run.answer.as_ref().map(|outcome| &outcome.attachments);
                        desk.resources.add_objects(&id, objects.map_or(&[], Vec::as_slice));
                        let blobs = Arc::clone(&desk.service.blobs);
                        // Off the event loop, because attachments may be on a disk or a server.
                        let answer = move || outcome::of_tool(&name, run.answer, &*blobs);
                        match tokio::task::spawn_blocking(answer).await {
                            // The client may have gone.
                            Ok(result) => drop(sender.send(result)),
                            Err(error) => drop(sender.send(outcome::failed(error.to_string()))),
                        }
                        None
                    };
                    let (ended, unsent) = tokio::join!(calling.run(answer), passed_on);
                    if let (Err(error), Some(sender)) = (ended, unsent) {
                        drop(sender.send(outcome::failed(error.to_string())));
                    }
                });
                (run, handle)
            }
            ServedTool::Entry => {
                let message = match arguments.get("message") {
                    Some(Value::String(message)) => message.clone(),
                    _ => return Err(ErrorData::invalid_params("`message` must be a text", None)),
                };
                let run = self
                    .service
                    .prepared
                    .start(Some(message), options)
                    .map_err(|error| internal(&error))?;
                let handle = run.handle();
                self.resources.add_run(handle.room());
                let run = tokio::spawn(async move {
                    let (_queued, _recording) = (queued, recording);
                    let result = match run.outcome().await {
                        Ok(ended) => outcome::of_run(&ended, &*desk.service.blobs),
                        Err(error) => outcome::failed(error.to_string()),
                    };
                    drop(sender.send(result));
                });
                (run, handle)
            }
        };
        let run = RunStopper::new(run.abort_handle());
        Ok(ToolCallGuard { result, handle, questions, place: Some(place), run, reports })
    }

    fn options(
        &self,
        asking: ClientQuestions,
        context: &RequestContext<RoleServer>,
        reports: Option<Arc<ReportForwarder>>,
    ) -> RunOptions {
        let options = self.service.options.clone();
        let client =
            context.client_info().map(|client| display(&client.name, 60)).unwrap_or_default();
        let subscribers = match reports {
            Some(reports) => options.subscribers.with(reports as Arc<dyn Subscriber>),
            None => options.subscribers.clone(),
        };
        RunOptions {
            approver: Arc::new(asking),
            principal: Principal(format!("mcp {client}").trim().into()),
            subscribers,
            ..options
        }
    }

    /// Follows a call to its end, or to a question that the client must return with.
    pub(super) async fn follow(
        self: &Arc<Self>,
        mut going: ToolCallGuard,
        tool: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        loop {
            tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    going.handle.stop("the client cancelled the call");
                    let _ = tokio::time::timeout(STOPPING, &mut going.result).await;
                    return Err(ErrorData::new(ErrorCode::INTERNAL_ERROR, "cancelled", None));
                }
                ended = &mut going.result => {
                    going.run.release();
                    if let Some(reports) = &going.reports {
                        reports.flush().await;
                    }
                    let stopped = |_| ErrorData::internal_error("the call was stopped", None);
                    return ended.map(CallToolResponse::Complete).map_err(stopped);
                }
                Some(ClientQuestion { request, answer: place }) = going.questions.recv() => {
                    let params = can_ask(context.client_capabilities().as_ref()).then(|| question(&request)).flatten();
                    let Some(params) = params else {
                        let _ = place.send(no_approver());
                        continue;
                    };
                    // Other calls may run while the user decides.
                    going.place = None;
                    // Without a handshake the server cannot send requests, so the client has to
                    // come back.
                    if context.protocol_version().is_some_and(|version| !version.has_initialize()) {
                        let call = Suspended::Call { going: Box::new(going), answer: place };
                        let name = self.suspend(tool, call);
                        self.expire(name.clone());
                        let required = input_required(APPROVAL, params, name);
                        return Ok(CallToolResponse::InputRequired(required));
                    }
                    let approval = tokio::select! {
                        biased;
                        () = context.ct.cancelled() => refused("the client cancelled the call"),
                        approval = tokio::time::timeout(KEPT_FOR, ask(context, params)) => approval.unwrap_or_else(|_| too_late()),
                    };
                    // The permit comes first: with the answer the call starts to run.
                    self.resume(&mut going, context).await;
                    let _ = place.send(approval);
                }
            }
        }
    }
}

/// The refusal after the time limit of a question.
fn too_late() -> Approval {
    refused(&format!("nobody decided within {} minutes", KEPT_FOR.as_secs() / 60))
}

/// Asks the client's user, if the protocol lets servers ask.
async fn ask(context: &RequestContext<RoleServer>, params: ElicitRequestParams) -> Approval {
    match elicit(context, params).await {
        Ok(result) => answer(&result),
        Err(why) => refused(&why),
    }
}

/// The answer of the client's user, or why there is none.
async fn elicit(
    context: &RequestContext<RoleServer>,
    params: ElicitRequestParams,
) -> Result<ElicitResult, String> {
    match context.peer.send_request(ServerRequest::ElicitRequest(ElicitRequest::new(params))).await
    {
        Ok(ClientResult::ElicitResult(result)) => Ok(result),
        Ok(_) => Err("the client gave an answer of another kind".to_owned()),
        Err(error) => Err(format!(
            "the client could not ask its person: {}",
            display(&error.to_string(), 200)
        )),
    }
}

/// The question as a result, for clients that ask and call again.
fn input_required(key: &str, params: ElicitRequestParams, name: String) -> InputRequiredResult {
    let mut requests = InputRequests::new();
    requests.insert(key.to_owned(), InputRequest::Elicitation(ElicitRequest::new(params)));
    InputRequiredResult::new(Some(requests), Some(name))
}

fn unguessable() -> String {
    format!("{}{}", RandomIds.run(), RandomIds.run())
}

/// The arguments of a request, as far as its client's person has filled them in.
pub(super) enum Filled {
    Arguments(Map<String, Value>),
    /// The client has to return with an answer.
    InputRequired(InputRequiredResult),
    Refused,
}

impl Desk {
    /// Asks for the arguments that `name` requires and a request was sent without. Those that cannot
    /// be asked for stay missing. `answers` are those that the request was sent with.
    pub(super) async fn fill(
        &self,
        name: &str,
        schema: &Map<String, Value>,
        mut arguments: Map<String, Value>,
        mut answers: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Filled {
        for _ in 0..FORMS {
            let Some(form) = ArgumentForm::next(name, schema, &arguments) else { break };
            let sent = answers.remove(&form.key);
            let sent = sent.and_then(|sent| serde_json::from_value::<ElicitResult>(sent).ok());
            match sent.map(|sent| form.add(&sent, &mut arguments)) {
                Some(Ok(())) => continue,
                Some(Err(Unfilled::Refused)) => return Filled::Refused,
                Some(Err(Unfilled::Incomplete)) | None => {}
            }
            if !can_ask(context.client_capabilities().as_ref()) {
                break;
            }
            if context.protocol_version().is_some_and(|version| !version.has_initialize()) {
                let state = self.suspend(name, Suspended::Arguments(arguments));
                let required = input_required(&form.key, form.question, state);
                return Filled::InputRequired(required);
            }
            let elicited = tokio::select! {
                biased;
                () = context.ct.cancelled() => return Filled::Refused,
                elicited = tokio::time::timeout(KEPT_FOR, elicit(context, form.question.clone())) => elicited,
            };
            let Ok(Ok(elicited)) = elicited else { return Filled::Refused };
            if form.add(&elicited, &mut arguments) == Err(Unfilled::Refused) {
                return Filled::Refused;
            }
        }
        Filled::Arguments(arguments)
    }

    /// Keeps a request that its client has to return with, under the returned name.
    fn suspend(&self, of: &str, what: Suspended) -> String {
        let name = unguessable();
        self.suspended.keep(name.clone(), of.to_owned(), what);
        name
    }

    /// Takes the request behind the state that a client returns with. An answer is used once.
    pub(super) fn take(&self, state: &str, of: &str) -> Result<Suspended, ErrorData> {
        let suspended = self.suspended.take(state).filter(|waiting| waiting.of == of);
        let none = || ErrorData::invalid_params("no call waits for this answer", None);
        Ok(suspended.ok_or_else(none)?.what)
    }

    /// Passes the decision of a client's person to the call that waits for it.
    pub(super) async fn decide(
        &self,
        mut going: ToolCallGuard,
        place: oneshot::Sender<Approval>,
        mut answers: InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> ToolCallGuard {
        let sent = answers.remove(APPROVAL);
        let sent = sent.and_then(|sent| serde_json::from_value::<ElicitResult>(sent).ok());
        let approval =
            sent.map_or_else(|| refused("the client gave no decision"), |sent| answer(&sent));
        self.resume(&mut going, context).await;
        let _ = place.send(approval);
        going
    }

    /// Reads a resource, and reports that to the operator.
    pub(super) async fn read(&self, uri: &str) -> Result<ResourceContents, Unread> {
        let read = self.resources.read(uri).await;
        self.report_read(uri, read.as_ref().err());
        read
    }

    /// Reports a read or its refusal to the operator.
    pub(super) fn report_read(&self, uri: &str, refusal: Option<&Unread>) {
        let Some(reads) = &self.service.reads else { return };
        let refusal = refusal.map(|why| match why {
            Unread::NotServed => "it is not served",
            Unread::Failed(why) => why.as_str(),
        });
        reads.on_read(&display(uri, 200), refusal);
    }

    /// Whether missing arguments of a tool are asked for.
    pub(super) fn asks_for_arguments(&self, tool: &ServedTool) -> bool {
        let ServedTool::Tool(name) = tool else { return false };
        self.service.selection.asked_arguments.iter().any(|pattern| pattern.covers(name))
    }

    /// Waits for a permit again after the user has decided. A cancelled call continues without one,
    /// to its end.
    async fn resume(&self, going: &mut ToolCallGuard, context: &RequestContext<RoleServer>) {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {}
            place = self.at_once.clone().acquire_owned() => going.place = place.ok(),
        }
    }

    /// Refuses a call whose client did not return in time, so that its journal records the end.
    fn expire(self: &Arc<Self>, name: String) {
        let desk = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT_FOR).await;
            let waiting = desk.upgrade().and_then(|desk| desk.suspended.take(&name));
            let Some(Suspended::Call { mut going, answer }) = waiting.map(|waiting| waiting.what)
            else {
                return;
            };
            let _ = answer.send(too_late());
            let _ = tokio::time::timeout(STOPPING, &mut going.result).await;
        });
    }

    pub(super) fn enter(&self, handle: &RoomHandle) -> u64 {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let id = handles.keys().next_back().map_or(0, |last| last + 1);
        handles.insert(id, handle.clone());
        id
    }

    pub(super) fn leave(&self, id: u64) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
