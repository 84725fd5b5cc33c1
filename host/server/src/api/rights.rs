//! The rights of the plugins of the server's config: what each may do, whether it may do one thing,
//! and what was granted and not used. The answers are those of `conclave check` and `conclave can`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::Uri;
use axum::{Extension, Json};
use conclave_core::inspect::explain::{
    AccessQuestion, Explanation, explain, foreign_option, has_target, unknown_target,
};
use conclave_core::inspect::grant_use::{GrantEntry, GrantUse};
use conclave_core::inspect::permission_summary::rights_table;
use conclave_core::inspect::rights_map::RightsMap;
use conclave_core::journal::record::retold;
use conclave_core::policy::roles::Action;
use conclave_core::setup::Setup;
use conclave_core::types::capability::Capability;
use conclave_core::types::ids::{Millis, RoomId, TaskName};
use conclave_runtime::store::{RunFilter, StoreError, StoreReader};
use serde_json::{Value, json};

use super::{Problem, bad_arguments};
use crate::cached::Computed;
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// Runs in which uses of grants are searched, the newest.
const RUNS: usize = 100;
/// Records of these runs together. One run is read whatever its length.
const RECORDS: u64 = 100_000;
/// The age up to which the uses are not searched again.
const USES_AGE: Duration = Duration::from_secs(60);
/// The time that a request waits for them.
const PATIENCE: Duration = Duration::from_secs(5);

/// The entries of all grants, with whether stored runs used them.
#[derive(Debug)]
pub(crate) struct GrantUses {
    pub(crate) entries: Vec<GrantEntry>,
    /// The number of runs that were read.
    pub(crate) runs: u64,
    /// The start of the oldest of them.
    pub(crate) since: Option<Millis>,
    /// The number of runs that could not be read.
    pub(crate) unread: u64,
}

/// A question about an access, as a query names it.
#[derive(Debug, Default)]
pub(crate) struct CanQuery {
    pub(crate) plugin: String,
    pub(crate) capability: String,
    pub(crate) target: Option<String>,
    pub(crate) write: bool,
    method: Option<String>,
    headers: Vec<String>,
    host: Option<String>,
    arguments: Option<String>,
    task: Option<String>,
}

impl CanQuery {
    /// Reads the query of an address. An empty value is that of a field which nobody filled in.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Failure> {
        let mut query = Self::default();
        let fields = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        for (name, value) in fields.filter(|(_, value)| !value.is_empty()) {
            let value = value.into_owned();
            match &*name {
                // It has chosen the server already.
                "config" => {}
                "plugin" => query.plugin = value,
                "capability" => query.capability = value,
                "target" => query.target = Some(value),
                "write" => query.write = value != "false",
                "method" => query.method = Some(value.to_ascii_uppercase()),
                "header" => query.headers.push(value.to_ascii_lowercase()),
                "host" => query.host = Some(value),
                "arguments" => query.arguments = Some(value),
                "task" => query.task = Some(value),
                _ => {
                    let what = "the question takes plugin, capability, target, write, method, header, host, arguments and task";
                    return Err(bad_arguments(what));
                }
            }
        }
        Ok(query)
    }

    /// The question, checked as `conclave can` checks it.
    fn question(self, setup: &Setup) -> Result<AccessQuestion, Failure> {
        let capability = Capability::from_name(&self.capability).ok_or_else(|| {
            let known: Vec<&str> = Capability::ALL.iter().map(|it| it.as_str()).collect();
            bad_arguments("there is no such capability").with("allowed", json!(known))
        })?;
        if self.target.is_some() && !has_target(capability) {
            return Err(bad_arguments(&format!("the capability {capability} has no target")));
        }
        let is_given = |option: &str| match option {
            "write" => self.write,
            "method" => self.method.is_some(),
            "header" => !self.headers.is_empty(),
            "host" => self.host.is_some(),
            _ => self.arguments.is_some(),
        };
        if let Some((option, of)) = foreign_option(capability, is_given) {
            let what = format!("`{option}` is of the capability {of}, not of {capability}");
            return Err(bad_arguments(&what));
        }
        let arguments = match &self.arguments {
            None => json!({}),
            Some(text) => serde_json::from_str(text)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| bad_arguments("`arguments` is a JSON object"))?,
        };
        let question = AccessQuestion {
            target: self.target,
            writes: self.write,
            method: self.method.unwrap_or_else(|| "GET".to_owned()),
            headers: self.headers,
            host: self.host,
            arguments,
            task: self.task.as_deref().map(TaskName::from),
            ..AccessQuestion::new(self.plugin.as_str(), capability)
        };
        match unknown_target(setup, &question) {
            Some(unknown) => Err(bad_arguments(&unknown.to_string())),
            None => Ok(question),
        }
    }
}

