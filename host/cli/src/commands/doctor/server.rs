//! The checks of `conclave doctor --server`: what `conclave serve` needs with the same options. They
//! change nothing.

mod certificate;
mod running;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use conclave_core::config::{Config, TrustedProxy};
use conclave_core::types::channel::ChannelKind;
use conclave_core::types::ids::Millis;
use conclave_runtime::clock::{Clock as _, SystemClock};
use conclave_runtime::store::{RunFilter, StoreAddress, StoreReader};
use conclave_server::{People, ServerTls, TokenFile};

use crate::args::{CheckedServer, Keep};
use crate::program::error::CliError;
use crate::state::machine::Finding;
use crate::state::state_folder::state_folder;
use crate::state::store_address::with_named_store;
use crate::ui::show::{bytes, plural, show_path};

/// Bytes below which the disk of a store is too full, and almost.
const FULL: u64 = 100 << 20;
const ALMOST_FULL: u64 = 1 << 30;
/// 2025-01-01, before which no clock of a server is right.
const EARLIEST: Millis = Millis(1_735_689_600_000);

/// Checks a server of this config.
///
/// # Errors
/// If the store's address cannot be read.
pub(super) fn findings(
    args: &CheckedServer,
    config: &Config,
    file: &Path,
) -> Result<Vec<Finding>, CliError> {
    let keep = with_named_store(&Keep { store: args.store.clone(), ..Keep::default() }, config)?;
    let now = SystemClock.now();
    let (stored, newest) = store(keep.store.as_ref());
    let mut findings = vec![channel(config), stored];
    findings.extend(disk(keep.store.as_ref()));
    findings.push(clock(now, newest));
    findings.extend([certificate(args, now), listening(args), public(args)]);
    findings.push(people(config, file, args.public.is_some()));
    findings.extend(config.server.proxy.as_ref().map(|proxy| trusted(proxy, args)));
    Ok(findings)
}

fn channel(config: &Config) -> Finding {
    const WHAT: &str = "channel";
    let web = config.channels.iter().filter(|(_, binding)| binding.kind == ChannelKind::Web);
    let names: Vec<&str> = web.map(|(name, _)| name.as_str()).collect();
    match names.as_slice() {
        [] => Finding::fail(
            WHAT,
            "the config has no channel of kind `web`",
            "add `[channels.web]` with `kind = \"web\"`",
        ),
        names => Finding::ok(WHAT, names.join(", ")),
    }
}

/// Reads the store. Returns also the time of its newest run.
fn store(address: Option<&StoreAddress>) -> (Finding, Option<Millis>) {
    const WHAT: &str = "store";
    let Some(address) = address else {
        let finding = match state_folder() {
            Some(folder) => {
                Finding::ok(WHAT, format!("a folder of the server's own in {}", show_path(&folder)))
            }
            None => Finding::fail(
                WHAT,
                "no state folder is known",
                "set HOME or CONCLAVE_STATE, or name a store: --store",
            ),
        };
        return (finding, None);
    };
    if address.folder().is_some_and(|folder| !folder.exists()) {
        return (Finding::ok(WHAT, format!("{address}, which the server makes")), None);
    }
    let filter = RunFilter { most: Some(1), ..RunFilter::default() };
    match StoreReader::open(address).and_then(|reader| reader.runs(&filter)) {
        Ok(runs) => {
            let newest = runs.first().map(|run| run.updated);
            (Finding::ok(WHAT, format!("{address} can be read")), newest)
        }
        Err(error) => {
            let hint = "start its server, or name another store: --store";
            (Finding::fail(WHAT, error.to_string(), hint), None)
        }
    }
}

/// How much space the disk of the store has; `None` if it is a database's, or the system does not
/// say.
#[cfg(unix)]
fn disk(address: Option<&StoreAddress>) -> Option<Finding> {
    const WHAT: &str = "disk";
    let folder = match address {
        Some(address) => address.folder()?.to_owned(),
        None => state_folder()?,
    };
    // A folder that is not there yet is made on the disk of the one above.
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let state = rustix::fs::statvfs(existing).ok()?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    let message = format!("{} free for {}", bytes(free), show_path(&folder));
    let hint =
        "make space, or put the store elsewhere (--store); `conclave store gc` removes old runs";
    Some(if free < FULL {
        Finding::fail(WHAT, message, hint)
    } else if free < ALMOST_FULL {
        Finding::note(WHAT, message, hint)
    } else {
        Finding::ok(WHAT, message)
    })
}

