//! Limits that are counted up to and raised again: the control flags of 2025-11 (O-079, O-080).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Counts up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit<T> {
    /// By how much it is raised.
    #[serde(rename = "limit_increase_amount")]
    pub step: T,
    #[serde(rename = "current_value")]
    pub current: T,
    #[serde(rename = "max_value")]
    pub max: T,
    /// It was reached when it was last looked at, and has not been raised since.
    #[serde(default)]
    pub was_hit: bool,
}

/// Steps of an agent.
pub type Iterations = Limit<u64>;
/// Dollars that an agent has spent.
pub type Budget = Limit<f64>;

/// A limit is reached; the text is for people and for the journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reached(pub String);

impl<T: PartialOrd + Copy + Default> Limit<T> {
    /// From nothing up to `max`, and by as much more when it is raised.
    pub fn up_to(max: T) -> Self {
        Self { step: max, current: T::default(), max, was_hit: false }
    }

    /// Whether it is reached, which it remembers.
    pub fn is_reached(&mut self) -> bool {
        self.was_hit = self.current >= self.max;
        self.was_hit
    }
}

impl Iterations {
    /// Counts a step.
    ///
    /// # Errors
    /// When the limit is reached; the step is not counted then.
    pub fn step(&mut self) -> Result<(), Reached> {
        if self.is_reached() {
            let Self { current, max, .. } = self;
            return Err(Reached(format!("Agent reached maximum iteration. Current iteration: {current}, max iteration: {max}")));
        }
        self.current += 1;
        Ok(())
    }

    /// Raises the limit where it was hit, unless nobody is there to want it (O-080).
    pub fn raise(&mut self, headless: bool) {
        if self.was_hit && !headless {
            self.max = self.max.saturating_add(self.step);
            self.was_hit = false;
        }
    }
}

impl Budget {
    /// Checks only: what was spent is set from outside.
    ///
    /// # Errors
    /// When the limit is reached.
    pub fn step(&mut self) -> Result<(), Reached> {
        if self.is_reached() {
            let Self { current, max, .. } = self;
            return Err(Reached(format!(
                "Agent reached maximum budget for conversation.Current budget: {current:.2}, max budget: {max:.2}"
            )));
        }
        Ok(())
    }

    /// Raises the limit where it was hit, from what is spent on; whether or not somebody is there (O-080).
    pub fn raise(&mut self) {
        if self.was_hit {
            self.max = self.current + self.step;
            self.was_hit = false;
        }
    }
}

impl<T: fmt::Display> fmt::Display for Limit<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.current, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_counted_and_raised_only_for_somebody() {
        let mut steps = Iterations::up_to(2);
        assert_eq!([steps.step(), steps.step()], [Ok(()), Ok(())]);
        let told = steps.step().unwrap_err().to_string();
        assert_eq!(told, "Agent reached maximum iteration. Current iteration: 2, max iteration: 2");
        steps.raise(true);
        assert_eq!((steps.max, steps.was_hit), (2, true));
        steps.raise(false);
        assert_eq!((steps.max, steps.was_hit, steps.step()), (4, false, Ok(())));
        steps.raise(false);
        assert_eq!(steps.max, 4, "it was not hit since");
    }

    #[test]
    fn a_budget_is_raised_from_what_is_spent() {
        let mut dollars = Budget { current: 53.0, ..Budget::up_to(50.0) };
        let told = dollars.step().unwrap_err().to_string();
        assert_eq!(told, "Agent reached maximum budget for conversation.Current budget: 53.00, max budget: 50.00");
        dollars.raise();
        assert_eq!((dollars.max, dollars.step()), (103.0, Ok(())));
        dollars.raise();
        assert_eq!(dollars.max, 103.0);
    }
}
