//! The id of a pending approval on the command line: `3f2a91c0:c7`, and `3f2a91c0/1:c7` in a child
//! room. The store resolves an id to its call.

use conclave_core::types::ids::{CallId, RoomId};

use crate::program::error::CliError;

/// Formats an id as `conclave approvals` shows it, and as `approve` and `refuse` take it.
pub(crate) fn approval_id(room: &RoomId, call: CallId) -> String {
    format!("{room}:{call}")
}

/// Returns the room as written, which may be only its run's first digits, and the call.
///
/// # Errors
/// If the text does not have that form.
pub(crate) fn parse_approval_id(text: &str) -> Result<(String, CallId), CliError> {
    let parsed = text.rsplit_once(':').and_then(|(room, call)| {
        let digits = call
            .strip_prefix('c')
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some((room, digits.parse().ok()?)).filter(|(room, _): &(&str, u64)| !room.is_empty())
    });
    let Some((room, call)) = parsed else {
        let wrong = format!("{text:?} is not the id of an approval");
        return Err(CliError::usage(wrong).hint(
            "write RUN:cNUMBER, such as 3f2a91c0:c7; `conclave approvals` lists the pending ones",
        ));
    };
    Ok((room.to_owned(), CallId(call)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_id_parses_to_the_same_call() {
        for room in ["3f2a91c0", "3f2a91c0/1", "3f2a91c0.4/2", "aa-batch-3"] {
            let id = approval_id(&RoomId::from(room), CallId(7));
            assert_eq!(parse_approval_id(&id).unwrap(), (room.to_owned(), CallId(7)), "{id}");
        }
    }

    #[test]
    fn an_invalid_id_is_a_usage_error_with_the_syntax() {
        for text in [
            "",
            ":",
            "3f2a",
            "3f2a:7",
            "3f2a:c",
            "3f2a:c+7",
            "3f2a:c-1",
            ":c7",
            "3f2a:c99999999999999999999",
            "3f2a:c7x",
        ] {
            let error = parse_approval_id(text).unwrap_err();
            assert_eq!(error.code(), crate::program::exit::USAGE);
            assert!(error.to_string().contains("RUN:cNUMBER"), "{text}: {error}");
        }
    }
}