#[cfg(not(unix))]
fn disk(_: Option<&StoreAddress>) -> Option<Finding> {
    None
}

/// A clock that is wrong dates records wrongly, and ends sessions and certificates.
fn clock(now: Millis, newest: Option<Millis>) -> Finding {
    const WHAT: &str = "clock";
    let hint = "set it, and let a service such as systemd-timesyncd keep it right";
    if now < EARLIEST {
        return Finding::fail(WHAT, "it is years behind", hint);
    }
    match newest.filter(|newest| *newest > now) {
        Some(newest) => {
            let seconds = newest.since(now) / 1_000;
            let message =
                format!("it is at least {seconds} s behind the newest record of the store");
            Finding::fail(WHAT, message, hint)
        }
        None => Finding::ok(WHAT, "not behind the store"),
    }
}

fn certificate(args: &CheckedServer, now: Millis) -> Finding {
    const WHAT: &str = "certificate";
    let (Some(file), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Finding::ok(WHAT, "none: browsers of this machine, or a proxy with TLS");
    };
    let opened = ServerTls::open(file.clone(), key.clone()).map_err(|error| error.to_string());
    let validity = opened.and_then(|_| {
        std::fs::read(file)
            .ok()
            .and_then(|pem| certificate::validity(&pem))
            .ok_or_else(|| format!("{} has no time that could be read", show_path(file)))
    });
    let hint = "renew it; a changed certificate is used without a restart";
    match validity {
        Ok(validity) => certificate::finding(WHAT, validity, now, hint),
        Err(what) => {
            let hint = "--tls-cert names the certificate and those that issued it, --tls-key its key, both in PEM";
            Finding::fail(WHAT, what, hint)
        }
    }
}

/// Whether the address can be listened on.
fn listening(args: &CheckedServer) -> Finding {
    const WHAT: &str = "listen";
    match TcpListener::bind(args.listen) {
        Ok(_) => Finding::ok(WHAT, format!("{} is free", args.listen)),
        Err(error) => running::finding(WHAT, args).unwrap_or_else(|| {
            Finding::note(
                WHAT,
                format!("{} cannot be listened on now: {error}", args.listen),
                "if that is the server itself, all is well; otherwise name another port: --listen",
            )
        }),
    }
}

/// Whether the addresses of browsers and of the server go together.
fn public(args: &CheckedServer) -> Finding {
    const WHAT: &str = "public";
    let is_local = args.listen.ip().is_loopback();
    let (has_tls, listen) = (args.tls_cert.is_some(), args.listen);
    let Some(host) = &args.public else {
        return match is_local {
            true => Finding::ok(WHAT, "browsers of this machine only"),
            false => Finding::fail(
                WHAT,
                format!("other machines could reach {listen}, and no host is named"),
                "listen on 127.0.0.1; or name the host in the address bar of browsers: --public HOST",
            ),
        };
    };
    let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let by_proxy = port.is_none() && !has_tls;
    match (by_proxy, has_tls) {
        (true, _) if is_local => {
            Finding::ok(WHAT, format!("https://{host}, by a proxy with TLS on this machine"))
        }
        (true, _) => Finding::note(
            WHAT,
            format!(
                "https://{host}, by a proxy; but others reach {listen} without it and without TLS"
            ),
            "listen on 127.0.0.1 if the proxy is on this machine, and let a firewall admit it alone otherwise",
        ),
        (false, true) => with_tls(WHAT, host, port, listen),
        (false, false) => Finding::note(
            WHAT,
            format!("http://{host}, which others on the network can read"),
            "--tls-cert and --tls-key, or a proxy with TLS, whose host has no port here",
        ),
    }
}

fn with_tls(what: &'static str, host: &str, port: Option<u16>, listen: SocketAddr) -> Finding {
    let message = format!("https://{host}, with TLS at {listen}");
    if port.unwrap_or(443) == listen.port() {
        return Finding::ok(what, message);
    }
    let hint = "browsers use the port of --public, 443 without one; forward it, or listen on it";
    Finding::note(what, message, hint)
}

