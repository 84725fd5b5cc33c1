//! One connection with a server, from start to end, with the tools that the server listed at the
//! start.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::config::{KeyRef, McpReach};
use conclave_runtime::secrets::SecretSource;
use conclave_runtime::servers::{ServerEnvironment, ServerFailure, ServerStart};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, PaginatedRequestParams,
    ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::backlog::{Backlog, FLOODED};
use super::program::{OutputRules, Program};
use super::redaction::KeyFilter;
use super::refusing::Refusing;
use super::tools::ToolList;
use super::{Servers, address};

/// Time limit until the tools are listed. It is long because some programs are downloaded first.
const START: Duration = Duration::from_secs(90);
/// Maximum number of pages of the tool list.
const PAGES: usize = 64;
/// Maximum bytes of the list of tools, over all pages.
const LIST: usize = 2 << 20;
/// Bytes allowed for a message without a result, such as the list of tools.
const MESSAGE: u64 = 2 << 20;
/// Maximum bytes of a message, regardless of the configured limits.
const MESSAGE_MAX: u64 = 64 << 20;
/// Characters of the server's error text that are shown.
const WORDS: usize = 400;

/// An open connection with a server.
pub(super) struct Connection {
    service: RunningService<RoleClient, Refusing>,
    program: Option<Mutex<Program>>,
    /// The open requests of a server at an address; a program has its own.
    backlog: Backlog,
    filter: KeyFilter,
    pub(super) listed: ToolList,
}

/// Why a call has no result.
pub(super) enum CallFailure {
    /// The server is gone, for this reason.
    Gone(String),
    /// The server reported an error, in words for the model.
    Said(String),
}

impl Connection {
    /// Starts or reaches the server and lists its tools. Dropping the future stops a started
    /// program.
    pub(super) async fn open(
        servers: &Servers,
        start: &ServerStart,
    ) -> Result<Self, ServerFailure> {
        let opened = tokio::time::timeout(START, Self::in_some_way(servers, start)).await;
        opened.unwrap_or_else(|_| {
            Err(format!("it did not list its tools within {} s", START.as_secs()).into())
        })
    }

    /// Tries the newest protocol first, then the old handshake: some servers exit at an unknown
    /// request.
    async fn in_some_way(servers: &Servers, start: &ServerStart) -> Result<Self, ServerFailure> {
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        match Self::in_this_way(servers, start, newest).await {
            Ok(connection) => Ok(connection),
            Err(unconfined @ ServerFailure::Unconfined(_)) => Err(unconfined),
            Err(_) => Self::in_this_way(servers, start, ClientLifecycleMode::Initialize).await,
        }
    }

    async fn in_this_way(
        servers: &Servers,
        start: &ServerStart,
        way: ClientLifecycleMode,
    ) -> Result<Self, ServerFailure> {
        // A result appears twice, as text and as a value, and JSON within JSON needs more escapes.
        let message_max =
            start.limits.output.saturating_mul(4).saturating_add(MESSAGE).min(MESSAGE_MAX);
        let message_max = usize::try_from(message_max).unwrap_or(usize::MAX);
        match &start.source.reach {
            McpReach::Program { command, env, keys, cwd, confined: _ } => {
                // Keys are read at each start, so that a rotated key needs no restart of the host.
                let key_values = key_values(keys, &*start.secrets).await?;
                let filter = KeyFilter::without(
                    key_values.iter().map(|(name, key)| (name.as_str(), key.as_str())),
                )?;
                let rules = OutputRules { message_max, filter: &filter };
                let environment = environment(servers.environment, env, key_values);
                let (mut program, (lines, stdin)) = match &start.launcher {
                    Some(launcher) => {
                        Program::start_confined(launcher, command, &cwd.path, &environment, &rules)?
                    }
                    None => {
                        let supervisor = servers.supervisor.as_ref();
                        let variables = unconfined_variables(environment);
                        Program::start(supervisor, command, &cwd.path, &variables, &rules)?
                    }
                };
                let transport = AsyncRwTransport::<RoleClient, _, _>::new(lines, stdin)
                    .with_max_line_length(message_max.saturating_add(2));
                let service = Refusing.serve_with_lifecycle(transport, way).await;
                let service = match service {
                    Ok(service) => service,
                    Err(error) => return Err(program.failure(&refused(&error, &filter)).await),
                };
                // A server can exit right after the handshake; its last stderr line then explains
                // the failure.
                let listed = list(&service, &filter).await;
                let listed = match listed {
                    Ok(listed) => listed,
                    Err(why) => return Err(program.failure(&why).await),
                };
                Ok(Self {
                    service,
                    program: Some(Mutex::new(program)),
                    backlog: Backlog::default(),
                    filter,
                    listed,
                })
            }
            McpReach::Address { url, key } => {
                let key = match key {
                    Some(from) => Some(
                        start
                            .secrets
                            .secret(from)
                            .await
                            .map_err(|why| format!("its key is not there: {why}"))?,
                    ),
                    None => None,
                };
                let filter = KeyFilter::without(key.iter().map(|key| ("key", key.reveal())))?;
                let (key, backlog) = (key.as_ref().map(|key| key.reveal()), Backlog::default());
                let transport = address::transport(url, key, message_max, backlog.clone())?;
                let service = Refusing
                    .serve_with_lifecycle(transport, way)
                    .await
                    .map_err(|error| refused_at(url, &error, &filter))?;
                let listed = list(&service, &filter).await?;
                Ok(Self { service, program: None, backlog, filter, listed })
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed() || self.backlog.is_flooded()
    }

    /// Calls a tool by the server's own name for it. Dropping the future cancels the request.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResult, CallFailure> {
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.service.peer().call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => {
                let mixed = || {
                    CallFailure::Said(
                        "the server gave one of its keys where only other words can be".to_owned(),
                    )
                };
                self.filter.all(result).ok_or_else(mixed)
            }
            Ok(CallToolResponse::InputRequired(_)) => Err(CallFailure::Said(
                "the server wants to ask a person, which servers are not given here".to_owned(),
            )),
            Ok(_) => Err(CallFailure::Said(
                "the server wants to answer later, which is not waited for".to_owned(),
            )),
            Err(ServiceError::McpError(error)) => {
                Err(CallFailure::Said(self.filter.words(&error.message, WORDS)))
            }
            Err(ServiceError::UnexpectedResponse) => {
                Err(CallFailure::Said("the server gave an answer of another kind".to_owned()))
            }
            Err(other) => Err(CallFailure::Gone(self.epitaph(&other))),
        }
    }

