//! Masking: replaces old tool results with `[left out]` (O-124). The agent's own actions stay, so
//! it knows its earlier attempts; results are most of a history's bytes (O-180).

use conclave_condensing::{History, is_needed};
use conclave_sdk::condenser::{Condensation, Condenser, LEFT_OUT, Reason};
use conclave_sdk::{Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    window: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { window: 100 }
    }
}

struct Masking;

impl Condenser for Masking {
    fn condense(why: Reason, view: &View) -> Result<Option<Condensation>> {
        Ok(condensed(&History::read(view), &config::get()?, is_needed(why)))
    }
}

/// Masks only texts that are longer than the mask: a masked text is not masked again, and a mask
/// never makes a text longer.
fn condensed(history: &History, settings: &Settings, needed: bool) -> Option<Condensation> {
    let length = LEFT_OUT.chars().count();
    let mut old = history.old_results(settings.window, length);
    if old.is_empty() && needed {
        // The settings would keep everything, but something must go.
        old = history.old_results(settings.window.min(history.len().div_ceil(2)), length);
    }
    let masked =
        old.iter().fold(Condensation::nothing(), |all, index| all.leave_out(*index as u64));
    (!old.is_empty()).then_some(masked)
}

conclave_sdk::export!(condenser: Masking);

#[cfg(test)]
mod tests {
    use conclave_condensing::{Entry, EntryKind, History};

    use super::{Settings, condensed};

    /// A history of calls and their results, the first result being short.
    fn history(pairs: usize) -> History {
        let call = |id: usize| Entry {
            kind: EntryKind::Agent,
            calls: vec![(id.to_string(), "shell.run".into())],
            results: Vec::new(),
            chars: 900,
        };
        let result = |id: usize| Entry {
            kind: EntryKind::Results,
            calls: Vec::new(),
            results: vec![id.to_string()],
            chars: if id == 0 { 8 } else { 900 },
        };
        History::new((0..pairs).flat_map(|id| [call(id), result(id)]).collect())
    }

    fn masked(pairs: usize, window: usize, needed: bool) -> Vec<u64> {
        let Some(condensation) = condensed(&history(pairs), &Settings { window }, needed) else {
            return Vec::new();
        };
        assert!(condensation.forget.is_empty() && condensation.summary.is_none());
        assert!(condensation.mask.iter().all(|mask| mask.text == "[left out]"));
        condensation.mask.iter().map(|mask| mask.index).collect()
    }

    #[test]
    fn results_before_the_window_are_hidden_unless_they_are_short() {
        assert_eq!(masked(5, 4, false), [3, 5]);
        assert_eq!(masked(5, 0, false), [3, 5, 7, 9]);
        assert_eq!(masked(5, 10, false), [0; 0]);
    }

    #[test]
    fn when_something_must_go_the_older_half_is_hidden() {
        assert_eq!(masked(5, 100, true), [3]);
        assert_eq!(masked(1, 100, true), [0; 0]);
    }
}
