//! Clients for the models of a config: from a script, from the embedding program or for a server.
//! No request is sent while they are made.

use std::collections::HashMap;
use std::sync::Arc;

use conclave_core::config::{
    Config, ConfigProblem, ModelConfig, ModelKind, ModelServerConfig, ProblemCode, Problems,
};
#[cfg(feature = "http-models")]
use conclave_core::types::completion::{ModelDiagnostic, ModelDiagnosticKind};
use conclave_core::types::ids::ModelName;
#[cfg(feature = "http-models")]
use conclave_models::http::{HttpModel, HttpModelError, HttpModelSettings, ProbeFailure};
use conclave_models::{ModelClient, Scripted};
#[cfg(feature = "http-models")]
use std::time::{Duration, Instant};

use super::Host;
#[cfg(feature = "http-models")]
use crate::imports::secrets::KeyOf;

/// The reply of a model server to the request for its list of models.
#[cfg(feature = "http-models")]
#[derive(Clone, Debug)]
pub struct Probe {
    /// The name of the model in the config.
    pub name: ModelName,
    /// The server's base URL, from the config.
    pub url: String,
    /// The name of the model at the server.
    pub model: String,
    /// The models that the server has; empty if it does not list them.
    pub answer: Result<Vec<String>, ProbeFailure>,
    /// The duration of the request.
    pub took: Duration,
}

type Clients = HashMap<ModelName, Arc<dyn ModelClient>>;

impl Host {
    /// Returns a client for every model that one can be made for.
    ///
    /// The second value is the number of problems that are missing keys.
    pub(super) fn clients(&self, config: &Config, problems: &mut Problems) -> (Clients, usize) {
        let mut keyless = 0;
        let mut clients = Clients::new();
        for (name, model) in &config.models {
            let client = match &model.kind {
                ModelKind::Scripted { replies } => scripted(&replies.path).map_err(|what| {
                    vec![config.problem(
                        ProblemCode::UnreadableFile,
                        &format!("models.{name}.replies"),
                        what,
                    )]
                }),
                ModelKind::Native => self.native_client(config, name),
                ModelKind::Server(server) => self.server_client(config, name, server),
            };
            match client {
                Ok(client) => drop(clients.insert(name.clone(), client)),
                Err(found) => {
                    keyless += usize::from(self.lacks_key(model));
                    found.into_iter().for_each(|problem| problems.push(problem));
                }
            }
        }
        (clients, keyless)
    }

    fn lacks_key(&self, model: &ModelConfig) -> bool {
        matches!(&model.kind, ModelKind::Server(server) if server.key.as_ref().is_some_and(|from| self.secrets.check(from).is_err()))
    }

    fn native_client(
        &self,
        config: &Config,
        name: &ModelName,
    ) -> Result<Arc<dyn ModelClient>, Vec<ConfigProblem>> {
        if let Some(client) = self.models.get(name.as_str()) {
            return Ok(Arc::clone(client));
        }
        let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
        let help = if known.is_empty() {
            "this program speaks to no model itself: take another `kind`".to_owned()
        } else {
            format!("these are there: {}", known.join(", "))
        };
        Err(vec![
            config
                .problem(
                    ProblemCode::NoClient,
                    &format!("models.{name}.kind"),
                    format!("this program has no model `{name}`"),
                )
                .help(help),
        ])
    }

    #[cfg(feature = "http-models")]
    fn server_client(
        &self,
        config: &Config,
        name: &ModelName,
        server: &ModelServerConfig,
    ) -> Result<Arc<dyn ModelClient>, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        if let Some(Err(what)) = server.key.as_ref().map(|from| self.secrets.check(from)) {
            problems.push(config.problem(
                ProblemCode::MissingSecret,
                &format!("models.{name}.key"),
                format!("the key of the model `{name}` cannot be read: {what}"),
            ));
        }
        match self.open_client(server) {
            Ok(client) if problems.is_empty() => Ok(Arc::new(client)),
            Ok(_) => Err(problems),
            Err(error) => {
                problems.push(config.problem(
                    ProblemCode::InvalidValue,
                    &format!("models.{name}"),
                    error.to_string(),
                ));
                Err(problems)
            }
        }
    }

    #[cfg(feature = "http-models")]
    fn open_client(&self, server: &ModelServerConfig) -> Result<HttpModel, HttpModelError> {
        let from = |from: &conclave_core::config::KeyRef| KeyOf {
            secrets: Arc::clone(&self.secrets),
            from: from.clone(),
        };
        HttpModel::new(HttpModelSettings {
            api: server.api,
            url: server.url.clone(),
            model: server.model.clone(),
            key: server
                .key
                .as_ref()
                .map(|key| Arc::new(from(key)) as Arc<dyn conclave_models::KeySource>),
            headers: server.headers.clone(),
            options: server.options.clone(),
            proxy: server.proxy.clone(),
            retries: server.retries,
            timeout: Duration::from_millis(server.timeout_ms),
            attempt_timeout: Duration::from_millis(server.attempt_timeout_ms),
            idle_timeout: Duration::from_millis(server.idle_timeout_ms),
            reply_max: server.reply_max,
            thinking: server.thinking.clone(),
            images: Arc::clone(&self.blobs) as Arc<dyn conclave_models::BlobSource>,
            ..HttpModelSettings::default()
        })
    }

    /// Requests the list of models from the server of each model. This checks the connection and
    /// the key, and costs nothing.
    #[cfg(feature = "http-models")]
    pub async fn probe(&self, config: &Config) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (name, model) in &config.models {
            let ModelKind::Server(server) = &model.kind else { continue };
            let began = Instant::now();
            let answer = match self.open_client(server) {
                Ok(client) => client.probe().await,
                Err(error) => Err(ProbeFailure {
                    trouble: ModelDiagnostic {
                        kind: ModelDiagnosticKind::Unreachable,
                        text: error.to_string(),
                    },
                    is_loading: false,
                }),
            };
            probes.push(Probe {
                name: name.clone(),
                url: server.url.clone(),
                model: server.model.clone(),
                answer,
                took: began.elapsed(),
            });
        }
        probes
    }

    #[cfg(not(feature = "http-models"))]
    fn server_client(
        &self,
        config: &Config,
        name: &ModelName,
        _: &ModelServerConfig,
    ) -> Result<Arc<dyn ModelClient>, Vec<ConfigProblem>> {
        // Unused in this build; the fields exist in every build.
        let _ = (&self.secrets, &self.blobs);
        let what = "this program was built without a client for model servers";
        let help = "build it with the feature `http-models` of conclave-runtime, or take `kind = \"native\"`";
        Err(vec![
            config.problem(ProblemCode::NoClient, &format!("models.{name}.kind"), what).help(help),
        ])
    }
}

fn scripted(path: &str) -> Result<Arc<dyn ModelClient>, String> {
    let script = std::fs::read_to_string(path)
        .map_err(|error| format!("{path} could not be read: {error}"))?;
    Ok(Arc::new(Scripted::parse(&script).map_err(|error| format!("{path}: {error}"))?))
}
