//! The start of a server's program, confined to the grants of its plugin by the launcher of
//! `grants.exec`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use conclave_core::config::{PluginConfig, ServerLimits};
use conclave_core::permissions::grants::{Grants, Rights};
use conclave_core::permissions::manifest::{CapabilityRequest, Manifest};
use conclave_core::setup::ServerConfinement;
use conclave_core::types::capability::Capability;
use conclave_core::types::denial::DenialRecord;
use conclave_core::types::ids::PluginName;

use crate::imports::exec::trees::{Lookup, ResolvedCommand};
use crate::imports::exec::{
    LaunchFailure, NetworkAccess, OnListener, PROXY_PORT, ProgramLauncher, ProgramSpec,
    ServerPipes, ServerProcess,
};

/// Refusals that are remembered until somebody takes them. A server can cause many.
#[cfg(feature = "fetch")]
const REFUSALS: usize = 100;

/// Starts the program of a server, confined to the grants of its plugin.
#[derive(Clone)]
pub struct ServerLauncher(Arc<LauncherState>);

struct LauncherState {
    launcher: Option<Arc<ProgramLauncher>>,
    rights: ServerRights,
    limits: ServerLimits,
    surroundings: ServerSurroundings,
    reach: Mutex<ServerConfinement>,
    refusals: Refusals,
}

/// The places of a config that the code of a confined server may not come from.
#[derive(Clone, Debug, Default)]
pub(in crate::host) struct ServerSurroundings {
    /// Files and folders that no plugin may read, such as keys, with links resolved.
    pub(in crate::host) secret: Vec<PathBuf>,
    /// The folders that each plugin may write, with links resolved.
    pub(in crate::host) writable: Vec<(PluginName, PathBuf)>,
}

impl ServerSurroundings {
    fn folders(&self) -> Vec<PathBuf> {
        self.writable.iter().map(|(_, folder)| folder.clone()).collect()
    }

    /// Checks what was found for the command of a server, and the programs that it may start. It is
    /// checked at each start: a plugin may have changed its folders since the one before.
    fn check(
        &self,
        server: &PluginName,
        found: &ResolvedCommand,
        starts: Vec<PathBuf>,
    ) -> Result<(), String> {
        let meet = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
        for path in &found.read {
            if self.secret.iter().any(|secret| meet(path, secret)) {
                return Err(format!(
                    "{}, which its command needs, has files that no plugin may read; keep the server apart from keys and from the host's folders",
                    path.display()
                ));
            }
        }
        for path in found.read.iter().chain(&found.starts).chain(&starts) {
            let others = self.writable.iter().filter(|(plugin, _)| plugin != server);
            if let Some((plugin, folder)) = others.into_iter().find(|it| meet(path, &it.1)) {
                return Err(format!(
                    "{}, which its command needs, can be changed by {plugin}, which may write {}; grant {plugin} a folder of its own",
                    path.display(),
                    folder.display()
                ));
            }
        }
        Ok(())
    }
}

/// The environment of a server's program.
#[derive(Clone, Debug, Default)]
pub struct ServerEnvironment {
    /// The `PATH` of the host, on which the command is looked for; the program gets it too.
    pub path: Option<String>,
    /// The home of the user, in which installers keep packages. The program does not get it.
    pub home: Option<String>,
    /// The variables of the config, which may hold keys.
    pub variables: BTreeMap<String, String>,
}

/// A running server. Dropping it ends its program, and its way out.
pub struct ConfinedServer {
    #[cfg(feature = "fetch")]
    _proxy: Option<super::proxy::ProxyTask>,
    process: ServerProcess,
}

impl ConfinedServer {
    /// How the program ended; `None` while it runs.
    #[must_use]
    pub fn ended(&self) -> Option<Result<String, LaunchFailure>> {
        self.process.ended()
    }
}

impl fmt::Debug for ConfinedServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ConfinedServer").field(&self.process).finish()
    }
}

/// What a server's plugin may do.
#[derive(Clone, Debug)]
pub(super) struct ServerRights {
    plugin: PluginName,
    manifest: Manifest,
    pub(super) grants: Grants,
}

impl ServerRights {
    pub(super) fn rights(&self) -> Rights<'_> {
        let Self { plugin, manifest, grants } = self;
        Rights { plugin: plugin.as_str(), manifest, grants, narrowed: None }
    }
}

/// What was refused to a server, until a call or the operator hears of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<Vec<DenialRecord>>>);

impl Refusals {
    /// Remembers a refusal, once.
    #[cfg(feature = "fetch")]
    pub(super) fn add(&self, record: &DenialRecord) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < REFUSALS && !all.contains(record) {
            all.push(record.clone());
        }
    }
}

/// The requests of a server whose program is confined. It can make use of these grants, and needs
/// none.
pub(in crate::host) fn requests() -> BTreeMap<String, CapabilityRequest> {
    let request = |why: &str| CapabilityRequest {
        why: why.to_owned(),
        optional: true,
        detail: BTreeMap::new(),
    };
    let files = request("Its program reads and writes the folders that it was granted.");
    let fetch = request("Its program reaches the addresses that it was granted, by a proxy.");
    let entry = |capability: Capability, request| (capability.as_str().to_owned(), request);
    [entry(Capability::Files, files), entry(Capability::Fetch, fetch)].into()
}

impl ServerLauncher {
    pub(in crate::host) fn new(
        launcher: Option<Arc<ProgramLauncher>>,
        plugin: &PluginName,
        config: &PluginConfig,
        limits: &ServerLimits,
        surroundings: ServerSurroundings,
    ) -> Self {
        let manifest = Manifest { asks: requests(), ..Manifest::default() };
        let grants = config.grants.clone();
        Self(Arc::new(LauncherState {
            launcher,
            rights: ServerRights { plugin: plugin.clone(), manifest, grants },
            limits: limits.clone(),
            surroundings,
            reach: Mutex::default(),
            refusals: Refusals::default(),
        }))
    }

