//! The config of a server as it was read last.

use std::sync::{Arc, PoisonError, RwLock};

use conclave_core::config::ServerConfig;
use conclave_runtime::Prepared;
use tokio::sync::watch;

/// The config for rooms that begin now. Rooms that run keep the one with which they began.
pub(crate) struct CurrentConfig {
    read: RwLock<ReadConfig>,
    changed: watch::Sender<()>,
}

#[derive(Clone)]
struct ReadConfig {
    prepared: Arc<Prepared>,
    server: Arc<ServerConfig>,
}

impl CurrentConfig {
    pub(crate) fn new(prepared: Prepared, server: ServerConfig) -> Self {
        let read = ReadConfig { prepared: Arc::new(prepared), server: Arc::new(server) };
        Self { read: RwLock::new(read), changed: watch::Sender::default() }
    }

    pub(crate) fn prepared(&self) -> Arc<Prepared> {
        self.read().prepared
    }

    /// `[server]`.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.read().server
    }

    /// A receiver that is notified when the config is read again.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn replace(&self, prepared: Prepared, server: ServerConfig) {
        let read = ReadConfig { prepared: Arc::new(prepared), server: Arc::new(server) };
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = read;
        self.changed.send_replace(());
    }

    fn read(&self) -> ReadConfig {
        self.read.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
