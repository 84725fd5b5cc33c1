//! The configs that a person sees at a server of several. Lists are put together from those alone,
//! each by the server of its config with the person's role there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::StatusCode;
use conclave_core::policy::roles::{Action, Role, RoleRefusal};
use conclave_core::types::ids::RoomId;
use conclave_runtime::store::{RunListPlace, RunRow};
use serde_json::{Value, json};

use crate::api::bad_arguments;
use crate::api::metrics::{ConfigFigures, ServerFigures};
use crate::api::run_list::{RunPage, RunQuery};
use crate::api::views::QuestionPage;
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// The configs that a request reads, each with the session of its person there. There is at least
/// one.
#[derive(Clone)]
pub(crate) struct VisibleConfigs(Arc<[VisibleConfig]>);

/// A config with the session of a person there.
#[derive(Clone)]
pub(crate) struct VisibleConfig {
    pub(crate) server: Server,
    pub(crate) session: Session,
}

/// A run in a list.
pub(crate) struct ListedRun {
    pub(crate) row: RunRow,
    /// The server of its config.
    pub(crate) server: Server,
}

/// Some runs of a list.
pub(crate) struct ListedRuns {
    pub(crate) runs: Vec<ListedRun>,
    /// The cursor of the runs that follow; `None` if there are none.
    pub(crate) next: Option<String>,
}

impl VisibleConfigs {
    pub(crate) fn new(configs: Vec<VisibleConfig>) -> Self {
        Self(configs.into())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &VisibleConfig> {
        self.0.iter()
    }

    /// The names of the configs, if there are several.
    pub(crate) fn names(&self) -> Vec<&str> {
        match &*self.0 {
            [_] => Vec::new(),
            several => several.iter().map(|config| config.server.name()).collect(),
        }
    }

    /// The names of the configs with the person's role at each, if there are several.
    pub(crate) fn roles(&self) -> Vec<(Arc<str>, Role)> {
        let of = |config: &VisibleConfig| {
            (Arc::from(config.server.name()), config.session.identity.role)
        };
        match &*self.0 {
            [_] => Vec::new(),
            several => several.iter().map(of).collect(),
        }
    }

    /// The session at the only config, or at the first of several.
    pub(crate) fn session(&self) -> &Session {
        &self.0[0].session
    }

    /// The configs at which the person may do this.
    ///
    /// # Errors
    /// The refusal of the first if it may nowhere.
    pub(crate) fn where_may(&self, action: Action) -> Result<Vec<&VisibleConfig>, RoleRefusal> {
        let may = |config: &&VisibleConfig| config.session.may(action, None).is_ok();
        let allowed: Vec<&VisibleConfig> = self.0.iter().filter(may).collect();
        if allowed.is_empty() {
            self.session().may(action, None)?;
        }
        Ok(allowed)
    }

    /// The config that a request names; of one config it need not.
    ///
    /// # Errors
    /// `config_required` without a name, `config_not_found` for one that the person does not see.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<&VisibleConfig, Failure> {
        match (name, &*self.0) {
            (None, [only]) => Ok(only),
            (None, _) => Err(config_required(&self.names())),
            (Some(name), configs) => configs
                .iter()
                .find(|config| config.server.name() == name)
                .ok_or_else(|| config_not_found(&self.names())),
        }
    }

    /// The config of a run or a conversation. If none of them has it the first one, which answers
    /// that there is no such run.
    pub(crate) async fn of_run(&self, run: &str) -> Result<&VisibleConfig, Failure> {
        // A server looks into its store, so the only one is not asked.
        for config in self.0.iter().filter(|_| self.0.len() > 1) {
            if config.server.has(run).await? {
                return Ok(config);
            }
        }
        Ok(&self.0[0])
    }

    /// The runs that match and that the person may read, the newest first.
    pub(crate) async fn runs(&self, query: RunQuery) -> Result<ListedRuns, Failure> {
        let listed = |server: &Server, row| ListedRun { row, server: server.clone() };
        if let [VisibleConfig { server, session }] = &*self.0 {
            let RunPage { runs, next } = server.runs(session, query).await?;
            let runs = runs.into_iter().map(|row| listed(server, row)).collect();
            return Ok(ListedRuns { runs, next: next.map(|place| place.to_string()) });
        }
        let mut cursors = cursors_of(query.cursor.as_deref())?;
        let (mut runs, mut has_more) = (Vec::new(), false);
        for VisibleConfig { server, session } in self.0.iter() {
            let cursor = cursors.get(server.name()).cloned();
            let page = server.runs(session, RunQuery { cursor, ..query.clone() }).await?;
            has_more |= page.next.is_some();
            runs.extend(page.runs.into_iter().map(|row| listed(server, row)));
        }
        // Each part is in this order already, and stays so.
        runs.sort_by_key(|run| std::cmp::Reverse(run.row.started));
        let limit = query.limit();
        has_more |= runs.len() > limit;
        runs.truncate(limit);
        for ListedRun { row, server } in &runs {
            let place = RunListPlace { started: row.started, run: row.run.clone() };
            cursors.insert(server.name().to_owned(), place.to_string());
        }
        Ok(ListedRuns { runs, next: has_more.then(|| cursor_text(&cursors)) })
    }

