//! What two values of one setting allow together, for a resumed run: its own and today's.

/// The overlaps of each entry with each entry of the other list, in the first one's order.
pub(super) fn overlap<T: PartialEq + Clone>(
    initial: &[T],
    today: &[T],
    overlap: impl Fn(&T, &T) -> Option<T>,
) -> Vec<T> {
    // Two entries of one list can overlap too; what did not change stays as it was written.
    if initial == today {
        return initial.to_vec();
    }
    let mut found = Vec::new();
    for entry in
        initial.iter().flat_map(|initial| today.iter().filter_map(|it| overlap(initial, it)))
    {
        if !found.contains(&entry) {
            found.push(entry);
        }
    }
    found
}

/// The entries that stand in both lists.
pub(super) fn common<T: PartialEq + Clone>(initial: &[T], today: &[T]) -> Vec<T> {
    initial.iter().filter(|entry| today.contains(entry)).cloned().collect()
}

/// A value whose limits are the smaller of both, first those that always exist; the other fields
/// follow.
macro_rules! smaller_of {
    ($initial:ident, $today:ident: $($limit:ident)*; $($optional:ident)*; $($others:tt)*) => {
        Self {
            $($limit: $initial.$limit.min($today.$limit),)*
            $(
                $optional: $crate::permissions::overlap::smaller(
                    $initial.$optional,
                    $today.$optional,
                ),
            )*
            $($others)*
        }
    };
}
pub(crate) use smaller_of;

/// The smaller of two limits; `None` is no limit.
pub(crate) fn smaller<T: Ord>(initial: Option<T>, today: Option<T>) -> Option<T> {
    [initial, today].into_iter().flatten().min()
}
