//! The server side of one connection: tool lists, calls, cancellation and questions. Other requests
//! of the protocol are refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conclave_core::protocol::event::Principal;
use conclave_core::types::approval::Approval;
use conclave_runtime::ids::{Ids, RandomIds};
use conclave_runtime::subscribe::Subscriber;
use conclave_runtime::{CallToolError, Caller, RoomHandle, RunOptions, ToolRun};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientResult, ElicitRequest, ElicitRequestParams,
    ElicitResult, ErrorCode, ErrorData, Implementation, InputRequest, InputRequests,
    InputRequiredResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use super::approval::{answer, can_ask, no_approver, question, refused};
use super::calling::{
    ClientQuestion, ClientQuestions, KEPT_FOR, RunStopper, SuspendedCalls, ToolCallGuard,
};
use super::progress::ProgressForwarder;
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
/// The key of the question where answers have keys.
const APPROVAL: &str = "approval";

/// The state of one client's service.
pub(super) struct Desk {
    service: Service,
    tools: BTreeMap<String, Offered>,
    at_once: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    recording: Arc<Semaphore>,
    suspended: SuspendedCalls,
    handles: Mutex<BTreeMap<u64, RoomHandle>>,
}

pub(super) struct Handler(pub(super) Arc<Desk>);

impl Desk {
    pub(super) fn new(service: Service) -> Result<Self, OfferError> {
        let tools = offered(&service.prepared, &service.selection)?;
        let tools = tools.into_iter().map(|tool| (tool.tool.name.to_string(), tool)).collect();
        let (at_once, queue) =
            (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(Semaphore::new(AT_ONCE + QUEUE)));
        Ok(Self {
            service,
            tools,
            at_once,
            queue,
            recording: Arc::new(Semaphore::new(RECORDING)),
            suspended: SuspendedCalls::default(),
            handles: Mutex::default(),
        })
    }

    /// Stops the running calls, and waits up to `grace` for them to end.
    pub(super) async fn close(&self, grace: Duration) {
        self.suspended.clear();
        for handle in self.handles.lock().unwrap_or_else(PoisonError::into_inner).values() {
            handle.stop("the client has gone");
        }
        // All permits are free only when every call has ended, and its records are durable.
        let all = u32::try_from(RECORDING).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(grace, self.recording.acquire_many(all)).await;
    }

    /// Starts a call, which runs until it is stopped or dropped.
    async fn start(
        self: &Arc<Self>,
        what: &ServedTool,
        arguments: Value,
        context: &RequestContext<RoleServer>,
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
        let options = self.options(asking, context);
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
                let run = tokio::spawn(async move {
                    let _recording = recording;
                    let (answer, answered) = oneshot::channel::<ToolRun>();
                    let passed_on = async {
                        let Ok(run) = answered.await else { return Some(sender) };
                        drop(queued);
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
        Ok(ToolCallGuard { result, handle, questions, place: Some(place), run })
    }

    fn options(&self, asking: ClientQuestions, context: &RequestContext<RoleServer>) -> RunOptions {
        let options = self.service.options.clone();
        let client =
            context.client_info().map(|client| display(&client.name, 60)).unwrap_or_default();
        let subscribers = match context.meta.get_progress_token() {
            Some(token) => options
                .subscribers
                .with(ProgressForwarder::new(context.peer.clone(), token) as Arc<dyn Subscriber>),
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
    async fn follow(
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
                        let name = unguessable();
                        self.suspended.keep(name.clone(), tool.to_owned(), going, place);
                        self.expire(name.clone());
                        return Ok(CallToolResponse::InputRequired(input_required(params, name)));
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
    match context.peer.send_request(ServerRequest::ElicitRequest(ElicitRequest::new(params))).await
    {
        Ok(ClientResult::ElicitResult(result)) => answer(&result),
        Ok(_) => refused("the client gave an answer of another kind"),
        Err(error) => refused(&format!(
            "the client could not ask its person: {}",
            display(&error.to_string(), 200)
        )),
    }
}

/// The question as a result, for clients that ask and call again.
fn input_required(params: ElicitRequestParams, name: String) -> InputRequiredResult {
    let mut requests = InputRequests::new();
    requests.insert(APPROVAL.to_owned(), InputRequest::Elicitation(ElicitRequest::new(params)));
    InputRequiredResult::new(Some(requests), Some(name))
}

fn unguessable() -> String {
    format!("{}{}", RandomIds.run(), RandomIds.run())
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.protocol_version = ProtocolVersion::LATEST;
        info.server_info = Implementation::new("conclave", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.0.tools.values().map(|tool| tool.tool.clone()).collect(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.get(name).map(|tool| tool.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let desk = &self.0;
        let Some(tool) = desk.tools.get(&*request.name) else {
            let known: Vec<&str> = desk.tools.keys().map(String::as_str).collect();
            let what = format!(
                "there is no tool {:?}; these are there: {}",
                display(&request.name, 80),
                known.join(", ")
            );
            return Err(ErrorData::invalid_params(what, None));
        };
        let going = match &request.request_state {
            None => {
                desk.start(
                    &tool.what,
                    Value::Object(request.arguments.unwrap_or_default()),
                    &context,
                )
                .await?
            }
            Some(name) => {
                // Taken out, so that an answer is used once.
                let suspended =
                    desk.suspended.take(name).filter(|waiting| waiting.tool == request.name);
                let waiting = suspended.ok_or_else(|| {
                    ErrorData::invalid_params("no call waits for this answer", None)
                })?;
                let response =
                    request.input_responses.and_then(|mut responses| responses.remove(APPROVAL));
                let response = response
                    .and_then(|response| serde_json::from_value::<ElicitResult>(response).ok());
                let approval = response.map_or_else(
                    || refused("the client gave no decision"),
                    |response| answer(&response),
                );
                let mut going = waiting.going;
                desk.resume(&mut going, &context).await;
                let _ = waiting.answer.send(approval);
                going
            }
        };
        let id = desk.enter(&going.handle);
        let followed = desk.follow(going, &request.name, &context).await;
        desk.leave(id);
        followed
    }
}

impl Desk {
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
            let Some(waiting) = desk.upgrade().and_then(|desk| desk.suspended.take(&name)) else {
                return;
            };
            let _ = waiting.answer.send(too_late());
            let mut going = waiting.going;
            let _ = tokio::time::timeout(STOPPING, &mut going.result).await;
        });
    }

    fn enter(&self, handle: &RoomHandle) -> u64 {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let id = handles.keys().next_back().map_or(0, |last| last + 1);
        handles.insert(id, handle.clone());
        id
    }

    fn leave(&self, id: u64) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
