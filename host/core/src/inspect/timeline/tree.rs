//! Rows in the order of a tree: each before its children.

/// The indices of all rows in that order, each with its depth. A row's parent has a smaller index,
/// or is `None`.
pub(super) fn order(parents: &[Option<usize>]) -> Vec<(usize, u32)> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); parents.len()];
    let mut top = Vec::new();
    for (index, parent) in parents.iter().enumerate() {
        match parent {
            Some(parent) => below[*parent].push(index),
            None => top.push(index),
        }
    }
    // Not recursive: the depth depends on the run and could exhaust the stack.
    let mut to_do: Vec<(usize, u32)> = top.into_iter().rev().map(|index| (index, 0)).collect();
    let mut all = Vec::with_capacity(parents.len());
    while let Some((index, depth)) = to_do.pop() {
        all.push((index, depth));
        to_do.extend(below[index].iter().rev().map(|child| (*child, depth.saturating_add(1))));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_row_stands_before_what_is_below_it() {
        let parents = [None, Some(0), Some(0), Some(1), None, Some(2), Some(1)];
        assert_eq!(order(&parents), [(0, 0), (1, 1), (3, 2), (6, 2), (2, 1), (5, 2), (4, 0)]);
    }
}
