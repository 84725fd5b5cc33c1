//! What the runs of a person have spent today, from the store: so it survives restarts, and
//! counts for all servers of one store. Runs that began before today are folded up to midnight
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use conclave_core::policy::daily_budget::{BudgetUsedUp, DailyBudget, Day};
use conclave_core::types::ids::{Millis, Principal, RoomId};
use conclave_core::types::limits::RunLimits;
use conclave_core::types::usage::Spent;
use conclave_runtime::store::{ControlMessage, RunRow, StoreError, StoreReader};
use serde_json::{Value, json};

use crate::api::owner;
use crate::http::{Failure, Server, now};

/// What runs had spent at midnight. It does not change, so it is kept for the day. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct SpentBefore(Arc<Mutex<BTreeMap<(Millis, RoomId), Spent>>>);

/// The budget of a person with what is spent of it.
pub(crate) struct PersonsDay {
    pub(crate) person: Principal,
    pub(crate) day: Day,
    pub(crate) budget: DailyBudget,
    pub(crate) spent: Spent,
}

impl PersonsDay {
    /// # Errors
    /// If nothing is left.
    pub(crate) fn check(&self) -> Result<(), BudgetUsedUp> {
        self.budget.check(&self.person, &self.spent, now())
    }

    /// The limits of a run that begins now, if the rest of the day is less than they are.
    pub(crate) fn cap(&self, limits: &RunLimits) -> Option<RunLimits> {
        let capped = self.budget.cap(&self.spent, limits);
        (capped != *limits).then_some(capped)
    }

    pub(crate) fn to_value(&self) -> Value {
        let uses = self.budget.uses(&self.spent);
        json!({
            "person": self.person, "from": self.day.from, "until": self.day.until, "uses": uses,
            "tokens": self.spent.tokens, "cost_micro_usd": self.spent.cost_micro_usd,
        })
    }
}

impl Server {
    /// What a person may spend today, and has; `None` if the config limits nobody or not this one.
    pub(crate) async fn persons_day(
        &self,
        person: &Principal,
    ) -> Result<Option<PersonsDay>, Failure> {
        let budget = self.conversations().current().server().daily_budget.of(person);
        if !budget.has_limits() {
            return Ok(None);
        }
        let (day, before) = (Day::of(now()), self.spent_before().clone());
        let owner = person.clone();
        let reading = self.read(move |reader, config| {
            let mut all = Spent::default();
            for run in reader.spent_since(config, &owner, day.from)? {
                let earlier = match run.started < day.from {
                    true => before.of(reader, &run.run, day.from)?,
                    false => Spent::default(),
                };
                all = all.plus(run.spent.minus(earlier));
            }
            Ok(all)
        });
        let spent = reading.await?;
        Ok(Some(PersonsDay { person: person.clone(), day, budget, spent }))
    }

    /// Why the runs of a person may spend no more today; `None` if they may.
    pub(crate) async fn budget_refusal(
        &self,
        owner: &Principal,
    ) -> Result<Option<BudgetUsedUp>, Failure> {
        Ok(self.persons_day(owner).await?.and_then(|day| day.check().err()))
    }

    /// The limits of a run that this person starts now; `None` for those of the config.
    ///
    /// # Errors
    /// `budget_used_up`.
    pub(crate) async fn limits_of_start(
        &self,
        person: &Principal,
    ) -> Result<Option<RunLimits>, Failure> {
        let Some(day) = self.persons_day(person).await? else { return Ok(None) };
        day.check().map_err(|refusal| self.refuse_over_budget(person, None, &refusal))?;
        Ok(day.cap(&self.conversations().setup().limits))
    }

    /// Checks that the owner of a run may spend more, unless the run received the message before.
    ///
    /// # Errors
    /// `budget_used_up`.
    pub(crate) async fn check_budget_for(
        &self,
        row: &RunRow,
        message: &ControlMessage,
    ) -> Result<(), Failure> {
        let Some(refusal) = self.budget_refusal(&owner(row)).await? else { return Ok(()) };
        let (room, id) = (message.room.clone(), message.id.clone());
        if self.read(move |reader, _| reader.has_received(&room, &id)).await? {
            return Ok(());
        }
        let by = message.by.as_ref().unwrap_or(&refusal.person);
        Err(self.refuse_over_budget(by, Some(&row.run), &refusal))
    }

    /// Reports a refusal to the operator, and returns it as the answer of a request.
    pub(crate) fn refuse_over_budget(
        &self,
        by: &Principal,
        run: Option<&RoomId>,
        refusal: &BudgetUsedUp,
    ) -> Failure {
        self.conversations().operator().budget_used_up(by, run, refusal);
        let what = refusal.to_string();
        let mut failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "budget_used_up", what);
        if let Value::Object(fields) = json!(refusal) {
            for (name, value) in fields {
                failure = failure.with(&name, value);
            }
        }
        failure
    }
}

impl SpentBefore {
    /// What a run had spent at this moment, the beginning of a day.
    fn of(&self, reader: &StoreReader, run: &RoomId, at: Millis) -> Result<Spent, StoreError> {
        let key = (at, run.clone());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key) {
            return Ok(*known);
        }
        let spent = reader.spent_before(run, at)?;
        let mut known = lock();
        // Of other days nobody asks any more.
        known.retain(|(day, _), _| *day == at);
        known.insert(key, spent);
        Ok(spent)
    }
}
