//! How to connect to the database of an address: its options, with the defaults of a store.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::tls::{TlsMode, TlsOptions};
use crate::storage::store::PostgresAddress;
use crate::storage::store::sql::{SqlError, SqlErrorKind, SqlResult};

/// The port of a server whose address names none.
const PORT: u16 = 5432;
/// The time for a connection of TCP to one host.
const CONNECT: Duration = Duration::from_secs(10);
/// The time without an acknowledgement of TCP after which a connection counts as lost. It is less
/// than a lease, so that a host whose network is cut learns so before others take its runs.
const SILENCE: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;

/// The options of a connection.
#[derive(Clone)]
pub(super) struct Connecting {
    pub(super) config: Config,
    pub(super) tls: TlsOptions,
}

impl Connecting {
    pub(super) fn of(address: &PostgresAddress) -> SqlResult<Self> {
        let wrong = |text: String| SqlError::new(SqlErrorKind::Other, text);
        let mut url = address.url().clone();
        // `tokio-postgres` knows fewer modes of TLS, and no files.
        let option = |name: &str| {
            let (_, value) = url.query_pairs().find(|(other, _)| other == name)?;
            Some(value.into_owned())
        };
        let file = |name: &str| option(name).map(PathBuf::from);
        let (mode, mut roots) = (option("sslmode"), file("sslrootcert"));
        let certificate = match (file("sslcert"), file("sslkey")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(wrong("sslcert and sslkey are needed together".to_owned())),
        };
        let query = url.query().unwrap_or("").to_owned();
        let mut rest: Vec<String> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode" | "sslrootcert" | "sslcert" | "sslkey", _)) => {}
                // The folder of large blobs is for this host alone.
                Some(("blobs", _)) => {}
                // As libpq lists servers; `tokio-postgres` takes one in each parameter.
                Some(("host", hosts)) => {
                    rest.extend(hosts.split(',').map(|host| format!("host={host}")));
                }
                _ => rest.push(pair.to_owned()),
            }
        }
        url.set_query((!rest.is_empty()).then(|| rest.join("&")).as_deref());
        let mut config: Config =
            url.as_str().parse().map_err(|error: tokio_postgres::Error| SqlError::from(error))?;
        let is_system = roots.as_ref().is_some_and(|file| file.as_os_str() == "system");
        roots.take_if(|_| is_system);
        let mode = match mode {
            Some(mode) => TlsMode::of_name(&mode).ok_or_else(|| {
                wrong(format!(
                    "sslmode `{mode}` is none of disable, prefer, require, verify-ca, verify-full"
                ))
            })?,
            // As with libpq, the authorities of the system verify a name, or nothing.
            None if is_system => TlsMode::VerifyFull,
            None if config.get_hosts().iter().all(is_local) => TlsMode::Prefer,
            None => TlsMode::VerifyFull,
        };
        if is_system && mode != TlsMode::VerifyFull {
            return Err(wrong("sslrootcert=system needs sslmode=verify-full".to_owned()));
        }
        config.ssl_mode(match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let tls = TlsOptions { mode, roots, certificate };
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if config.get_application_name().is_none() {
            config.application_name("conclave");
        }
        // Of several servers the one that can be written, also after another has taken over.
        if config.get_hosts().len() > 1
            && config.get_target_session_attrs() == TargetSessionAttrs::Any
        {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        Ok(Self { config, tls })
    }

    /// The options of a connection to each of the servers, in their order.
    pub(super) fn servers(&self) -> Vec<Config> {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        // With `hostaddr` there are two lists, which `tokio-postgres` brings together.
        if hosts.len() < 2 || !self.config.get_hostaddrs().is_empty() {
            return vec![self.config.clone()];
        }
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        let servers = hosts.iter().enumerate();
        servers
            .map(|(index, host)| with_servers(&self.config, &[(host.clone(), port(index))]))
            .collect()
    }

    /// Whether the address names several servers, of which one takes over from another.
    pub(super) fn has_standby(&self) -> bool {
        self.config.get_hosts().len() > 1
    }
}

