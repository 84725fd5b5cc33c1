//! `conclave serve [CONFIG]`: serves a channel of kind `web` to browsers. Each conversation on its
//! page is a persistent room. The address goes to stdout, everything else to stderr.

mod operator;
mod provider;
mod service;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use conclave_core::config::Config;
use conclave_core::types::channel::ChannelKind;
use conclave_core::types::ids::{ChannelId, RoomId};
use conclave_runtime::clock::{Clock, SystemClock};
use conclave_runtime::store::{RunFilter, RunRow, StoreAddress, StoreReader};
use conclave_runtime::subscribe::Subscriber;
use conclave_server::{
    API_RUN, Access, Address, Conversations, Encryption, Operator, People, RoomParts, Server,
    ServerError, ServerTls, TokenFile,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use self::operator::{OperatorTerminal, url};
use self::service::ServiceManager;
use crate::approve::PendingLine;
use crate::args::{self, Keep, OutputArgs};
use crate::program::error::CliError;
use crate::program::exit;
use crate::program::shell::shell;
use crate::session::context::JsonLinesOnStdout;
use crate::session::ending::changes_line;
use crate::state::control_inbox::ControlListener;
use crate::state::journals::{RunCommand, RunStorage};
use crate::state::setup::{self, EngineStart};
use crate::state::state_folder::state_folder;
use crate::state::store_address::with_named_store;
use crate::state::stores::room_folder;
use crate::state::telemetry;
use crate::ui::interrupt::{Interrupts, terminated};
use crate::ui::screen::{Screen, Verbosity};
use crate::ui::show::run_state::{SERVED, is_of_server};
use crate::ui::show::trace::ServedTrace;
use crate::ui::show::{FAINT, ODD, head, paint, plural, show_path};
use crate::ui::stdout;

/// Bytes of a config's digest in the default name of its first room.
const DIGEST: usize = 4;

pub(crate) async fn serve(
    args: args::Serve,
    output: OutputArgs,
    mut interrupts: Interrupts,
) -> Result<u8, CliError> {
    let loading = Instant::now();
    service::allow_files();
    let (models, locked) = (args.model.models()?, args.locked.locked);
    check_listen(&args)?;
    let tls = tls(&args)?;
    let config = setup::read_config(&args.file, &models)?;
    let channel = channel(&config, args.channel.as_deref(), &args.file)?;
    let people = people(&config, &args.file)?;
    let name = args.room.clone().unwrap_or_else(|| default_room(&args.file));
    let engine = EngineStart::begin();
    let storage = storage(&args, &name, (&config, locked))?;
    let Some(store) = storage.store() else {
        return Err(CliError::internal("conversations need a store, and none is there"));
    };
    // After the storage is open: from here on no other process changes the rooms that are read.
    let reader = StoreReader::open(store.address())?;
    check_owner(&reader, &name, &args.file)?;
    // Before the plugins are loaded, so that a port in use is reported at once.
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        CliError::usage(format!("{} cannot be listened on: {error}", args.listen))
            .hint("name another port: --listen 127.0.0.1:0 takes a free one")
    })?;
    let address = listener.local_addr().map_err(|error| CliError::internal(error.to_string()))?;
    let host = Arc::new(setup::open_host_keeping(&args.file, &storage, engine)?);
    let prepared = setup::prepare_with(&host, (&args.file, &config), locked, output).await?;
    if !output.result_only() {
        head::print(&prepared, None, loading.elapsed());
    }
    let screen = Screen::new(Verbosity::of(output));
    let mut subscribers: Vec<Arc<dyn Subscriber>> = Vec::new();
    if output.json {
        subscribers.push(Arc::new(JsonLinesOnStdout));
    } else {
        if !output.quiet {
            let setup = Arc::clone(prepared.setup());
            subscribers.push(Arc::new(ServedTrace::new(Arc::clone(&screen), args.verbose, setup)));
        }
        subscribers.push(Arc::new(PendingLine { screen: Arc::clone(&screen), is_run: false }));
    }
    telemetry::add(&mut subscribers);
    let attending = ControlListener::begin(store, &host, &screen);
    let hosts = hosts(address, args.public.as_deref());
    let encryption = match args.public.as_deref() {
        _ if tls.is_some() => Encryption::Server,
        // A host without a port is that of a proxy, which has TLS.
        Some(public) if !has_port(public) => Encryption::Proxy,
        _ => Encryption::None,
    };
    let scheme = if encryption == Encryption::None { "http" } else { "https" };
    let page = format!("{scheme}://{}", hosts[0]);
    let operator: Arc<dyn Operator> =
        Arc::new(OperatorTerminal { screen: Arc::clone(&screen), output, page: page.clone() });
    let conversations = Conversations::new(RoomParts {
        prepared,
        name: RoomId::from(name.as_str()),
        channel: channel.clone(),
        journals: storage.journals(),
        subscribers,
        operator: Arc::clone(&operator),
        run_journals: storage.of_command(API_RUN).journals(),
        store: store.clone(),
        config: std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone()),
    });
    // With people, each of them begins conversations of their own.
    let resumed = conversations.resume(&reader, !people.are_known()).await?;
    let reached =
        Address { port: address.port(), hosts, is_public: args.public.is_some(), encryption };
    let access = Access::new(reached, people, operator)?;
    let url = access.token().map_or_else(|| format!("{page}/"), |token| url(&page, &token));
    let gives_access = access.token().is_some();
    report(&args, (&channel, &name, resumed), (&url, gives_access), (output, &screen))?;
    let server = Server::new(access, conversations);
    // The rooms are not stopped: they are resumed, as after a crash.
    interrupts.run_begins();
    interrupts.lingers();
    serve_until_stop(server, listener, tls, &mut interrupts).await;
    drop(attending);
    // Without the note, a resumption would know only the time since each conversation's last record.
    let (stopping, stopped) = (store.clone(), SystemClock.now());
    let note_result = tokio::task::spawn_blocking(move || stopping.note_stop(stopped)).await;
    if let Ok(Err(error)) = note_result {
        screen.line(paint(ODD, format_args!("the time of this stop was not noted: {error}")));
    }
    // Its runs are free for the next server at once, and not when the lease of this process is over.
    #[cfg(feature = "postgres")]
    let leaving = store.clone();
    #[cfg(feature = "postgres")]
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || leaving.leave()).await {
        screen.line(paint(ODD, format_args!("the conversations were not released: {error}")));
    }
    let command = format!("conclave serve {}", shell(&args.file.display().to_string()));
    screen.line(paint(FAINT, format_args!("\nclosed; the conversations continue with: {command}")));
    for line in changes_of_conversations(&reader, &name) {
        screen.line(paint(ODD, line));
    }
    // It blocks, and the runtime sends.
    let _ = tokio::task::spawn_blocking(telemetry::end).await;
    Interrupts::exit(exit::OK)
}

