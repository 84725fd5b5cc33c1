//! Refuses all requests of a server to its client: models, folders, users, and changes of the tool
//! list.

#![expect(
    deprecated,
    reason = "servers of older revisions may ask for what the newest one has given up"
)]

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ErrorCode, ErrorData, Implementation, ListRootsResult,
};
use rmcp::service::{RequestContext, RoleClient};

/// Refuses every request of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusing;

fn refused(what: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("{what} is not offered to servers here"),
        None,
    )
}

impl ClientHandler for Refusing {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("conclave", env!("CARGO_PKG_VERSION")),
        )
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Err(refused("a model"))
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Err(refused("a list of folders"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Err(refused("a person"))
    }
}
