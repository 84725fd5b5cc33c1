//! One connection with a server, from its start to its end, with the list of tools that it gave then.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::config::{KeyRef, McpReach};
use conclave_runtime::secrets::SecretSource;
use conclave_runtime::servers::ServerStart;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, PaginatedRequestParams, ProtocolVersion, Tool};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService, ServiceError};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::address;
use super::program::Program;
use super::refusing::Refusing;
use super::tools::MOST;
use crate::text::shown;

/// How long it may take until its tools are known: some programs are fetched first.
const START: Duration = Duration::from_secs(90);
/// Pages of its list.
const PAGES: usize = 64;
/// Bytes of a message that hold no result: the list of tools is one.
const MESSAGE: u64 = 2 << 20;
/// Bytes of a message at most, whatever the limits say.
const MESSAGE_MAX: u64 = 64 << 20;
/// Characters of its words that are told.
const WORDS: usize = 400;

/// A server that answers.
pub(super) struct Connection {
    service: RunningService<RoleClient, Refusing>,
    program: Option<Mutex<Program>>,
    pub(super) tools: Vec<Tool>,
}

/// Why a call gave no result.
pub(super) enum Unanswered {
    /// The server is not there any more, and why.
    Gone(String),
    /// It says that it cannot, in words for the model.
    Said(String),
}

impl Connection {
    /// Starts or reaches the server and asks for its tools. Dropping the future ends what was started.
    pub(super) async fn open(environment: fn(&str) -> Option<String>, start: &ServerStart) -> Result<Self, String> {
        let opened = tokio::time::timeout(START, Self::in_some_way(environment, start)).await;
        opened.unwrap_or_else(|_| Err(format!("it did not list its tools within {} s", START.as_secs())))
    }

    /// In the newest way that it knows; some end at a question that they do not know.
    async fn in_some_way(environment: fn(&str) -> Option<String>, start: &ServerStart) -> Result<Self, String> {
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        match Self::in_this_way(environment, start, newest).await {
            Ok(connection) => Ok(connection),
            Err(_) => Self::in_this_way(environment, start, ClientLifecycleMode::Initialize).await,
        }
    }

    async fn in_this_way(environment: fn(&str) -> Option<String>, start: &ServerStart, way: ClientLifecycleMode) -> Result<Self, String> {
        // A result is there twice, as text and as a value, and JSON within JSON has more quotes.
        let message_max = start.limits.output.saturating_mul(4).saturating_add(MESSAGE).min(MESSAGE_MAX);
        let message_max = usize::try_from(message_max).unwrap_or(usize::MAX);
        match &start.source.reach {
            McpReach::Program { command, env, keys, cwd } => {
                let variables = variables(environment, env, keys, &*start.secrets).await?;
                let (mut program, (lines, stdin)) = Program::start(command, &cwd.path, &variables, message_max)?;
                let transport = AsyncRwTransport::<RoleClient, _, _>::new(lines, stdin).with_max_line_length(message_max.saturating_add(2));
                let service = Refusing.serve_with_lifecycle(transport, way).await;
                let service = service.map_err(|error| format!("{}: {}", refused(&error), program.epitaph()))?;
                let listed = list(&service).await;
                let tools = listed.map_err(|why| format!("{why}: {}", program.epitaph()))?;
                Ok(Self { service, program: Some(Mutex::new(program)), tools })
            }
            McpReach::Address { url, key } => {
                let key = match key {
                    Some(from) => Some(start.secrets.secret(from).await.map_err(|why| format!("its key is not there: {why}"))?),
                    None => None,
                };
                let transport = address::transport(url, key.as_ref().map(|key| key.reveal()), message_max)?;
                let service = Refusing.serve_with_lifecycle(transport, way).await.map_err(|error| refused(&error))?;
                let tools = list(&service).await?;
                Ok(Self { service, program: None, tools })
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Calls a tool by the name that the server has for it. Dropping the future tells the server that nobody waits.
    pub(super) async fn call(&self, tool: &str, arguments: JsonObject) -> Result<CallToolResult, Unanswered> {
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.service.peer().call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(CallToolResponse::InputRequired(_)) => {
                Err(Unanswered::Said("the server wants to ask a person, which servers are not given here".to_owned()))
            }
            Ok(_) => Err(Unanswered::Said("the server wants to answer later, which is not waited for".to_owned())),
            Err(ServiceError::McpError(error)) => Err(Unanswered::Said(shown(&error.message, WORDS))),
            Err(ServiceError::UnexpectedResponse) => Err(Unanswered::Said("the server gave an answer of another kind".to_owned())),
            Err(other) => Err(Unanswered::Gone(self.epitaph(&other))),
        }
    }

    fn epitaph(&self, error: &ServiceError) -> String {
        match &self.program {
            Some(program) => program.lock().unwrap_or_else(PoisonError::into_inner).epitaph(),
            None => shown(&error.to_string(), WORDS),
        }
    }
}

/// The environment of a program: what it takes to find others and its own files, and what the config gives it.
async fn variables(
    environment: fn(&str) -> Option<String>,
    env: &BTreeMap<String, String>,
    keys: &BTreeMap<String, KeyRef>,
    secrets: &dyn SecretSource,
) -> Result<BTreeMap<String, String>, String> {
    let inherited = ["PATH", "HOME"].into_iter().filter_map(|name| Some((name.to_owned(), environment(name)?)));
    let mut variables: BTreeMap<String, String> = inherited.collect();
    variables.extend(env.clone());
    for (name, from) in keys {
        let key = secrets.secret(from).await.map_err(|why| format!("the value of {name} is not there: {why}"))?;
        variables.insert(name.clone(), key.reveal().to_owned());
    }
    Ok(variables)
}

/// All its tools; page after page, to an end.
async fn list(service: &RunningService<RoleClient, Refusing>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let page = service.peer().list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|error| format!("its tools could not be listed: {}", shown(&error.to_string(), WORDS)))?;
        tools.extend(page.tools);
        if tools.len() > MOST {
            return Err(format!("it has more than {MOST} tools"));
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(tools),
        }
    }
    Err(format!("its list of tools has more than {PAGES} pages"))
}

fn refused(error: &ClientInitializeError) -> String {
    format!("it could not be spoken with: {}", shown(&error.to_string(), WORDS))
}
