//! The server side of one connection: what it offers, and the requests of the protocol. Those that a
//! client was not offered are refused.

#![expect(
    deprecated,
    reason = "clients of the revisions before 2026-07-28 set a level of logs, and subscribe to one resource at a time"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CompletionInfo,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingLevel, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Reference, ResourceUpdatedNotification,
    ResourceUpdatedNotificationParam, ResourcesCapability, ServerCapabilities, ServerConfig,
    ServerNotification, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::arguments::refusal;
use super::calling::Suspended;
use super::desk::{Desk, Filled};
use super::outcome;
use super::reports::ReportRequest;
use super::resources::{Unread, Watch};
use crate::text::display;

/// Maximum resources that one client subscribes to.
const SUBSCRIPTIONS: usize = 64;

/// The service of one connection.
pub(super) struct Handler {
    desk: Arc<Desk>,
    /// The least severe level of log lines that the client wants; `None` until it sets one.
    least: Mutex<Option<LoggingLevel>>,
    /// The watches of resources, by their addresses.
    watches: Mutex<BTreeMap<String, AbortHandle>>,
}

impl Handler {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { desk, least: Mutex::default(), watches: Mutex::default() }
    }

    /// The reports that a request wants. Since 2026-07-28 each request names its level.
    fn reports(&self, context: &RequestContext<RoleServer>) -> ReportRequest {
        let is_own = context.protocol_version().is_some_and(|version| !version.has_initialize());
        let of_client = || *self.least.lock().unwrap_or_else(PoisonError::into_inner);
        let least = if is_own { context.meta.log_level() } else { of_client() };
        ReportRequest { progress: context.meta.get_progress_token(), least }
    }

    fn unknown_tool(&self, name: &str) -> ErrorData {
        let known: Vec<&str> = self.desk.tools.keys().map(String::as_str).collect();
        let what = format!(
            "there is no tool {:?}; these are there: {}",
            display(name, 80),
            known.join(", ")
        );
        ErrorData::invalid_params(what, None)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        watches.values().for_each(AbortHandle::abort);
    }
}

/// The refusal of a request that the capabilities do not have.
fn not_offered(method: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
}