/// Serves until the program is to end, and reports the beginning and the end to a service manager.
async fn serve_until_stop(
    server: Server,
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
        }
        manager.stopping();
    };
    tokio::select! {
        () = server.serve(listener, tls, stop) => {}
        () = manager.live() => {}
    }
}

/// A line for each conversation with changes in overlays. They can be applied now, since no run has
/// them open.
fn changes_of_conversations(reader: &StoreReader, name: &str) -> Vec<String> {
    let runs = reader.runs(&RunFilter::default()).unwrap_or_default();
    let of_run =
        |row: RunRow| changes_line(&row.run, reader.pending_changes(&row.run).unwrap_or(0));
    let is_here = |row: &RunRow| row.command == API_RUN || is_served(&row.run, name);
    runs.into_iter().filter(is_here).filter_map(of_run).collect()
}

/// Whether the run is a conversation of the server with this name.
fn is_served(run: &RoomId, name: &str) -> bool {
    run.as_str().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The people of the config and of its provider, and those with tokens in the state folder.
fn people(config: &Config, file: &Path) -> Result<People, CliError> {
    let tokens = state_folder().map(|folder| TokenFile::in_folder(&folder));
    let config_file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let people = People::find(&config.server, tokens, config_file).map_err(|error| {
        CliError::internal(format!("the tokens of people cannot be read: {error}"))
            .hint("`conclave server token list` names the file")
    })?;
    provider::with_provider(people, config, file)
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

/// Prints where the page is.
fn report(
    args: &args::Serve,
    (channel, room, resumed): (&ChannelId, &str, usize),
    (url, gives_access): (&str, bool),
    (output, screen): (OutputArgs, &Arc<Screen>),
) -> Result<(), CliError> {
    if output.json {
        return stdout::queue_json(json!({
            "type": "serving", "url": url, "channel": channel, "room": room, "resumed": resumed,
        }));
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
    let resumed = match resumed {
        0 => String::new(),
        count => format!(", {} resumed", plural(count as u64, "conversation", "conversations")),
    };
    let how = if gives_access { "which gives access" } else { "and log in with a token" };
    screen.line(paint(
        FAINT,
        format_args!("serving the channel {channel} of room {room}{resumed}; open this address, {how}; Ctrl-C closes"),
    ));
    stdout::queue(format!("{url}\n"))
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

/// Returns the channel to serve.
fn channel(config: &Config, choice: Option<&str>, file: &Path) -> Result<ChannelId, CliError> {
    let web = || config.channels.iter().filter(|(_, binding)| binding.kind == ChannelKind::Web);
    let names: Vec<&str> = web().map(|(name, _)| name.as_str()).collect();
    match (choice, names.as_slice()) {
        (Some(choice), names) if names.contains(&choice) => Ok(ChannelId::from(choice)),
        (None, [only]) => Ok(ChannelId::from(*only)),
        (_, []) => {
            let name = choice.unwrap_or("web");
            let what = format!("{} has no channel of kind `web`", show_path(file));
            Err(CliError::usage(what)
                .hint(format!("add these lines to it:\n\n[channels.{name}]\nkind = \"web\"")))
        }
        (Some(choice), names) => {
            let what =
                format!("{} has no channel {} of kind `web`", show_path(file), shell(choice));
            Err(CliError::usage(what).known(
                choice,
                "its channels of that kind are",
                names.iter().copied(),
            ))
        }
        (None, [first, ..]) => {
            let what = format!("{} has several channels of kind `web`", show_path(file));
            Err(CliError::usage(what)
                .hint(format!("name one of {}: --channel {first}", names.join(", "))))
        }
    }
}

/// The name of a config's first room: the same for each start, and another for each config.
fn default_room(file: &Path) -> String {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let digest = Sha256::digest(file.as_os_str().as_encoded_bytes());
    let digest: String = digest.iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect();
    format!("{SERVED}-{digest}")
}

/// Opens the store of the conversations. If it is a folder, no other process may use it.
fn storage(
    args: &args::Serve,
    name: &str,
    (config, locked): (&Config, bool),
) -> Result<RunStorage, CliError> {
    let keep = with_named_store(&args.keep(), config)?;
    let of_room = || room_folder(name).map(StoreAddress::from);
    let store = keep.store.clone().or_else(of_room).ok_or_else(|| {
        CliError::internal("conversations need a store, and no state folder is known")
            .hint("set HOME or CONCLAVE_STATE, or name a store with --store")
    })?;
    let keep = Keep { store: Some(store), ..keep };
    let file = &args.file;
    RunStorage::open(&keep, RunCommand::new(SERVED, file, config, locked))
}

/// Checks that the rooms of the store are conversations of this config, and runs that people started
/// at its server; in a database, which others share, those conversations that have its name.
fn check_owner(reader: &StoreReader, name: &str, file: &Path) -> Result<(), CliError> {
    let rows = reader.runs(&RunFilter::default())?;
    let config = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let is_shared = reader.folder().is_none();
    let is_other =
        |row: &&RunRow| !is_of_server(&row.command) || row.config.as_ref() != Some(&config);
    let other = rows.iter().filter(|row| !is_shared || is_served(&row.run, name)).find(is_other);
    let Some(row) = other else { return Ok(()) };
    let of = row.config.as_deref().map_or_else(|| "no config".to_owned(), show_path);
    let what =
        format!("the store holds {}, which belongs to `conclave {}` of {of}", row.run, row.command);
    Err(CliError::usage(what)
        .hint("choose another name, or another store: --room NAME, --store STORE"))
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

    fn served_channel(text: &str, channel: Option<&str>) -> Result<String, String> {
        let config = format!(
            "entry = 'a'\n[plugins.a]\nsource = 'stock:chat'\n[tasks.a]\nagent = 'a'\n{text}"
        );
        let config = Config::parse("c.toml", "", &config).expect("it is a config");
        super::channel(&config, channel, Path::new("c.toml"))
            .map(|channel| channel.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_only_web_channel_is_served_and_of_several_the_named_one() {
        let (web, pager) = ("[channels.web]\nkind = 'web'\n", "[channels.pager]\nkind = 'text'\n");
        let both = format!("{web}{pager}[channels.shop]\nkind = 'web'\n");
        assert_eq!(served_channel(web, None).as_deref(), Ok("web"));
        assert_eq!(served_channel(&both, Some("shop")).as_deref(), Ok("shop"));
        for (text, channel, says) in [
            ("", None, "[channels.web]\nkind = \"web\""),
            (pager, Some("desk"), "[channels.desk]\nkind = \"web\""),
            (both.as_str(), None, "name one of shop, web: --channel shop"),
            (both.as_str(), Some("pager"), "its channels of that kind are: shop, web"),
        ] {
            let error = served_channel(text, channel).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
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

    #[test]
    fn each_config_has_a_room_of_its_own() {
        let (one, other) =
            (default_room(Path::new("/a/c.toml")), default_room(Path::new("/b/c.toml")));
        assert_eq!(one, default_room(Path::new("/a/c.toml")));
        assert!(one.starts_with("serve-") && one != other, "{one} {other}");
    }
}
