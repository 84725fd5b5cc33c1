//! Texts that several grants share: lists of names, and limits.

use std::borrow::Borrow;

/// `a, b`.
pub(crate) fn join<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// `a, b` of a list of names.
pub(super) fn joined<T: Borrow<str>>(names: &[T]) -> String {
    join(names.iter().map(Borrow::borrow))
}

/// A list of names for the config.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(", "))
}

/// A list for the config with the granted names and one more, so that it takes nothing away.
pub(super) fn list_with<T: Borrow<str>>(granted: &[T], name: &str) -> String {
    list(granted.iter().map(Borrow::borrow).chain([name]))
}

/// ` (50 000 tokens, $0.20)`; empty without any.
pub(crate) fn in_brackets<const N: usize>(bounds: [Option<String>; N]) -> String {
    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    if bounds.is_empty() { String::new() } else { format!(" ({})", bounds.join(", ")) }
}

/// `within its limits for the run: 5 calls`; `None` without any.
pub(super) fn run_limits<const N: usize>(limits: [(Option<u64>, &str); N]) -> Option<String> {
    let limits = limits.into_iter().filter_map(|(limit, noun)| Some(format!("{} {noun}", limit?)));
    let limits: Vec<String> = limits.collect();
    (!limits.is_empty()).then(|| format!("within its limits for the run: {}", limits.join(", ")))
}
