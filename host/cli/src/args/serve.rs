//! The arguments of `serve`, which serves configs to browsers and programs.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use conclave_runtime::store::StoreAddress;

use super::run_input::room_name;
use super::storage::DurabilityChoice;
use super::store::StoreParser;
use super::{CONFIG, Keep, Locked, LogArgs, ModelChoice};
use crate::program::shell::shell;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The configs. In the API and on the page the name of each is that of its file, or of its folder
    /// if the file is `conclave.toml`; NAME=CONFIG gives it another one
    #[arg(value_name = "CONFIG", default_value = CONFIG, value_parser = config_argument)]
    pub(crate) configs: Vec<ConfigArgument>,
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
    /// The channel of kind `web` to serve [default: the only one of each config]
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// The name of the first conversation's room; others get NAME.2 and so on. For one config only
    /// [default: a name for each config]
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
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Also show log lines of plugins at the levels debug and trace
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Bytes of a config's name.
const CONFIG_NAME: usize = 64;

/// A config of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigArgument {
    /// The name that the operator gives it.
    pub(crate) name: Option<String>,
    pub(crate) file: PathBuf,
}

impl ConfigArgument {
    /// The argument as it is written on a command line.
    pub(crate) fn words(&self) -> String {
        let file = self.file.display();
        shell(&self.name.as_ref().map_or_else(|| file.to_string(), |name| format!("{name}={file}")))
    }
}

/// Whether a text can name a config: it is part of addresses and of cursors.
pub(crate) fn is_config_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= CONFIG_NAME
        && text.chars().all(is_plain)
}

/// Reads `CONFIG` or `NAME=CONFIG`. A file with such a name is written with its folder.
fn config_argument(text: &str) -> Result<ConfigArgument, String> {
    Ok(match text.split_once('=') {
        Some((name, "")) if is_config_name(name) => {
            return Err(format!("the config of the name `{name}` is missing: {name}=CONFIG"));
        }
        Some((name, file)) if is_config_name(name) => {
            ConfigArgument { name: Some(name.to_owned()), file: file.into() }
        }
        _ => ConfigArgument { name: None, file: text.into() },
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_has_a_name_before_the_sign_or_none() {
        let of = |text: &str| {
            let ConfigArgument { name, file } = config_argument(text).expect("it is a config");
            (name, file.display().to_string())
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(of("desk.toml"), (None, "desk.toml".to_owned()));
        assert_eq!(of("shop=a/conclave.toml"), (some("shop"), "a/conclave.toml".to_owned()));
        assert_eq!(of("a=b=c.toml"), (some("a"), "b=c.toml".to_owned()));
        assert_eq!(of("./a=b.toml"), (None, "./a=b.toml".to_owned()));
        assert_eq!(of("a/b=c.toml"), (None, "a/b=c.toml".to_owned()));
        assert!(config_argument("shop=").is_err());
    }
}
