//! The runs that a person may read, some at a time: for the API and for the page.

use std::num::NonZeroUsize;

use axum::http::Uri;
use conclave_core::policy::roles::Action;
use conclave_runtime::store::{RunFilter, RunListPlace, RunRow};

use super::{bad_arguments, ownerless};
use crate::http::{Failure, Server};
use crate::sessions::Session;

/// Runs on a page of the list, if the request does not say how many, and at most.
const PAGE: (usize, usize) = (50, 500);

/// What a list of runs is narrowed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQuery {
    pub(crate) filter: RunFilter,
    pub(crate) limit: Option<usize>,
    /// The place of the last run of the page before, as the answer had it.
    pub(crate) cursor: Option<String>,
}

/// Some runs of a list.
pub(crate) struct RunPage {
    pub(crate) runs: Vec<RunRow>,
    /// The cursor of the runs that follow; `None` if there are none.
    pub(crate) next: Option<RunListPlace>,
}

impl RunQuery {
    /// Reads the query of an address. An empty value narrows nothing: it is that of a field which
    /// nobody filled in.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Failure> {
        let mut query = Self::default();
        let text = uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            let value = Some(value.into_owned()).filter(|value| !value.is_empty());
            match &*name {
                // It has chosen the server already.
                "config" => {}
                "status" => query.filter.status = value,
                "agent" => query.filter.agent = value,
                "text" => query.filter.text = value,
                "cursor" => query.cursor = value,
                "limit" => {
                    let limit = value.map(|value| value.parse::<NonZeroUsize>()).transpose();
                    let limit = limit.map_err(|_| bad_arguments("`limit` is a number from 1"))?;
                    query.limit = limit.map(NonZeroUsize::get);
                }
                _ => {
                    let what = "a list of runs takes config, status, agent, text, limit and cursor";
                    return Err(bad_arguments(what));
                }
            }
        }
        Ok(query)
    }

    /// The number of runs on a page.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1)
    }
}

impl Server {
    /// The runs of this config that match and that the person may read, the newest first.
    pub(crate) async fn runs(
        &self,
        session: &Session,
        query: RunQuery,
    ) -> Result<RunPage, Failure> {
        session.may(Action::List, None)?;
        let limit = query.limit();
        let RunQuery { mut filter, cursor, .. } = query;
        let after = cursor.map(|cursor| cursor.parse::<RunListPlace>()).transpose();
        filter.after = after.map_err(|_| bad_arguments("the cursor is of no list"))?;
        filter.config = Some(self.conversations().config().to_owned());
        // A person who may not read the runs of everybody reads only those of its own.
        if session.may(Action::Read, Some(&ownerless())).is_err() {
            filter.principal = Some(session.identity.principal.clone());
        }
        // One more says whether there is another page.
        filter.most = Some(limit + 1);
        let mut runs = self.read(move |reader, _| reader.runs(&filter)).await?;
        let has_more = runs.len() > limit;
        runs.truncate(limit);
        let next = runs
            .last()
            .filter(|_| has_more)
            .map(|row| RunListPlace { started: row.started, run: row.run.clone() });
        Ok(RunPage { runs, next })
    }
}
