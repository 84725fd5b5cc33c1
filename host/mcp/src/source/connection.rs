//! One connection with a server, from its start to its end, with the list of tools that it gave
//! then.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use conclave_core::config::{KeyRef, McpReach};
use conclave_runtime::secrets::SecretSource;
use conclave_runtime::servers::ServerStart;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, JsonObject, PaginatedRequestParams,
    ProtocolVersion, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService,
    ServiceError,
};
use rmcp::transport::async_rw::AsyncRwTransport;

use super::address;
use super::program::Program;
use super::refusing::Refusing;
use super::said::KeyFilter;
use super::tools::MOST;

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
    said: KeyFilter,
    pub(super) tools: Vec<Tool>,
}

/// Why a call gave no result.
pub(super) enum CallFailure {
    /// The server is not there any more, and why.
    Gone(String),
    /// It says that it cannot, in words for the model.
    Said(String),
}

impl Connection {
    /// Starts or reaches the server and asks for its tools. Dropping the future ends what was
    /// started.
    pub(super) async fn open(
        environment: fn(&str) -> Option<String>,
        start: &ServerStart,
    ) -> Result<Self, String> {
        let opened = tokio::time::timeout(START, Self::in_some_way(environment, start)).await;
        opened.unwrap_or_else(|_| {
            Err(format!("it did not list its tools within {} s", START.as_secs()))
        })
    }

    /// In the newest way that it knows; some end at a question that they do not know.
    async fn in_some_way(
        environment: fn(&str) -> Option<String>,
        start: &ServerStart,
    ) -> Result<Self, String> {
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        match Self::in_this_way(environment, start, newest).await {
            Ok(connection) => Ok(connection),
            Err(_) => Self::in_this_way(environment, start, ClientLifecycleMode::Initialize).await,
        }
    }

    async fn in_this_way(
        environment: fn(&str) -> Option<String>,
        start: &ServerStart,
        way: ClientLifecycleMode,
    ) -> Result<Self, String> {
        // A result is there twice, as text and as a value, and JSON within JSON has more quotes.
        let message_max =
            start.limits.output.saturating_mul(4).saturating_add(MESSAGE).min(MESSAGE_MAX);
        let message_max = usize::try_from(message_max).unwrap_or(usize::MAX);
        match &start.source.reach {
            McpReach::Program { command, env, keys, cwd } => {
                let given = given(keys, &*start.secrets).await?;
                let said = KeyFilter::without(
                    given.iter().map(|(name, key)| (name.as_str(), key.as_str())),
                )?;
                let variables = variables(environment, env, &given);
                let (mut program, (lines, stdin)) =
                    Program::start(command, &cwd.path, &variables, message_max, &said)?;
                let transport = AsyncRwTransport::<RoleClient, _, _>::new(lines, stdin)
                    .with_max_line_length(message_max.saturating_add(2));
                let service = Refusing.serve_with_lifecycle(transport, way).await;
                let service = service.map_err(|error| {
                    format!("{}: {}", refused(&error, &said), program.epitaph())
                })?;
                let listed = list(&service, &said).await;
                let tools = listed.map_err(|why| format!("{why}: {}", program.epitaph()))?;
                Ok(Self { service, program: Some(Mutex::new(program)), said, tools })
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
                let said = KeyFilter::without(key.iter().map(|key| ("key", key.reveal())))?;
                let transport =
                    address::transport(url, key.as_ref().map(|key| key.reveal()), message_max)?;
                let service = Refusing
                    .serve_with_lifecycle(transport, way)
                    .await
                    .map_err(|error| refused_at(url, &error, &said))?;
                let tools = list(&service, &said).await?;
                Ok(Self { service, program: None, said, tools })
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    /// Calls a tool by the name that the server has for it. Dropping the future tells the server
    /// that nobody waits.
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
                self.said.all(result).ok_or_else(mixed)
            }
            Ok(CallToolResponse::InputRequired(_)) => Err(CallFailure::Said(
                "the server wants to ask a person, which servers are not given here".to_owned(),
            )),
            Ok(_) => Err(CallFailure::Said(
                "the server wants to answer later, which is not waited for".to_owned(),
            )),
            Err(ServiceError::McpError(error)) => {
                Err(CallFailure::Said(self.said.words(&error.message, WORDS)))
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
            None => self.said.words(&plain(error), WORDS),
        }
    }
}

/// The keys of a program, by the names of its variables.
async fn given(
    keys: &BTreeMap<String, KeyRef>,
    secrets: &dyn SecretSource,
) -> Result<BTreeMap<String, String>, String> {
    let mut given = BTreeMap::new();
    for (name, from) in keys {
        let key = secrets
            .secret(from)
            .await
            .map_err(|why| format!("the value of {name} is not there: {why}"))?;
        given.insert(name.clone(), key.reveal().to_owned());
    }
    Ok(given)
}

/// The environment of a program: what it takes to find others and its own files, and what the
/// config gives it.
fn variables(
    environment: fn(&str) -> Option<String>,
    env: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let inherited =
        ["PATH", "HOME"].into_iter().filter_map(|name| Some((name.to_owned(), environment(name)?)));
    let mut variables: BTreeMap<String, String> = inherited.collect();
    variables.extend(env.clone());
    variables.extend(given.clone());
    variables
}

/// All its tools; page after page, to an end.
async fn list(
    service: &RunningService<RoleClient, Refusing>,
    said: &KeyFilter,
) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let page = service
            .peer()
            .list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)))
            .await;
        let page = page.map_err(|error| {
            format!("its tools could not be listed: {}", said.words(&plain(&error), WORDS))
        })?;
        tools.extend(page.tools);
        if tools.len() > MOST {
            return Err(format!("it has more than {MOST} tools"));
        }
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => {
                return said
                    .all(tools)
                    .ok_or_else(|| "its list of tools holds one of its keys".to_owned());
            }
        }
    }
    Err(format!("its list of tools has more than {PAGES} pages"))
}

fn refused(error: &ClientInitializeError, said: &KeyFilter) -> String {
    format!("it could not be spoken with: {}", said.words(&plain(error), WORDS))
}

/// Of a server that runs already: what to look at. The address stands in the config; it may hold
/// what nobody should read.
fn refused_at(url: &str, error: &ClientInitializeError, said: &KeyFilter) -> String {
    let of = url
        .split("://")
        .nth(1)
        .and_then(|rest| rest.split(['/', '?', '#']).next())
        .unwrap_or_default();
    let host = of.rsplit('@').next().unwrap_or_default();
    let help = "start the server, or correct `url`, and `key` where it wants one";
    format!("{host} could not be spoken with: {}; {help}", said.words(&plain(error), WORDS))
}

/// The innermost cause: around it are names of types, which say nothing to an operator.
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