    fn epitaph(&self, error: &ServiceError) -> String {
        match &self.program {
            Some(program) => program.lock().unwrap_or_else(PoisonError::into_inner).epitaph(),
            None if self.backlog.is_flooded() => FLOODED.to_owned(),
            None => self.filter.words(&plain(error), WORDS),
        }
    }
}

/// Returns the keys of a program by the names of its environment variables.
async fn key_values(
    keys: &BTreeMap<String, KeyRef>,
    secrets: &dyn SecretSource,
) -> Result<BTreeMap<String, String>, String> {
    let mut values = BTreeMap::new();
    for (name, from) in keys {
        let key = secrets
            .secret(from)
            .await
            .map_err(|why| format!("the value of {name} is not there: {why}"))?;
        values.insert(name.clone(), key.reveal().to_owned());
    }
    Ok(values)
}

/// The environment of a program: `PATH` and `HOME` of the host, and the variables and keys of the
/// config.
fn environment(
    of_host: fn(&str) -> Option<String>,
    env: &BTreeMap<String, String>,
    key_values: BTreeMap<String, String>,
) -> ServerEnvironment {
    let mut variables = env.clone();
    // Keys come last, so that a plain variable cannot replace one.
    variables.extend(key_values);
    ServerEnvironment { path: of_host("PATH"), home: of_host("HOME"), variables }
}

/// The variables of a program without confinement, which has the host's `HOME`.
fn unconfined_variables(environment: ServerEnvironment) -> BTreeMap<String, String> {
    let ServerEnvironment { path, home, variables } = environment;
    let inherited = [("PATH", path), ("HOME", home)];
    let inherited = inherited.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?)));
    inherited.chain(variables).collect()
}

/// Lists all tools, page by page. A list that is longer than the limits ends there: an endless one
/// takes bounded memory.
async fn list(
    service: &RunningService<RoleClient, Refusing>,
    filter: &KeyFilter,
) -> Result<ToolList, String> {
    let (mut list, mut bytes) = (ToolList::default(), 0_usize);
    let mut cursor = None;
    for _ in 0..PAGES {
        let page = service
            .peer()
            .list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)))
            .await;
        let page = page.map_err(|error| {
            format!("its tools could not be listed: {}", filter.words(&plain(&error), WORDS))
        })?;
        for tool in page.tools {
            bytes = bytes.saturating_add(size(&tool));
            if bytes > LIST {
                list.cut_after = Some(format!("{LIST} bytes"));
                return Ok(list);
            }
            match filter.all(tool) {
                Some(tool) => list.tools.push(tool),
                None => list.with_key += 1,
            }
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(list),
        }
    }
    list.cut_after = Some(format!("{PAGES} pages"));
    Ok(list)
}

/// The bytes of a tool as JSON.
fn size(tool: &Tool) -> usize {
    serde_json::to_vec(tool).map_or(usize::MAX, |json| json.len())
}

fn refused(error: &ClientInitializeError, filter: &KeyFilter) -> String {
    format!("the connection failed: {}", filter.words(&plain(error), WORDS))
}

/// Describes a failure to reach a running server. Only the host is shown: the rest of the address
/// may contain credentials.
fn refused_at(url: &str, error: &ClientInitializeError, filter: &KeyFilter) -> String {
    let of = url
        .split("://")
        .nth(1)
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    let host = of.rsplit('@').next().unwrap_or_default();
    let help = "start the server, or correct `url`, and `key` where it wants one";
    format!("{host} did not accept the connection: {}; {help}", filter.words(&plain(error), WORDS))
}

/// The innermost cause. The outer ones name Rust types, which do not help an operator.
fn plain(error: &(dyn Error + 'static)) -> String {
    if let Some(ClientInitializeError::LegacyFallbackFailed { fallback, .. }) = error.downcast_ref()
    {
        return plain(&**fallback);
    }
    if let Some(ClientInitializeError::TransportError { error, .. }) = error.downcast_ref() {
        return plain(&*error.error);
    }
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