    /// The times in which no host ran each run.
    pub(crate) async fn down_ms(&self, runs: &[ListedRun]) -> Result<Vec<u64>, Failure> {
        let mut all: BTreeMap<(String, RoomId), u64> = BTreeMap::new();
        for VisibleConfig { server, .. } in self.0.iter() {
            let of_server = runs.iter().filter(|run| run.server.name() == server.name());
            let runs: Vec<RoomId> = of_server.map(|run| run.row.run.clone()).collect();
            let read = server.read(move |reader, _| {
                runs.into_iter().map(|run| Ok((run.clone(), reader.down_ms(&run)?))).collect()
            });
            let read: Vec<(RoomId, u64)> = read.await?;
            let of_server = |(run, down_ms)| ((server.name().to_owned(), run), down_ms);
            all.extend(read.into_iter().map(of_server));
        }
        let key = |run: &ListedRun| (run.server.name().to_owned(), run.row.run.clone());
        Ok(runs.iter().map(|run| all.get(&key(run)).copied().unwrap_or(0)).collect())
    }

    /// The runs among these that wait for a person. A conversation that waits for its next message
    /// does not.
    pub(crate) async fn waiting(&self, runs: &[ListedRun]) -> Result<BTreeSet<RoomId>, Failure> {
        let mut waiting = BTreeSet::new();
        for VisibleConfig { server, .. } in self.0.iter() {
            let read = server.read(|reader, _| Ok(reader.waits_for_people(None)?.0));
            waiting.extend(read.await?.into_iter().filter_map(|wait| {
                let id = wait.room.run();
                let run = runs.iter().find(|run| run.row.run == id)?;
                let is_for_person = wait.wait.asks_approval() || !run.row.is_conversation();
                is_for_person.then_some(id)
            }));
        }
        Ok(waiting)
    }

    /// The calls and questions that wait for a person, the oldest first.
    pub(crate) async fn questions(&self) -> Result<QuestionPage, Failure> {
        let mut all = QuestionPage { questions: Vec::new(), damaged: Vec::new() };
        for VisibleConfig { server, session } in self.0.iter() {
            let QuestionPage { questions, damaged } = server.questions(session).await?;
            all.questions.extend(questions);
            all.damaged.extend(damaged);
        }
        all.questions.sort_by_key(|question| question.question.since);
        Ok(all)
    }

    /// The figures of each config whose figures the person may read.
    pub(crate) async fn totals(&self) -> Result<Vec<ConfigFigures<'_>>, Failure> {
        let mut all = Vec::new();
        for VisibleConfig { server, .. } in self.where_may(Action::Measure)? {
            let totals = server.read(|reader, config| reader.run_totals(config)).await?;
            let folds = server.folds();
            let of_server = ServerFigures {
                streams: server.open_streams(),
                folds: folds.open_runs(),
                folded_records: folds.records(),
                read_questions: server.open_questions().read(),
                hooks: server.hook_counts().all(),
            };
            all.push(ConfigFigures { config: server.config_name(), totals, server: of_server });
        }
        Ok(all)
    }

    /// The configs with the person's role at each.
    pub(crate) fn values(&self) -> Value {
        let value = |VisibleConfig { server, session }: &VisibleConfig| {
            let setup = server.conversations().setup();
            json!({
                "config": server.name(),
                "role": session.identity.role,
                "entry": setup.entry,
                "tasks": setup.tasks.keys().collect::<Vec<_>>(),
                "channel": server.conversations().channel(),
            })
        };
        self.0.iter().map(value).collect()
    }
}

/// The refusal of a request that must name one of several configs.
pub(crate) fn config_required(names: &[&str]) -> Failure {
    let what =
        format!("this server has several configs; name one as `config`: {}", names.join(", "));
    Failure::new(StatusCode::BAD_REQUEST, "config_required", what).with("configs", json!(names))
}

/// The refusal of a request that names a config which the person does not see.
pub(crate) fn config_not_found(names: &[&str]) -> Failure {
    let there = match names {
        [] => String::new(),
        names => format!("; these are there: {}", names.join(", ")),
    };
    let what = format!("there is no such config{there}");
    Failure::new(StatusCode::NOT_FOUND, "config_not_found", what).with("configs", json!(names))
}

/// The cursor of a list of several configs: the last run of each that was listed.
fn cursor_text(cursors: &BTreeMap<String, String>) -> String {
    let parts = cursors.iter().map(|(name, run)| format!("{name}:{run}"));
    parts.collect::<Vec<_>>().join(",")
}

fn cursors_of(cursor: Option<&str>) -> Result<BTreeMap<String, String>, Failure> {
    let parts = cursor.into_iter().flat_map(|cursor| cursor.split(','));
    let pairs = parts.map(|part| part.split_once(':'));
    let pairs: Option<BTreeMap<String, String>> =
        pairs.map(|pair| pair.map(|(name, run)| (name.to_owned(), run.to_owned()))).collect();
    pairs.ok_or_else(|| bad_arguments("the cursor is that of another list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_several_configs_names_the_last_run_of_each() {
        let cursors =
            [("a", "1.2"), ("b", "run:3")].map(|(name, run)| (name.to_owned(), run.to_owned()));
        let cursors = BTreeMap::from(cursors);
        assert_eq!(cursor_text(&cursors), "a:1.2,b:run:3");
        assert_eq!(cursors_of(Some("a:1.2,b:run:3")).unwrap(), cursors);
        assert!(cursors_of(None).unwrap().is_empty());
        assert!(cursors_of(Some("a")).is_err() && cursors_of(Some("")).is_err());
    }
}
