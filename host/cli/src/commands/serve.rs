//! `conclave serve [CONFIG…]`: serves configs to browsers and programs. Each conversation on the page
//! is a persistent room. The address goes to stdout, everything else to stderr.

mod configs;
mod operator;
mod provider;
mod reload;
mod service;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use conclave_core::config::{Config, RunRetention};
use conclave_core::types::ids::RoomId;
use conclave_runtime::Prepared;
use conclave_runtime::clock::{Clock, SystemClock};
use conclave_runtime::store::Store;
use conclave_runtime::subscribe::Subscriber;
use conclave_server::{
    API_RUN, Address, ConfigParts, Conversations, Encryption, Gateway, Operator, People, RoomParts,
    ServerError, ServerTls, TokenFile,
};
use serde_json::json;
use tokio::net::TcpListener;

use self::configs::{ServedConfig, StoredConfig, absolute};
use self::operator::{OperatorTerminal, url};
use self::reload::{ConfigReloader, RunningConfig};
use self::service::ServiceManager;
use crate::approve::PendingLine;
use crate::args::{self, ConfigArgument, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::session::context::JsonLinesOnStdout;
use crate::state::control_inbox::ControlListener;
use crate::state::setup::{self, EngineStart};
use crate::state::state_folder::state_folder;
use crate::state::telemetry;
use crate::ui::interrupt::{Interrupts, terminated};
use crate::ui::log::{self, LogFields, RunLog};
use crate::ui::screen::{Screen, Verbosity};
use crate::ui::show::trace::ServedTrace;
use crate::ui::show::{FAINT, ODD, head, paint, plural};
use crate::ui::stdout;

pub(crate) async fn serve(
    args: args::Serve,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    log::begin(args.log.format);
    service::allow_files();
    let models = args.model.models()?;
    check_listen(&args)?;
    let tls = tls(&args)?;
    let configs = ServedConfig::read_all(&args, &models)?;
    let people = configs.iter().map(|of| people(&of.config, &of.file));
    let people = people.collect::<Result<Vec<_>, _>>()?;
    let engine = EngineStart::begin();
    let configs = StoredConfig::open_all(&args, configs)?;
    // Before the plugins are loaded, so that a port in use is reported at once.
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        CliError::usage(format!("{} cannot be listened on: {error}", args.listen))
            .hint("name another port: --listen 127.0.0.1:0 takes a free one")
    })?;
    let address = listener.local_addr().map_err(|error| CliError::internal(error.to_string()))?;
    let screen = Screen::new(Verbosity::of(output));
    let reached = reached(&args, address, tls.is_some());
    let page = reached.page();
    let operator: Arc<dyn Operator> =
        Arc::new(OperatorTerminal { screen: Arc::clone(&screen), output, page: page.clone() });
    let stores = configs.iter().map(|config| (&*config.of.file, &config.storage));
    let hosts = setup::open_hosts_keeping(stores, engine)?;
    let (mut parts, mut attending, mut served) = (Vec::new(), Vec::new(), Vec::new());
    let mut running = Vec::new();
    for ((config, people), host) in configs.iter().zip(people).zip(hosts) {
        let host = Arc::new(host);
        let of = &config.of;
        let locked = args.locked.locked;
        let prepared = setup::prepare_with(&host, (&of.file, &of.config), locked, output).await?;
        if !output.result_only() {
            head::print(&prepared, None, loading.elapsed());
        }
        attending.push(ControlListener::begin(&config.store, &host, &screen));
        let subscribers = subscribers(&prepared, (&args, &of.name), output, &screen);
        running.push(RunningConfig::new(of.clone(), host, Arc::clone(prepared.setup())));
        let conversations = Conversations::new(RoomParts {
            prepared,
            server: of.config.server.clone(),
            name: RoomId::from(of.room.as_str()),
            channel: of.channel.clone(),
            journals: config.storage.journals(),
            subscribers,
            operator: Arc::clone(&operator),
            run_journals: config.storage.of_command(API_RUN).journals(),
            store: config.store.clone(),
            config: absolute(&of.file),
        });
        // With people, each of them begins conversations of their own.
        let resumed = conversations.resume(&config.reader, !people.are_known()).await?;
        served.push((of, resumed));
        parts.push(ConfigParts { name: of.name.clone(), people, conversations });
    }
    let gateway = Gateway::new(reached, parts, &operator)?;
    let token = gateway.token();
    let url = token.as_ref().map_or_else(|| format!("{page}/"), |token| url(&page, token));
    let reloader = ConfigReloader::begin(running, models, args.locked.locked, (output, &screen));
    report(&args, &served, (&url, token.is_some()), (output, &screen))?;
    // The rooms are not stopped: they are resumed, as after a crash.
    interrupts.run_begins();
    interrupts.lingers();
    serve_until_stop((&gateway, reloader), listener, tls, &mut interrupts).await;
    drop(attending);
    leave(&configs, &gateway, &screen).await;
    let files: Vec<String> = args.configs.iter().map(ConfigArgument::words).collect();
    let command = format!("conclave serve {}", files.join(" "));
    screen.line(paint(FAINT, format_args!("\nclosed; the conversations continue with: {command}")));
    for line in configs.iter().flat_map(StoredConfig::lines_of_changes) {
        screen.line(paint(ODD, line));
    }
    // It blocks, and the runtime sends.
    let _ = tokio::task::spawn_blocking(telemetry::end).await;
    Interrupts::exit(exit::OK)
}