fn people(config: &Config, file: &Path, is_public: bool) -> Finding {
    const WHAT: &str = "people";
    let tokens = state_folder().map(|folder| TokenFile::in_folder(&folder));
    let config_file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let hint = "`conclave server token add NAME --role ROLE` gives a person a token";
    match People::find(&config.server, tokens, config_file) {
        Err(error) => Finding::fail(
            WHAT,
            format!("the tokens of people cannot be read: {error}"),
            "`conclave server token list` names the file; its owner must be able to read it",
        ),
        Ok(people) if people.are_known() => {
            let of_config = config.server.users.len() as u64;
            let of_config = plural(of_config, "person", "people");
            Finding::ok(WHAT, format!("log in with tokens; {of_config} in the config"))
        }
        Ok(_) if config.server.proxy.is_some() => Finding::ok(WHAT, "named by the proxy"),
        Ok(_) if is_public => Finding::note(
            WHAT,
            "nobody has a token: whoever gets the printed address first may talk to the agents",
            hint,
        ),
        Ok(_) => Finding::ok(WHAT, "nobody has a token; the printed address gives access"),
    }
}

/// Whether the header of the proxy can come from others.
fn trusted(proxy: &TrustedProxy, args: &CheckedServer) -> Finding {
    const WHAT: &str = "proxy";
    let (header, from) = (&proxy.header, &proxy.from);
    let names: Vec<String> = from.iter().map(ToString::to_string).collect();
    let message = format!("`{header}` counts from {}", names.join(", "));
    if from.iter().any(|network| network.prefix_len() == 0) {
        let hint = "name the addresses of the proxy alone in `[server.proxy] from`";
        return Finding::fail(WHAT, format!("{message}: everybody can be anybody"), hint);
    }
    if args.public.is_none() {
        let hint = "name the host of the proxy: --public HOST";
        return Finding::note(WHAT, format!("{message}, but no host of it is named"), hint);
    }
    if from.iter().any(|network| network.addr().is_loopback()) {
        let hint = "let nobody else use this machine, or give the proxy an address of its own";
        return Finding::note(
            WHAT,
            format!("{message}: all users of this machine are believed"),
            hint,
        );
    }
    Finding::ok(WHAT, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::machine::CheckResult::{Fail, Note, Ok as Well};

    fn checked(listen: &str, public: Option<&str>, has_tls: bool) -> CheckedServer {
        let file = has_tls.then(|| "x.pem".into());
        CheckedServer {
            server: true,
            listen: listen.parse().expect("an address"),
            public: public.map(str::to_owned),
            tls_cert: file.clone(),
            tls_key: file,
            store: None,
        }
    }

    #[test]
    fn an_address_that_others_reach_needs_a_host_and_tls() {
        for (listen, host, has_tls, state) in [
            ("127.0.0.1:8800", None, false, Well),
            ("0.0.0.0:8800", None, false, Fail),
            ("127.0.0.1:8800", Some("chat.example.org"), false, Well),
            ("0.0.0.0:8800", Some("chat.example.org"), false, Note),
            ("0.0.0.0:8800", Some("192.0.2.7:8800"), false, Note),
            ("0.0.0.0:8443", Some("chat.example.org:8443"), true, Well),
            ("0.0.0.0:8443", Some("chat.example.org"), true, Note),
            ("0.0.0.0:443", Some("chat.example.org"), true, Well),
        ] {
            let finding = public(&checked(listen, host, has_tls));
            assert_eq!(finding.state, state, "{listen} {host:?} {has_tls}: {finding:?}");
        }
    }

    #[test]
    fn a_header_that_everybody_can_send_is_refused() {
        let of = |from: &str, host| {
            let from = vec![from.parse().expect("a network")];
            let proxy = TrustedProxy { header: "x-user".to_owned(), from, role: None };
            trusted(&proxy, &checked("127.0.0.1:8800", host, false)).state
        };
        let host = Some("chat.example.org");
        assert_eq!(of("0.0.0.0/0", host), Fail);
        assert_eq!(of("127.0.0.1/32", host), Note);
        assert_eq!(of("192.0.2.7/32", None), Note);
        assert_eq!(of("192.0.2.7/32", host), Well);
    }

    #[test]
    fn a_clock_behind_the_store_is_wrong() {
        let now = Millis(EARLIEST.0 + 10_000);
        assert_eq!(clock(now, None).state, Well);
        assert_eq!(clock(now, Some(EARLIEST)).state, Well);
        assert_eq!(clock(now, Some(Millis(now.0 + 5_000))).state, Fail);
        assert_eq!(clock(Millis(5), None).state, Fail);
    }
}
