//! The arguments of `serve`, which serves a channel of a config to browsers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use conclave_runtime::store::StoreAddress;

use super::run_input::room_name;
use super::storage::DurabilityChoice;
use super::store::StoreParser;
use super::{CONFIG, Keep, Locked, ModelChoice};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The config
    #[arg(default_value = CONFIG)]
    pub(crate) file: PathBuf,
    /// The address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8800")]
    pub(crate) listen: SocketAddr,
    /// Allow an address that other machines can reach. Browsers use this host: that of a proxy with
    /// TLS, such as chat.example.org, or with a port this server itself, which encrypts with
    /// --tls-cert only
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) public: Option<String>,
    /// Encrypt with this certificate, a file in PEM with those that issued it. It is read again when
    /// it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, a file in PEM that only its owner and group can read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The channel of the config to serve, of kind `web` [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// The name of the first conversation's room; others get NAME.2 and so on [default: a name for
    /// each config]
    #[arg(long, value_name = "NAME", value_parser = room_name)]
    pub(crate) room: Option<String>,
    /// Store the conversations here: a folder, or `postgres://USER@HOST/DATABASE`; a folder is
    /// created if it does not exist [default: the config's `store`, or else your state folder]
    #[arg(long, value_name = "STORE", value_parser = StoreParser)]
    store: Option<StoreAddress>,
    /// When records survive a power cut, instead of the config's `durability`
    #[arg(long, value_name = "WHEN")]
    durability: Option<DurabilityChoice>,
    #[command(flatten)]
    pub(crate) model: ModelChoice,
    #[command(flatten)]
    pub(crate) locked: Locked,
    /// Also show log lines of plugins at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// What `doctor --server` checks: the options with which `serve` is started.
#[derive(Debug, Args)]
pub(crate) struct CheckedServer {
    /// Also check what `conclave serve` of this config needs: its store, disk, clock, certificate,
    /// addresses, people and proxy. Name the options with which it is started
    #[arg(long, requires = "file")]
    pub(crate) server: bool,
    /// With --server: the address and port to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8800")]
    pub(crate) listen: SocketAddr,
    /// With --server: the host of browsers
    #[arg(long, value_name = "HOST[:PORT]", requires = "server")]
    pub(crate) public: Option<String>,
    /// With --server: the certificate
    #[arg(long, value_name = "FILE", requires_all = ["server", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// With --server: its key
    #[arg(long, value_name = "FILE", requires_all = ["server", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,
    /// With --server: the store, a folder or `postgres://USER@HOST/DATABASE`
    #[arg(long, value_name = "STORE", value_parser = StoreParser, requires = "server")]
    pub(crate) store: Option<StoreAddress>,
}

impl Serve {
    /// The storage arguments: a conversation is always stored.
    pub(crate) fn keep(&self) -> Keep {
        Keep { store: self.store.clone(), durability: self.durability, ..Keep::default() }
    }
}