/// The subscribers of all rooms of a config, besides their pages.
fn subscribers(
    prepared: &Prepared,
    (args, config): (&args::Serve, &str),
    output: OutputArgs,
    screen: &Arc<Screen>,
) -> Vec<Arc<dyn Subscriber>> {
    let mut subscribers: Vec<Arc<dyn Subscriber>> = Vec::new();
    if output.json {
        subscribers.push(Arc::new(JsonLinesOnStdout));
    }
    if log::is_json() {
        let config = (args.configs.len() > 1).then(|| config.to_owned());
        let log = RunLog::new(config, args.verbose);
        subscribers.extend((!output.quiet).then(|| Arc::new(log) as _));
    } else if !output.json {
        if !output.quiet {
            let setup = Arc::clone(prepared.setup());
            subscribers.push(Arc::new(ServedTrace::new(Arc::clone(screen), args.verbose, setup)));
        }
        subscribers.push(Arc::new(PendingLine { screen: Arc::clone(screen), is_run: false }));
    }
    telemetry::add(&mut subscribers);
    subscribers
}

/// Notes the stop in each store, stops the rooms, and releases their runs for the next server.
async fn leave(configs: &[StoredConfig], gateway: &Gateway, screen: &Screen) {
    let mut stores: Vec<&Store> = Vec::new();
    for StoredConfig { store, .. } in configs {
        if stores.iter().all(|other| other.address() != store.address()) {
            stores.push(store);
        }
    }
    for store in &stores {
        // Before the rooms stop, because then they are no more this process's. Without the note, a
        // resumption would know only the time since each conversation's last record.
        let (stopping, stopped) = (Store::clone(store), SystemClock.now());
        let note_result = tokio::task::spawn_blocking(move || stopping.note_stop(stopped)).await;
        if let Ok(Err(error)) = note_result {
            screen.line(paint(ODD, format_args!("the time of this stop was not noted: {error}")));
        }
    }
    gateway.stop_rooms().await;
    // Their runs are free for the next server at once, and not when the lease of this process is
    // over.
    #[cfg(feature = "postgres")]
    for store in &stores {
        let leaving = Store::clone(store);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || leaving.leave()).await {
            screen.line(paint(ODD, format_args!("the conversations were not released: {error}")));
        }
    }
}