fn not_read(uri: &str, why: Unread) -> ErrorData {
    let data = Some(json!({ "uri": uri }));
    match why {
        Unread::NotServed => {
            ErrorData::resource_not_found("nothing is served at this address", data)
        }
        Unread::Failed(why) => ErrorData::internal_error(why, data),
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(Default::default());
        capabilities.logging = Some(Default::default());
        if !self.desk.prompts.is_empty() {
            capabilities.prompts = Some(Default::default());
        }
        if self.desk.resources.is_served() {
            let mut resources = ResourcesCapability::default();
            resources.subscribe = Some(true);
            capabilities.resources = Some(resources);
        }
        if capabilities.prompts.is_some() || capabilities.resources.is_some() {
            capabilities.completions = Some(Default::default());
        }
        let mut info = ServerConfig::new(capabilities);
        info.protocol_version = ProtocolVersion::LATEST;
        info.server_info = Implementation::new("conclave", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.least.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(
            self.desk.tools.values().map(|tool| tool.tool.clone()).collect(),
        ))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.desk.tools.get(name).map(|tool| tool.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let desk = &self.desk;
        let name = &*request.name;
        let tool = desk.tools.get(name).ok_or_else(|| self.unknown_tool(name))?;
        let mut arguments = request.arguments.unwrap_or_default();
        let answers = request.input_responses.unwrap_or_default();
        let suspended = match &request.request_state {
            Some(state) => Some(desk.take(state, name)?),
            None => None,
        };
        let going = match suspended {
            Some(Suspended::Call { going, answer }) => {
                desk.decide(*going, answer, answers, &context).await
            }
            other => {
                if let Some(Suspended::Arguments(pending)) = other {
                    arguments = pending;
                }
                if desk.asks_for_arguments(&tool.what) {
                    let schema = &tool.tool.input_schema;
                    match desk.fill(name, schema, arguments, answers, &context).await {
                        Filled::Arguments(filled) => arguments = filled,
                        Filled::InputRequired(required) => {
                            return Ok(CallToolResponse::InputRequired(required));
                        }
                        Filled::Refused => return Ok(outcome::failed(refusal(name).into()).into()),
                    }
                }
                let reports = self.reports(&context);
                desk.start(&tool.what, Value::Object(arguments), (&context, reports)).await?
            }
        };
        let id = desk.enter(&going.handle);
        let followed = desk.follow(going, &request.name, &context).await;
        desk.leave(id);
        followed
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        if self.desk.prompts.is_empty() {
            return Err(not_offered("prompts/list"));
        }
        Ok(ListPromptsResult::with_all_items(self.desk.prompts.list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let (desk, name) = (&self.desk, &*request.name);
        let unknown = || {
            ErrorData::invalid_params(format!("there is no prompt {:?}", display(name, 80)), None)
        };
        let schema = desk.prompts.schema(name).ok_or_else(unknown)?;
        let mut arguments = request.arguments.unwrap_or_default();
        if let Some(state) = &request.request_state
            && let Suspended::Arguments(pending) = desk.take(state, name)?
        {
            arguments = pending;
        }
        let answers = request.input_responses.unwrap_or_default();
        let arguments = match desk.fill(name, schema, arguments, answers, &context).await {
            Filled::Arguments(filled) => filled,
            Filled::InputRequired(required) => return Ok(required.into()),
            Filled::Refused => return Err(ErrorData::invalid_params(refusal(name), None)),
        };
        let filled = desk.prompts.fill(name, arguments, desk).await;
        Ok(filled.ok_or_else(unknown)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        if !self.desk.resources.is_served() {
            return Err(not_offered("resources/list"));
        }
        Ok(ListResourcesResult::with_all_items(self.desk.resources.list()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        if !self.desk.resources.is_served() {
            return Err(not_offered("resources/templates/list"));
        }
        Ok(ListResourceTemplatesResult::with_all_items(self.desk.resources.templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = self.desk.read(&request.uri).await;
        let contents = contents.map_err(|why| not_read(&request.uri, why))?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        if !self.desk.resources.serves(&uri) {
            self.desk.report_read(&uri, Some(&Unread::NotServed));
            return Err(not_read(&uri, Unread::NotServed));
        }
        let desk = Arc::clone(&self.desk);
        let mut watch = Watch::new(&desk.resources, std::slice::from_ref(&uri)).await;
        let peer = context.peer;
        let notify = async move {
            loop {
                for uri in watch.changed(&desk.resources).await {
                    let update = ResourceUpdatedNotificationParam::new(uri);
                    if peer.notify_resource_updated(update).await.is_err() {
                        return;
                    }
                }
            }
        };
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if watches.len() >= SUBSCRIPTIONS && !watches.contains_key(&uri) {
            let what = format!("a client can subscribe to {SUBSCRIPTIONS} resources");
            return Err(ErrorData::invalid_params(what, None));
        }
        let watching = tokio::spawn(notify);
        if let Some(before) = watches.insert(uri, watching.abort_handle()) {
            before.abort();
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = watches.remove(&request.uri) {
            watch.abort();
        }
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let resources = &self.desk.resources;
        let addresses = requested.resource_subscriptions.as_ref().map(|addresses| {
            let served = addresses.iter().filter(|uri| resources.serves(uri));
            served.take(SUBSCRIPTIONS).cloned().collect::<Vec<_>>()
        });
        let mut accepted = SubscriptionFilter::new();
        accepted.resource_subscriptions = addresses;
        resources.is_served().then_some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let addresses = context.accepted().resource_subscriptions.clone().unwrap_or_default();
        let resources = &self.desk.resources;
        let mut watch = Watch::new(resources, &addresses).await;
        loop {
            let changed = tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = watch.changed(resources) => changed,
            };
            for uri in changed {
                let update = ResourceUpdatedNotificationParam::new(uri);
                let update = ResourceUpdatedNotification::new(update);
                let update = ServerNotification::ResourceUpdatedNotification(update);
                if context.sink().send(update).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let completion = match &request.r#ref {
            Reference::Resource(template) => {
                let (name, prefix) = (&request.argument.name, &request.argument.value);
                self.desk.resources.complete(&template.uri, name, prefix)
            }
            // Nothing is known of the values of a prompt's inputs.
            _ => CompletionInfo::default(),
        };
        Ok(CompleteResult::new(completion))
    }
}
