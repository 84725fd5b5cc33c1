//! Recent: keeps the first and the newest entries of a history and forgets those between (O-124).
//! It is the cheapest condenser, without a model and without reading any text.

use conclave_condensing::{History, forgetting, is_needed};
use conclave_sdk::condenser::{Condensation, Condenser, Reason};
use conclave_sdk::{Result, View, config};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    keep_first: usize,
    /// 0: half of the history.
    keep_last: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keep_first: 1, keep_last: 0 }
    }
}

struct Recent;

impl Condenser for Recent {
    fn condense(why: Reason, view: &View) -> Result<Option<Condensation>> {
        Ok(condensed(&History::read(view), &config::get()?, is_needed(why)))
    }
}

fn condensed(history: &History, settings: &Settings, needed: bool) -> Option<Condensation> {
    let newest = (settings.keep_last > 0).then_some(settings.keep_last);
    let gone = history.recent(settings.keep_first, newest, needed)?;
    // O-125: removing fewer entries is not worth it, unless it is needed.
    (needed || history.is_progress(gone.len())).then(|| forgetting([gone]))
}

conclave_sdk::export!(condenser: Recent);

#[cfg(test)]
mod tests {
    use conclave_condensing::{Entry, EntryKind, History};
    use conclave_sdk::condenser::Span;

    use super::{Settings, condensed};

    fn history(entries: usize) -> History {
        History::new(vec![
            Entry {
                kind: EntryKind::User,
                calls: Vec::new(),
                results: Vec::new(),
                chars: 1
            };
            entries
        ])
    }

    fn forgotten(entries: usize, settings: &Settings, needed: bool) -> Option<(u64, u64)> {
        let condensation = condensed(&history(entries), settings, needed)?;
        assert!(condensation.mask.is_empty() && condensation.summary.is_none());
        let [Span { start, end }] = condensation.forget[..] else { panic!("{condensation:?}") };
        Some((start, end))
    }

    #[test]
    fn the_settings_say_what_stays() {
        assert_eq!(forgotten(100, &Settings::default(), false), Some((1, 51)));
        assert_eq!(
            forgotten(100, &Settings { keep_first: 3, keep_last: 10 }, false),
            Some((3, 90))
        );
        assert_eq!(
            forgotten(100, &Settings { keep_first: 0, keep_last: 80 }, false),
            Some((0, 20))
        );
    }

    #[test]
    fn little_goes_only_when_it_must() {
        let settings = Settings { keep_first: 1, keep_last: 98 };
        assert_eq!(forgotten(100, &settings, false), None);
        assert_eq!(forgotten(100, &settings, true), Some((1, 2)));
        assert_eq!(forgotten(50, &settings, false), None);
        assert_eq!(forgotten(50, &settings, true), Some((1, 25)));
    }

    #[test]
    fn nothing_comes_of_nothing() {
        for entries in 0..2 {
            assert_eq!(forgotten(entries, &Settings::default(), true), None, "{entries}");
        }
    }
}