/// Serves until the program is to end, and reports the beginning and the end to a service manager.
async fn serve_until_stop(
    (gateway, reloader): (&Gateway, ConfigReloader),
    listener: TcpListener,
    tls: Option<ServerTls>,
    interrupts: &mut Interrupts,
) {
    let manager = ServiceManager::of_environment();
    manager.ready();
    let stop = async {
        tokio::select! {
            () = interrupts.next() => {}
            () = terminated() => {}
            () = reloader.run(gateway.clone(), &manager) => {}
        }
        manager.stopping();
    };
    tokio::select! {
        () = gateway.serve(listener, tls, stop) => {}
        () = manager.live() => {}
    }
}

/// The people of a config and of its provider, and those with tokens in the state folder.
fn people(config: &Config, file: &Path) -> Result<People, CliError> {
    let tokens = state_folder().map(|folder| TokenFile::in_folder(&folder));
    let people = People::find(&config.server, tokens, absolute(file)).map_err(|error| {
        CliError::internal(format!("the tokens of people cannot be read: {error}"))
            .hint("`conclave server token list` names the file")
    })?;
    provider::with_provider(people, config, file)
}

/// Where browsers reach the server.
fn reached(args: &args::Serve, address: SocketAddr, has_tls: bool) -> Address {
    let hosts = hosts(address, args.public.as_deref());
    let encryption = match args.public.as_deref() {
        _ if has_tls => Encryption::Server,
        // A host without a port is that of a proxy, which has TLS.
        Some(public) if !has_port(public) => Encryption::Proxy,
        _ => Encryption::None,
    };
    Address { port: address.port(), hosts, is_public: args.public.is_some(), encryption }
}

/// The certificate with which the server encrypts, if the arguments name one.
fn tls(args: &args::Serve) -> Result<Option<ServerTls>, CliError> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let opened = ServerTls::open(certificate.clone(), key.clone());
    opened.map(Some).map_err(|error| {
        CliError::usage(format!("there is no TLS: {error}"))
            .hint("--tls-cert and --tls-key name the certificate and its key, each a file in PEM")
    })
}

/// Prints where the page is. Each config comes with the number of conversations that were resumed.
fn report(
    args: &args::Serve,
    served: &[(&ServedConfig, usize)],
    (url, gives_access): (&str, bool),
    (output, screen): (OutputArgs, &Arc<Screen>),
) -> Result<(), CliError> {
    if output.json {
        let value = |(of, resumed): &(&ServedConfig, usize)| {
            let mut value = json!({ "channel": of.channel, "room": of.room, "resumed": resumed });
            if let Some(RunRetention { days, runs }) = of.config.server.keep {
                value["keep"] = json!({ "days": days, "runs": runs });
            }
            value
        };
        let mut line = match served {
            [only] => value(only),
            several => {
                let configs = several.iter().map(|config| {
                    let mut value = value(config);
                    value["config"] = config.0.name.as_str().into();
                    value
                });
                json!({ "configs": configs.collect::<Vec<_>>() })
            }
        };
        (line["type"], line["url"]) = ("serving".into(), url.into());
        return stdout::queue_json(line);
    }
    if args.public.is_some() && gives_access {
        let plain = match args.tls_cert {
            Some(_) => "",
            None => ", and without a proxy with TLS others on the network can read it",
        };
        let who =
            "other machines can reach this server: whoever has the address may talk to the agents";
        screen.notice(paint(ODD, format_args!("{who}{plain}")));
    }
    let how = if gives_access { "which gives access" } else { "and log in with a token" };
    let open = format!("open this address, {how}; Ctrl-C closes");
    for (of, resumed) in served {
        let what = served_line(of, *resumed);
        let line = match served {
            [_] => format!("serving {what}; {open}"),
            _ => format!("serving {}: {what}", of.name),
        };
        let name = (served.len() > 1).then(|| of.name.clone());
        let fields = LogFields { config: name, ..LogFields::of("serving") };
        screen.log_line(&fields, paint(FAINT, line));
        if let Some(keep) = &of.config.server.keep {
            screen.log_line(&fields, paint(FAINT, format_args!("  {}", kept_line(keep))));
        }
    }
    if served.len() > 1 {
        screen.line(paint(FAINT, open));
    }
    stdout::queue(format!("{url}\n"))
}

