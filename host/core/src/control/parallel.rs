//! Several calls of one answer at once (O-130): which are made at all, which wait for which, and that results come in the order of the calls.
//! A state machine without clock or threads: its caller starts what it is told to start and says what has ended.

use std::collections::BTreeSet;

/// What a call that was cancelled before it began is answered with.
pub const CANCELLED: &str = "Tool call cancelled by interrupt.";

/// A call of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub tool: String,
    /// What it needs for itself alone; none: the tool does not say, so that it needs the whole tool. Empty: nothing.
    pub resources: Option<Vec<String>>,
}

impl Call {
    /// The locks that it holds while it runs: sorted, so that no two calls wait for each other.
    #[must_use]
    pub fn locks(&self) -> BTreeSet<String> {
        match &self.resources {
            None => BTreeSet::from([format!("tool:{}", self.tool)]),
            Some(resources) => resources.iter().cloned().collect(),
        }
    }

    fn ends_the_batch(&self) -> bool {
        matches!(self.tool.as_str(), "finish" | "FinishTool")
    }
}

/// How one call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a result.
    Observation(String),
    /// With an error that the model reads.
    Error(String),
}

impl Ended {
    /// The error of a tool that failed.
    #[must_use]
    pub fn failed(tool: &str, why: &str) -> Self {
        Self::Error(format!("Error executing tool '{tool}': {why}"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Waits,
    Runs,
    Ended(Ended),
}

/// The calls of one answer, as far as they have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    calls: Vec<(Call, BTreeSet<String>, Stage)>,
    dropped: Vec<Call>,
    limit: usize,
}

impl Batch {
    /// The calls up to and with the first `finish`; at most `limit` of them (at least one) at a time.
    #[must_use]
    pub fn new(mut calls: Vec<Call>, limit: usize) -> Self {
        let last = calls.iter().position(Call::ends_the_batch).map_or(calls.len(), |finish| finish + 1);
        let dropped = calls.split_off(last);
        let held = |call: Call| {
            let locks = call.locks();
            (call, locks, Stage::Waits)
        };
        Self { calls: calls.into_iter().map(held).collect(), dropped, limit: limit.max(1) }
    }

    /// What comes after a `finish` and is not done.
    #[must_use]
    pub fn dropped(&self) -> &[Call] {
        &self.dropped
    }

    /// Starts what can start now, and says which. Of calls that need the same, the first in the answer comes first.
    pub fn start(&mut self) -> Vec<usize> {
        let mut started = Vec::new();
        let mut running = self.calls.iter().filter(|(_, _, stage)| *stage == Stage::Runs).count();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (index, (_, locks, stage)) in self.calls.iter_mut().enumerate() {
            match stage {
                Stage::Ended(_) => continue,
                Stage::Waits if running < self.limit && locks.is_disjoint(&taken) => {
                    *stage = Stage::Runs;
                    running += 1;
                    started.push(index);
                }
                Stage::Waits | Stage::Runs => {}
            }
            // Whoever waits holds its place in the queue of each lock.
            taken.extend(locks.iter().cloned());
        }
        started
    }

    /// A call that was started has ended.
    pub fn ended(&mut self, index: usize, how: Ended) {
        if let Some((_, _, stage @ Stage::Runs)) = self.calls.get_mut(index) {
            *stage = Stage::Ended(how);
        }
    }

    /// What has not begun is not begun.
    pub fn cancel(&mut self) {
        for (_, _, stage) in self.calls.iter_mut().filter(|(_, _, stage)| *stage == Stage::Waits) {
            *stage = Stage::Ended(Ended::Error(CANCELLED.to_owned()));
        }
    }

    /// How each call ended, in the order of the calls; none: not all have.
    #[must_use]
    pub fn results(&self) -> Option<Vec<&Ended>> {
        self.calls
            .iter()
            .map(|(_, _, stage)| match stage {
                Stage::Ended(how) => Some(how),
                Stage::Waits | Stage::Runs => None,
            })
            .collect()
    }

    /// The calls that can never run at the same time as another one, in groups, by their places.
    #[must_use]
    pub fn serialised(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<(BTreeSet<String>, Vec<usize>)> = Vec::new();
        for (index, (_, locks, _)) in self.calls.iter().enumerate() {
            let mut joined = (locks.clone(), Vec::new());
            let (same, other) = groups.into_iter().partition(|(of_group, _)| !of_group.is_disjoint(locks));
            groups = other;
            for (of_group, calls) in same {
                joined.0.extend(of_group);
                joined.1.extend(calls);
            }
            joined.1.push(index);
            groups.push(joined);
        }
        let mut groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, calls)| calls).filter(|calls| calls.len() > 1).collect();
        groups.sort();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, resources: Option<&[&str]>) -> Call {
        Call { tool: tool.to_owned(), resources: resources.map(|all| all.iter().map(|one| (*one).to_owned()).collect()) }
    }

    fn done() -> Ended {
        Ended::Observation("ok".to_owned())
    }

    #[test]
    fn what_needs_the_same_waits_in_the_order_of_the_calls() {
        let calls = vec![
            call("edit", Some(&["file:a"])),
            call("edit", Some(&["file:b", "file:a"])),
            call("edit", Some(&["file:b"])),
            call("edit", Some(&["file:c"])),
            call("read", Some(&[])),
        ];
        let mut batch = Batch::new(calls, 8);
        assert_eq!(batch.serialised(), [[0, 1, 2]]);
        assert_eq!(batch.start(), [0, 3, 4], "2 waits behind 1, which waits for 0");
        batch.ended(3, done());
        assert_eq!(batch.start(), [0; 0]);
        batch.ended(0, Ended::failed("edit", "x"));
        assert_eq!(batch.start(), [1]);
        batch.ended(1, done());
        assert_eq!((batch.start(), batch.results()), (vec![2], None));
        batch.ended(2, done());
        batch.ended(4, done());
        let results = batch.results().unwrap();
        assert_eq!(results[0], &Ended::Error("Error executing tool 'edit': x".to_owned()));
        assert_eq!((results.len(), results[1]), (5, &done()));
    }

    #[test]
    fn a_tool_that_declares_nothing_runs_one_at_a_time() {
        let mut batch = Batch::new(vec![call("a", None), call("a", None), call("b", None)], 8);
        assert_eq!((batch.serialised(), batch.start()), (vec![vec![0, 1]], vec![0, 2]));
    }

    #[test]
    fn the_limit_holds_and_what_has_not_begun_is_cancelled() {
        let mut batch = Batch::new((0..3).map(|at| call(&format!("t{at}"), Some(&[]))).collect(), 0);
        assert_eq!((batch.start(), batch.start()), (vec![0], vec![]));
        batch.cancel();
        assert_eq!((batch.start(), batch.results()), (vec![], None), "what runs is not ended by this");
        batch.ended(0, done());
        batch.ended(1, done());
        let cancelled = Ended::Error(CANCELLED.to_owned());
        assert_eq!(batch.results(), Some(vec![&done(), &cancelled, &cancelled]));
    }

    #[test]
    fn nothing_comes_after_finish() {
        let batch = Batch::new(["a", "finish", "b", "finish"].map(|tool| call(tool, None)).to_vec(), 4);
        assert_eq!(batch.dropped().iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["b", "finish"]);
        assert_eq!(Batch::new(Vec::new(), 4).results(), Some(vec![]));
    }
}