/// The same options with these servers; a [`Config`] can only get more.
pub(super) fn with_servers(config: &Config, servers: &[(Host, u16)]) -> Config {
    let mut new = Config::new();
    for (host, port) in servers {
        match host {
            Host::Tcp(name) => new.host(name),
            #[cfg(unix)]
            Host::Unix(folder) => new.host_path(folder),
        };
        new.port(*port);
    }
    config.get_user().map(|user| new.user(user));
    config.get_password().map(|password| new.password(password));
    config.get_dbname().map(|name| new.dbname(name));
    config.get_options().map(|options| new.options(options));
    config.get_application_name().map(|name| new.application_name(name));
    config.get_connect_timeout().map(|timeout| new.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| new.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| new.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| new.keepalives_retries(retries));
    new.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding());
    new
}

/// Whether the server is on this machine, so that nobody else hears the connection.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .trim_matches(['[', ']'])
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::storage::store::StoreAddress;

    use super::*;

    fn connecting(url: &str) -> SqlResult<Connecting> {
        let StoreAddress::Postgres(address) = url.parse().unwrap() else { panic!("{url}") };
        Connecting::of(&address)
    }

    #[test]
    fn a_server_elsewhere_is_verified_unless_the_address_says_otherwise() {
        for (url, mode) in [
            ("postgres://db.example/x", TlsMode::VerifyFull),
            ("postgres://localhost/x", TlsMode::Prefer),
            ("postgres://127.0.0.1:5433/x", TlsMode::Prefer),
            ("postgres:///x?host=/run/postgresql", TlsMode::Prefer),
            ("postgres://db.example/x?sslmode=require", TlsMode::Require),
            ("postgres://db/x?sslmode=verify-ca&sslrootcert=/etc/ca%20x.pem", TlsMode::VerifyCa),
            ("postgres://localhost/x?sslmode=disable", TlsMode::Disable),
            ("postgres://localhost/x?sslrootcert=system", TlsMode::VerifyFull),
        ] {
            assert_eq!(connecting(url).unwrap().tls.mode, mode, "{url}");
        }
        let with_roots = connecting("postgres://db/x?sslrootcert=/etc/ca%20x.pem").unwrap();
        assert_eq!(with_roots.tls.roots.unwrap(), PathBuf::from("/etc/ca x.pem"));
        for (options, what) in [
            ("sslmode=perhaps", "perhaps"),
            ("sslmode=require&sslrootcert=system", "verify-full"),
            ("sslcert=/etc/ada.crt", "sslkey"),
            ("sslcrl=/etc/crl.pem", "sslcrl"),
        ] {
            let refused = connecting(&format!("postgres://db/x?{options}")).map(|_| ());
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}");
        }
    }

    #[test]
    fn several_servers_are_those_of_libpq_and_the_one_that_can_be_written_is_meant() {
        let several =
            "postgres://ada:a%20b@one:5433,two,[::1]:5434/runs?sslmode=disable&blobs=/mnt";
        let config = connecting(several).unwrap().config;
        let hosts = ["one", "two", "::1"].map(|host| Host::Tcp(host.to_owned()));
        assert_eq!(config.get_hosts(), hosts);
        assert_eq!(config.get_ports(), [5433, 5432, 5434]);
        assert_eq!((config.get_user(), config.get_dbname()), (Some("ada"), Some("runs")));
        assert_eq!(config.get_password(), Some(&b"a b"[..]));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert!(connecting(several).unwrap().has_standby());
        let servers = connecting(several).unwrap().servers();
        for (index, server) in servers.iter().enumerate() {
            assert_eq!(server.get_hosts(), &hosts[index..=index]);
            assert_eq!(server.get_ports(), &config.get_ports()[index..=index]);
            // Nothing else differs.
            let all: Vec<(Host, u16)> =
                hosts.iter().cloned().zip(config.get_ports().iter().copied()).collect();
            assert_eq!(with_servers(server, &all), config);
        }
        assert_eq!(servers.len(), 3);
        let address: StoreAddress = several.parse().unwrap();
        assert!(!address.to_string().contains("a%20b"), "{address}");
        let StoreAddress::Postgres(socket) = "postgres:///x?host=/run".parse().unwrap() else {
            panic!()
        };
        let config = Connecting::of(&socket.with_password("p+ä ")).unwrap().config;
        assert_eq!(config.get_password(), Some("p+ä ".as_bytes()));
    }
}