/// Which ended runs of a config stay.
fn kept_line(keep: &RunRetention) -> String {
    let parts = [
        keep.days.map(|days| format!("for {}", plural(days, "day", "days"))),
        keep.runs.map(|runs| format!("while they are among the newest {runs}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("ended runs stay {}; then they are removed", parts.join(", or "))
}

fn served_line(of: &ServedConfig, resumed: usize) -> String {
    let Some(channel) = &of.channel else {
        return "runs that are started by the API, because the config has no channel of kind `web`"
            .to_owned();
    };
    let resumed = match resumed {
        0 => String::new(),
        count => format!(", {} resumed", plural(count as u64, "conversation", "conversations")),
    };
    format!("the channel {channel} of room {}{resumed}", of.room)
}

/// Checks that only this machine can reach the address, unless the operator says otherwise.
fn check_listen(args: &args::Serve) -> Result<(), CliError> {
    let is_local = args.listen.ip().is_loopback();
    let host = args.public.as_deref();
    match host {
        None if !is_local => {
            let what =
                format!("other machines could reach {}, and talk to the agents", args.listen);
            let hint = "listen on 127.0.0.1; or, behind a proxy with TLS, name the host in the address bar of browsers: --public HOST";
            Err(CliError::usage(what).hint(hint))
        }
        Some(host) if !is_host(host) => {
            Err(CliError::usage(format!("--public {} is no host", shell(host)))
                .hint("write a name or address, such as chat.example.org or 192.0.2.7:8800"))
        }
        _ => Ok(()),
    }
}

/// Whether the text is a host with or without a port, as in the header `Host`.
fn is_host(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') && text.chars().all(is_plain)
}

/// The values of `Host` under which browsers reach the server, the printed one first.
fn hosts(address: SocketAddr, public: Option<&str>) -> Vec<String> {
    let port = address.port();
    let mut hosts = Vec::new();
    // A proxy passes on the host that the browser named.
    hosts.extend(public.map(str::to_ascii_lowercase));
    if address.ip().is_loopback() {
        hosts.extend([address.to_string(), format!("localhost:{port}")]);
    }
    // Browsers leave the usual port out.
    let short = hosts.iter().filter_map(|host| host.strip_suffix(":80")).map(str::to_owned);
    let short: Vec<String> = short.collect();
    hosts.extend(short);
    hosts
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

impl From<ServerError> for CliError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Store(error) => error.into(),
            ServerError::Resume(error) => error.into(),
            error => Self::internal(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::show::run_state;

    #[test]
    fn the_command_of_a_servers_runs_is_one_word_everywhere() {
        assert_eq!(API_RUN, run_state::API_RUN);
    }

    #[test]
    fn browsers_reach_the_server_only_under_its_own_names() {
        let of = |address: &str, public| hosts(address.parse().expect("an address"), public);
        assert_eq!(of("127.0.0.1:8800", None), ["127.0.0.1:8800", "localhost:8800"]);
        assert_eq!(of("[::1]:80", None), ["[::1]:80", "localhost:80", "[::1]", "localhost"]);
        assert_eq!(of("0.0.0.0:8800", Some("Chat.example.org")), ["chat.example.org"]);
        assert_eq!(of("0.0.0.0:80", Some("192.0.2.7:80")), ["192.0.2.7:80", "192.0.2.7"]);
        assert!(has_port("192.0.2.7:80") && has_port("[::1]:80"));
        assert!(!has_port("chat.example.org") && !has_port("[::1]"));
        for host in ["a b", "http://a", "", "a/b", "a@b", "-a"] {
            assert!(!is_host(host), "{host}");
        }
    }
}