    /// Starts a command in a folder.
    ///
    /// # Errors
    /// Returns why the program cannot be found or started. A kernel that cannot confine it may also
    /// be the end of the program, right after its start.
    pub fn start(
        &self,
        command: &[String],
        folder: &Path,
        environment: &ServerEnvironment,
    ) -> Result<(ConfinedServer, ServerPipes), LaunchFailure> {
        let state = &*self.0;
        let launcher = state
            .launcher
            .as_ref()
            .ok_or_else(|| LaunchFailure::Unconfined("this host starts no programs".to_owned()))?;
        let folder = std::path::absolute(if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        });
        let folder = folder.map_err(|error| LaunchFailure::NotStarted(error.to_string()))?;
        let lookup = Lookup {
            path: environment.path.as_deref(),
            home: environment.home.as_deref().map(Path::new),
            folder: &folder,
            writable: &state.surroundings.folders(),
        };
        let found = lookup.resolve(command).map_err(LaunchFailure::NotStarted)?;
        let starts = state.limits.starts.iter().filter_map(|it| Path::new(it).canonicalize().ok());
        state
            .surroundings
            .check(&state.rights.plugin, &found, starts.collect())
            .map_err(LaunchFailure::NotStarted)?;
        *state.reach.lock().unwrap_or_else(PoisonError::into_inner) = state.reach_of(&found);
        let has_network = state.rights.grants.fetch.is_some();
        let spec = state.spec(found, folder, environment, has_network);
        let (proxy, on_listener) = if has_network { state.proxy()? } else { (None, None) };
        let (process, pipes) = launcher.start_server(spec, on_listener)?;
        #[cfg(not(feature = "fetch"))]
        let _: Option<()> = proxy;
        let server = ConfinedServer {
            #[cfg(feature = "fetch")]
            _proxy: proxy,
            process,
        };
        Ok((server, pipes))
    }

    /// The refusals that nobody has taken.
    #[must_use]
    pub fn refusals(&self) -> Vec<DenialRecord> {
        self.0.refusals.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the refusals since the last time.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<DenialRecord> {
        let refusals = &self.0.refusals.0;
        std::mem::take(&mut *refusals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What the program reaches besides its grants, once it was started.
    pub(in crate::host) fn reach(&self) -> ServerConfinement {
        self.0.reach.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(feature = "fetch")]
type Proxy = super::proxy::ProxyTask;
#[cfg(not(feature = "fetch"))]
type Proxy = ();

impl LauncherState {
    #[cfg(feature = "fetch")]
    fn proxy(&self) -> Result<(Option<Proxy>, Option<OnListener>), LaunchFailure> {
        let (task, on_listener) = super::proxy::prepare(self.rights.clone(), &self.refusals);
        Ok((Some(task), Some(on_listener)))
    }

    #[cfg(not(feature = "fetch"))]
    fn proxy(&self) -> Result<(Option<Proxy>, Option<OnListener>), LaunchFailure> {
        let why = "this host is built without `fetch`, by which it would reach its addresses";
        Err(LaunchFailure::NotStarted(why.to_owned()))
    }

    fn reach_of(&self, found: &ResolvedCommand) -> ServerConfinement {
        let texts = |found: &[PathBuf], more: &[String]| {
            let found = found.iter().map(|path| path.display().to_string());
            found.chain(more.iter().cloned()).collect()
        };
        ServerConfinement {
            reads: texts(&found.read, &self.limits.read),
            starts: texts(&found.starts, &self.limits.starts),
        }
    }

    fn spec(
        &self,
        found: ResolvedCommand,
        folder: PathBuf,
        environment: &ServerEnvironment,
        has_network: bool,
    ) -> ProgramSpec {
        let resolved = |path: &String| Path::new(path).canonicalize().ok();
        let rights = self.rights.rights();
        let folders = |writes: bool| {
            let granted = rights.program_folders().filter(move |it| it.mode.writes() == writes);
            granted.filter_map(|grant| resolved(&grant.dir))
        };
        let mut env = BTreeMap::new();
        env.extend(environment.path.clone().map(|path| ("PATH".to_owned(), path)));
        if has_network {
            env.extend(proxy_variables());
        }
        env.extend(environment.variables.clone());
        let limits = &self.limits;
        ProgramSpec {
            program: found.program.display().to_string(),
            arguments: found.arguments,
            directory: Some(folder),
            read: found
                .read
                .into_iter()
                .chain(limits.read.iter().filter_map(resolved))
                .chain(folders(false))
                .collect(),
            starts: found
                .starts
                .into_iter()
                .chain(limits.starts.iter().filter_map(resolved))
                .collect(),
            write: folders(true).collect(),
            env,
            network: if has_network { NetworkAccess::Proxy } else { NetworkAccess::None },
            is_server: true,
            required: true,
            cpu_ms: limits.cpu_ms,
            memory: limits.memory,
            processes: limits.processes,
            file_size: limits.file_size,
        }
    }
}

/// The variables by which programs find a proxy. Node.js needs one more to look at them.
fn proxy_variables() -> impl Iterator<Item = (String, String)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
    let proxies = names.map(|name| (name, proxy.clone()));
    let others = [("NO_PROXY", ""), ("no_proxy", ""), ("NODE_USE_ENV_PROXY", "1")];
    let others = others.map(|(name, value)| (name, value.to_owned()));
    proxies.into_iter().chain(others).map(|(name, value)| (name.to_owned(), value))
}
