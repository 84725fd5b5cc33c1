//! Window: keeps the system messages at the start, the user's first message with its recalled
//! memories, and the newest half of a history (O-124). It has no settings: it is the fallback if
//! nothing else helps.

use conclave_condensing::{History, forgetting, is_needed};
use conclave_sdk::condenser::{Condensation, Condenser, Reason};
use conclave_sdk::{Result, View};

struct Window;

impl Condenser for Window {
    fn condense(why: Reason, view: &View) -> Result<Option<Condensation>> {
        Ok(condensed(&History::read(view), is_needed(why)))
    }
}

fn condensed(history: &History, needed: bool) -> Option<Condensation> {
    let gone = history.window();
    let entries = gone.iter().map(ExactSizeIterator::len).sum();
    // O-125
    (entries > 0 && (needed || history.is_progress(entries))).then(|| forgetting(gone))
}

conclave_sdk::export!(condenser: Window);

#[cfg(test)]
mod tests {
    use conclave_condensing::{Entry, EntryKind, History};
    use conclave_sdk::condenser::Span;

    use super::condensed;

    fn history(kinds: &[EntryKind]) -> History {
        History::new(
            kinds
                .iter()
                .map(|kind| Entry { kind: *kind, calls: Vec::new(), results: Vec::new(), chars: 1 })
                .collect(),
        )
    }

    #[test]
    fn what_was_asked_and_the_newest_half_stay() {
        let mut kinds = vec![EntryKind::System, EntryKind::Agent, EntryKind::User];
        kinds.extend([EntryKind::Agent; 9]);
        let condensation = condensed(&history(&kinds), false).unwrap();
        assert_eq!(condensation.forget, [Span { start: 1, end: 2 }, Span { start: 3, end: 6 }]);
        assert!(condensation.mask.is_empty() && condensation.summary.is_none());
    }

    #[test]
    fn a_short_history_stays() {
        for kinds in [
            &[][..],
            &[EntryKind::User],
            &[EntryKind::User, EntryKind::Agent],
            &[EntryKind::System, EntryKind::User],
        ] {
            assert_eq!(condensed(&history(kinds), true), None, "{kinds:?}");
        }
    }
}
