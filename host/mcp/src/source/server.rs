//! A server during the lifetime of a host. It is admitted once and restarted when it has ended; its
//! tools must then be the same.

use std::sync::Arc;

use conclave_core::types::denial::DenialRecord;
use conclave_core::types::tool::ToolOutcome;
use conclave_runtime::native::{Call, Failure, Plugin, Tool};
use conclave_runtime::servers::{
    ServerFailure, ServerLauncher, ServerNote, ServerPlugin, ServerStart,
};
use conclave_runtime::subscribe::Level;
use serde_json::Value;
use tokio::sync::Mutex;

use super::Servers;
use super::connection::{CallFailure, Connection};
use super::result;
use super::tools::{Admission, Admitted};

pub(super) struct McpServer {
    servers: Servers,
    start: ServerStart,
    admitted: Admission,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl McpServer {
    /// Connects to the server, and returns a plugin with its tools.
    pub(super) async fn admit(
        servers: Servers,
        start: ServerStart,
    ) -> Result<ServerPlugin, ServerFailure> {
        let name = start.plugin.to_string();
        let connection = Connection::open(&servers, &start).await?;
        let admitted = Admission::of(&name, &connection.listed, &start.source.tools);
        if admitted.tools.is_empty() {
            return Err(admitted.why_empty().into());
        }
        let (tools, mut notes) = (admitted.tools.clone(), admitted.notes.clone());
        let launcher = start.launcher.as_ref();
        // They stay for the first call, in whose audit they are.
        let refused = launcher.map(ServerLauncher::refusals).unwrap_or_default();
        notes.extend(refused.iter().map(note_of));
        let description = match launcher {
            Some(_) => "A server of tools, confined to its grants.",
            None => "A server of tools, outside the sandbox.",
        };

        let server = Arc::new(Self {
            servers,
            start,
            admitted,
            connection: Mutex::new(Some(Arc::new(connection))),
        });
        let plugin = Plugin::tools(&name, tools.into_iter().map(|tool| tool_of(&server, tool)))
            .described(description);
        Ok(ServerPlugin { plugin, notes })
    }

    async fn call(&self, tool: &str, call: &Call) -> Result<ToolOutcome, Failure> {
        let connection = self.connection().await.map_err(|why| unavailable(call, &why))?;
        let Value::Object(arguments) = call.arguments.clone() else {
            return Err(Failure::invalid_arguments("they must be a JSON object"));
        };
        let answered = connection.call(tool, arguments).await;
        if let Some(launcher) = &self.start.launcher {
            launcher.take_refusals().into_iter().for_each(|record| call.host.refused(record));
        }
        match answered {
            Ok(result) => result::outcome(result, &*self.start.blobs),
            Err(CallFailure::Said(why)) => Err(Failure::new(why)),
            Err(CallFailure::Gone(why)) => Err(unavailable(call, &why)),
        }
    }

    /// Returns the connection, and reconnects if it is closed. The lock makes concurrent calls
    /// share one restart.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut slot = self.connection.lock().await;
        if let Some(open) = slot.as_ref().filter(|connection| !connection.is_over()) {
            return Ok(Arc::clone(open));
        }
        // The old process ends before another starts.
        *slot = None;
        let opened = Connection::open(&self.servers, &self.start).await;
        let opened = opened.map_err(|failure| failure.to_string())?;
        // Only the first list was checked when the config was loaded, so a changed one is refused.
        let name = self.start.plugin.to_string();
        if !self.admitted.still_holds(&name, &opened.listed, &self.start.source.tools) {
            return Err("it was started anew and lists other tools than were admitted".to_owned());
        }
        Ok(Arc::clone(slot.insert(Arc::new(opened))))
    }
}

/// The remark on a request that was refused while the server started.
fn note_of(record: &DenialRecord) -> ServerNote {
    let denial = &record.denial;
    ServerNote {
        message: format!(
            "it was refused {} {} while it started: {}",
            denial.capability, denial.target, record.reason
        ),
        help: record.suggestion.as_ref().map(|line| format!("if it shall have it: `{line}`")),
    }
}

fn unavailable(call: &Call, why: &str) -> Failure {
    call.host.log(Level::Warn, why);
    Failure::unavailable(None)
}

fn tool_of(server: &Arc<McpServer>, tool: Admitted) -> Tool {
    let server = Arc::clone(server);
    let original: Arc<str> = tool.original.into();
    Tool::new(&tool.name, &tool.description, tool.schema, move |call: Call| {
        let (server, original) = (Arc::clone(&server), Arc::clone(&original));
        async move { server.call(&original, &call).await }
    })
}
