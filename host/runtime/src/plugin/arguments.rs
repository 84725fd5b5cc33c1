//! Checks arguments against the schemas of one plugin's tools without blocking other plugins, since
//! a hostile schema can be slow. The schemas themselves are not interpreted here.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::schema::Schema;
use conclave_core::types::text::show_size as size;

/// Steps up to which a check runs on the executor's thread. They take well below a millisecond
/// unless the schema is hostile; moving to another thread costs about as much.
const INLINE: u64 = 20_000;
/// Time limit of a check, including the wait for a permit.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum concurrent long checks. An abandoned check cannot be stopped, so this bounds the threads
/// that a hostile plugin keeps busy.
const AT_ONCE: usize = 2;

/// Checks the arguments of one plugin's tools.
pub(crate) struct ArgumentChecker {
    /// Schemas in the order of the tools.
    schemas: Vec<Arc<Schema>>,
    permits: Arc<Semaphore>,
}

impl ArgumentChecker {
    pub(crate) fn new(schemas: Vec<Schema>) -> Self {
        Self {
            schemas: schemas.into_iter().map(Arc::new).collect(),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns the JSON text of the arguments, if they are valid and have at most so many bytes.
    pub(crate) async fn check(
        &self,
        tool: usize,
        arguments: &Arc<Value>,
        most: u64,
    ) -> Result<String, String> {
        self.check_within(PATIENCE, tool, arguments, most).await
    }

    async fn check_within(
        &self,
        patience: Duration,
        tool: usize,
        arguments: &Arc<Value>,
        most: u64,
    ) -> Result<String, String> {
        let text = arguments.to_string();
        // The size comes first: it is cheap, and bounds the cost of the checks below.
        if text.len() as u64 > most {
            return Err(format!(
                "they have {} bytes; up to {} are taken (limits.arguments of the plugin)",
                text.len(),
                size(most)
            ));
        }
        let schema = &self.schemas[tool];
        if schema.steps(arguments)? <= INLINE {
            return schema.check(arguments).map(|()| text);
        }
        let (schema, permits) = (Arc::clone(schema), Arc::clone(&self.permits));
        let arguments = Arc::clone(arguments);
        // The timeout includes the wait for a permit, so a hostile plugin delays no caller for
        // longer.
        let checked = tokio::time::timeout(patience, async move {
            let place = permits.acquire_owned().await.expect("the semaphore is never closed");
            let check = move || {
                // Held until the work ends, even if the caller stops waiting.
                let _place = place;
                schema.check(&arguments)
            };
            tokio::task::spawn_blocking(check).await
        });
        match checked.await {
            Ok(Ok(checked)) => checked.map(|()| text),
            Ok(Err(_)) => Err("they could not be checked".to_owned()),
            Err(_) => Err("checking them took too long; send less at once".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use conclave_core::types::tool::ToolSpec;
    use serde_json::json;

    use super::super::schema::compile_each;
    use super::*;

    const BYTES: u64 = 1 << 20;

    /// A checker with the maximum number of patterns.
    fn arguments() -> ArgumentChecker {
        let input_schema =
            json!({ "properties": { "a": { "allOf": vec![json!({ "pattern": "^x*$" }); 32] } } });
        let tool = ToolSpec { name: "a".to_owned(), input_schema, ..ToolSpec::default() };
        ArgumentChecker::new(
            compile_each(&[tool], Instant::now() + Duration::from_secs(600))
                .into_iter()
                .collect::<Result<_, _>>()
                .unwrap(),
        )
    }

    fn long() -> Value {
        json!({ "a": "x".repeat(100_000) })
    }

    #[tokio::test]
    async fn valid_arguments_return_their_json_text() {
        for value in [json!({ "a": "x" }), long()] {
            let value = Arc::new(value);
            let text =
                arguments().check_within(Duration::from_secs(600), 0, &value, BYTES).await.unwrap();
            assert_eq!(text, value.to_string());
        }
        for value in [json!({ "a": "y" }), json!({ "a": "y".repeat(100_000) })] {
            assert!(
                arguments()
                    .check_within(Duration::from_secs(600), 0, &Arc::new(value), BYTES)
                    .await
                    .unwrap_err()
                    .starts_with("at /a: ")
            );
        }
    }

    #[tokio::test]
    async fn more_than_can_be_checked_is_refused() {
        let refused = arguments()
            .check(0, &Arc::new(json!({ "b": "x".repeat(1 << 20) })), BYTES)
            .await
            .unwrap_err();
        assert!(refused.contains("up to 1 MiB"), "{refused}");
        assert!(
            arguments()
                .check(0, &Arc::new(json!({ "a": "x".repeat(500_000) })), BYTES)
                .await
                .unwrap_err()
                .contains("too large")
        );
    }

    /// Without the time limit these arguments would be valid.
    #[tokio::test]
    async fn a_check_that_takes_too_long_is_given_up_and_a_short_one_goes_on() {
        let arguments = arguments();
        let _others = Arc::clone(&arguments.permits).acquire_many_owned(2).await.unwrap();
        let refused =
            arguments.check_within(Duration::ZERO, 0, &Arc::new(long()), BYTES).await.unwrap_err();
        assert!(refused.contains("took too long"), "{refused}");
        assert!(
            arguments
                .check_within(Duration::ZERO, 0, &Arc::new(json!({ "a": "x" })), BYTES)
                .await
                .is_ok()
        );
    }
}
