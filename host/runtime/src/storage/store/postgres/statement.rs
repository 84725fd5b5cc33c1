//! The statements that both engines of a store share, as PostgreSQL writes them.

/// Returns the statement with `$1` for `?1`, outside of texts and names in quotes.
pub(super) fn with_dollars(statement: &str) -> String {
    let mut result = String::with_capacity(statement.len());
    let mut quote = None;
    for character in statement.chars() {
        match (quote, character) {
            (None, '?') => result.push('$'),
            (None, '\'' | '"') => {
                quote = Some(character);
                result.push(character);
            }
            (Some(open), _) => {
                // A doubled quote closes and opens again.
                if open == character {
                    quote = None;
                }
                result.push(character);
            }
            (None, other) => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_rewritten_and_texts_are_not() {
        for (statement, rewritten) in [
            ("SELECT ?1, ?12", "SELECT $1, $12"),
            ("SELECT '?1' || ?2", "SELECT '?1' || $2"),
            ("SELECT 'it''s ?1', ?1", "SELECT 'it''s ?1', $1"),
            ("SELECT \"a?1\" FROM x WHERE y = ?1", "SELECT \"a?1\" FROM x WHERE y = $1"),
        ] {
            assert_eq!(with_dollars(statement), rewritten);
        }
    }
}