impl Server {
    fn setup(&self, session: &Session) -> Result<Arc<Setup>, Failure> {
        session.may(Action::Inspect, None)?;
        Ok(self.conversations().setup())
    }

    /// The rights of all plugins.
    pub(crate) fn rights_map(&self, session: &Session) -> Result<RightsMap, Failure> {
        let setup = self.setup(session)?;
        Ok(RightsMap::of(&setup))
    }

    /// Whether a plugin may do something.
    pub(crate) fn can(&self, session: &Session, query: CanQuery) -> Result<Explanation, Failure> {
        let setup = self.setup(session)?;
        let question = query.question(&setup)?;
        explain(&setup, &question).map_err(|problem| bad_arguments(&problem.to_string()))
    }

    /// The entries of the grants that the newest runs used, and those that they did not. `None` while
    /// they are searched for the first time, or if the store cannot be read.
    pub(crate) async fn grant_uses(
        &self,
        session: &Session,
    ) -> Result<Option<Arc<Computed<GrantUses>>>, Failure> {
        let (setup, server) = (self.setup(session)?, self.clone());
        let cached = self.cached_uses(&setup);
        let uses = cached.get((USES_AGE, PATIENCE), move || async move {
            server.read(move |reader, config| uses(reader, config, setup)).await.ok()
        });
        Ok(uses.await)
    }
}

fn uses(
    reader: &StoreReader,
    config: &std::path::Path,
    setup: Arc<Setup>,
) -> Result<GrantUses, StoreError> {
    let filter =
        RunFilter { config: Some(config.to_owned()), most: Some(RUNS), ..RunFilter::default() };
    let mut uses = GrantUse::new(setup);
    let (mut records, mut runs, mut unread, mut since) = (0_u64, 0, 0, None);
    for row in reader.runs(&filter)? {
        records = records.saturating_add(row.records);
        if runs > 0 && records > RECORDS {
            break;
        }
        let outcome = take_run(reader, &row.run, &mut uses);
        (runs, since) = (runs + 1, Some(row.started));
        unread += u64::from(outcome.is_err());
    }
    Ok(GrantUses { entries: uses.entries(), runs, since, unread })
}

fn take_run(reader: &StoreReader, run: &RoomId, uses: &mut GrantUse) -> Result<(), StoreError> {
    for room in reader.rooms(run)? {
        uses.take(&retold(reader.records(&room.room)?));
    }
    Ok(())
}

type Answer = Result<Json<Value>, Problem>;

pub(super) async fn rights(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Answer {
    let map = server.rights_map(&session)?;
    let uses = server.grant_uses(&session).await?;
    let mut value = json!(map);
    value["uses"] = json!(uses.map(|uses| {
        let GrantUses { entries, runs, since, unread } = &uses.value;
        json!({ "at": uses.at, "runs": runs, "since": since, "unread": unread, "entries": entries })
    }));
    Ok(Json(value))
}

pub(super) async fn plugins(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Answer {
    let setup = server.setup(&session)?;
    let rows = rights_table(&setup, server.conversations().prepared().sources());
    let plugins = rows.into_iter().map(|row| {
        let mut value = json!(row);
        if let Some(plugin) = setup.plugins.get(&row.plugin) {
            let facts = &plugin.facts;
            value["description"] = json!(facts.manifest.description);
            value["version"] = json!(facts.manifest.version);
            (value["kinds"], value["mcp"]) = (json!(facts.kinds), json!(facts.mcp));
            (value["sha256"], value["tools"]) = (json!(facts.sha256), json!(facts.tools));
        }
        value
    });
    Ok(Json(json!({ "plugins": plugins.collect::<Vec<_>>() })))
}

pub(super) async fn can(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Answer {
    // Before the query is looked at, which says what the config has.
    session.may(Action::Inspect, None)?;
    let explanation = server.can(&session, CanQuery::of(&uri)?)?;
    let mut value = json!(explanation);
    value["denied_by"] = json!(explanation.denied_by());
    Ok(Json(value))
}
