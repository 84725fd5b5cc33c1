//! What runs spend of what they may: the limits in force, and the part of each room.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use conclave_core::policy::roles::Action;
use conclave_core::types::ids::RoomId;
use conclave_core::types::limits::RunLimits;
use conclave_core::types::usage::Spent;
use conclave_runtime::store::{RoomRow, RunRow, RunState};
use serde_json::{Value, json};

use super::Problem;
use super::run_list::RunQuery;
use super::views::version_of;
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// Runs of each state in a list of budgets, the newest.
const RUNS: usize = 12;
/// The states of runs that have not ended.
const OPEN: [&str; 4] = ["running", "asleep", "queued", "interrupted"];

/// A run with its limits and its use.
pub(crate) struct RunBudget {
    pub(crate) row: RunRow,
    /// The limits in force, with the increases that were granted. `None` if the records of the run
    /// do not begin with its opening.
    pub(crate) limits: Option<RunLimits>,
    /// The rooms, the root first, each with what it has spent itself.
    pub(crate) rooms: Vec<RoomSpent>,
}

/// A room with its part of what a run has spent.
pub(crate) struct RoomSpent {
    pub(crate) room: RoomRow,
    /// Without what ended rooms below it have spent, which its own row contains.
    pub(crate) own: Spent,
}

impl RunBudget {
    fn new(row: RunRow, limits: Option<RunLimits>, rooms: Vec<RoomRow>) -> Self {
        let mut ended_below: BTreeMap<RoomId, Spent> = BTreeMap::new();
        for room in rooms.iter().filter(|room| matches!(room.state, RunState::Ended(_))) {
            if let Some(parent) = &room.parent {
                let below = ended_below.entry(parent.clone()).or_default();
                *below = below.plus(room.spent);
            }
        }
        let own = |room: RoomRow| {
            let below = ended_below.get(&room.room).copied().unwrap_or_default();
            RoomSpent { own: room.spent.minus(below), room }
        };
        Self { row, limits, rooms: rooms.into_iter().map(own).collect() }
    }

    /// What all rooms have spent, also those that have not reported to their parent yet.
    pub(crate) fn spent(&self) -> Spent {
        self.rooms.iter().fold(Spent::default(), |all, room| all.plus(room.own))
    }

    fn to_value(&self) -> Value {
        let room = |RoomSpent { room, own }: &RoomSpent| {
            json!({
                "room": room.room, "parent": room.parent, "entry": room.entry,
                "spent": room.spent, "own": own,
            })
        };
        json!({
            "limits": self.limits,
            "spent": self.rooms.first().map(|root| root.room.spent),
            "rooms": self.rooms.iter().map(room).collect::<Vec<_>>(),
        })
    }
}

impl Server {
    /// The limits of a run and what it has used, with each room's part.
    pub(crate) async fn run_budget(
        &self,
        session: &Session,
        run: &str,
    ) -> Result<Arc<RunBudget>, Failure> {
        let row = self.run(session, Action::Read, run).await?;
        self.budget_of(row).await
    }

    async fn budget_of(&self, row: RunRow) -> Result<Arc<RunBudget>, Failure> {
        let (run, version) = (row.run.clone(), version_of(&row));
        let budget = self.views().budgets.get(&run, &version, || async {
            let run = row.run.clone();
            let limits = self.folds().run(&run).await?.map(|folded| folded.limits.clone());
            let rooms = self.read(move |reader, _| reader.rooms(&run)).await?;
            Ok::<_, Failure>(RunBudget::new(row, limits, rooms))
        });
        budget.await
    }

    /// The budgets of the runs that have not ended and that the person may read, the newest first;
    /// and whether there are more.
    pub(crate) async fn open_budgets(
        &self,
        session: &Session,
    ) -> Result<(Vec<Arc<RunBudget>>, bool), Failure> {
        let (mut all, mut has_more) = (Vec::new(), false);
        for state in OPEN {
            let mut query = RunQuery { limit: Some(RUNS), ..RunQuery::default() };
            query.filter.status = Some(state.to_owned());
            let found = self.runs(session, query).await?;
            has_more |= found.next.is_some();
            for row in found.runs {
                all.push(self.budget_of(row).await?);
            }
        }
        all.sort_by_key(|budget| std::cmp::Reverse(budget.row.started));
        Ok((all, has_more))
    }
}

type Answer = Result<Json<Value>, Problem>;

pub(super) async fn budget(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
    Path(run): Path<String>,
) -> Answer {
    Ok(Json(server.run_budget(&session, &run).await?.to_value()))
}

pub(super) async fn list(
    State(server): State<Server>,
    Extension(session): Extension<Session>,
) -> Answer {
    let (budgets, has_more) = server.open_budgets(&session).await?;
    let day = server.persons_day(&session.identity.principal).await?;
    let runs = budgets.iter().map(|budget| {
        let mut value = budget.to_value();
        (value["run"], value["state"]) = (json!(budget.row.run), budget.row.state.word().into());
        value["spent_by_all_rooms"] = json!(budget.spent());
        value
    });
    let today = day.map(|day| day.to_value());
    Ok(Json(json!({ "runs": runs.collect::<Vec<_>>(), "has_more": has_more, "today": today })))
}
