//! A breadth-first explorer: every state that a model can reach, and the shortest way to one that
//! must not be.

#![expect(
    clippy::disallowed_types,
    reason = "the map is only looked up in, and hashing a state is faster than to order it"
)]

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

/// A system that moves in steps, of which any may be next.
pub(crate) trait Model {
    type State: Clone + Debug + Eq + Hash;
    type Action: Clone + Debug;

    fn initial(&self) -> Self::State;
    /// The actions that are possible in a state.
    fn actions(&self, state: &Self::State) -> Vec<Self::Action>;
    /// The state after an action.
    fn after(&self, state: &Self::State, action: &Self::Action) -> Self::State;
    /// The invariant that a state violates; `None` if it violates none.
    fn violation(&self, state: &Self::State) -> Option<String>;
}

/// The result of an exploration.
pub(crate) struct Explored<S> {
    /// All states, or those that were reached before the violation.
    pub(crate) states: Vec<S>,
    /// The first violation, with the shortest trace to it.
    pub(crate) violation: Option<String>,
}

/// Explores a model to its end or its first violation.
///
/// # Panics
/// If there are more than `most` states: the bounds of the model are too wide for a test.
pub(crate) fn explore<M: Model>(model: &M, most: usize) -> Explored<M::State> {
    let mut numbers = HashMap::from([(model.initial(), 0)]);
    let mut states = vec![model.initial()];
    // The state before each state, and the action between them.
    let mut origins: Vec<Option<(usize, M::Action)>> = vec![None];
    let mut next = 0;
    while next < states.len() {
        assert!(states.len() <= most, "more than {most} states");
        if let Some(what) = model.violation(&states[next]) {
            let violation = Some(format!("{what}\n{}", trace(&states, &origins, next)));
            return Explored { states, violation };
        }
        for action in model.actions(&states[next]) {
            let state = model.after(&states[next], &action);
            if !numbers.contains_key(&state) {
                numbers.insert(state.clone(), states.len());
                states.push(state);
                origins.push(Some((next, action)));
            }
        }
        next += 1;
    }
    Explored { states, violation: None }
}

/// The way to a state, an action in each line.
fn trace<S: Debug, A: Debug>(
    states: &[S],
    origins: &[Option<(usize, A)>],
    mut number: usize,
) -> String {
    let mut lines = vec![format!("in the state {:?}", states[number])];
    while let Some((before, action)) = &origins[number] {
        lines.push(format!("  {action:?}"));
        number = *before;
    }
    lines.push("after these actions:".to_owned());
    lines.reverse();
    lines.join("\n")
}
