//! The checks on the repository's text that no compiler makes. They take seconds, and come first.

use crate::cases;
use crate::doc_openings;
use crate::failure::XtaskFailure;
use crate::gates;
use crate::identifiers;
use crate::imports;
use crate::locks;
use crate::phase::Phases;
use crate::place::Checkout;
use crate::size;
use crate::sources::{self, Sources};
use crate::type_size;

type Check = fn(&Sources<'_>) -> Result<(), XtaskFailure>;

/// The checks, each with the label of its phase.
pub(crate) const ALL: [(&str, Check); 12] = [
    ("looking up the rules that code cites", gates::cited_rules_resolve),
    ("looking up the pages that code cites", gates::cited_pages_exist),
    ("looking for guests without a test", gates::guests_are_tested),
    ("looking for tests that wait for time", gates::tests_wait_for_facts),
    ("looking for lines of cases that are too long", cases::cases_are_readable),
    ("looking for imports that point up", imports::imports_point_down),
    ("looking for locks that are held over IO", locks::no_lock_is_held_over_io),
    ("looking for types of many methods", type_size::types_stay_small),
    (
        "looking at the names of functions, fields and variables",
        identifiers::names_say_what_things_are,
    ),
    ("looking at how documentation begins", doc_openings::docs_begin_with_the_thing),
    ("looking at the size of each crate", size::growth_has_a_reason),
    ("looking at the lock file of the fuzzer", gates::fuzzer_is_locked),
];

/// Makes each check as a phase.
pub(crate) fn run(place: &Checkout, phases: &mut Phases) -> Result<(), XtaskFailure> {
    let texts = sources::read(place)?;
    let sources = Sources::new(place, &texts);
    ALL.iter().try_for_each(|(label, check)| phases.check(label, || check(&sources)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_passes_each_check() {
        let place = Checkout::find().unwrap_or_else(|failure| panic!("{}", failure.text));
        let texts = sources::read(&place).unwrap_or_else(|failure| panic!("{}", failure.text));
        let sources = Sources::new(&place, &texts);
        let problems: Vec<String> = ALL
            .iter()
            .filter_map(|(label, check)| Some(format!("{label}: {}", check(&sources).err()?.text)))
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
