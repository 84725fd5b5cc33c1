//! A simulated browser: each page is the same text with a picture attached, for `browse` and
//! `browse_interactive`.

use conclave_sdk::{Call, Outcome, Result, ToolSpec, Toolset, blobs};
use serde_json::Value;

struct Browser;

impl Toolset for Browser {
    fn list() -> Result<Vec<ToolSpec>> {
        let tool = |name| ToolSpec::new(name, "Shows a page.", r#"{"type":"object"}"#);
        Ok(["browse", "browse_interactive"].map(tool).into())
    }

    fn call(name: &str, _: Value, _: &Call) -> Result<Outcome> {
        let picture = blobs::put(name.as_bytes(), "image/png", Some("page.png"))?;
        Ok(Outcome::text("a page").with_attachment(picture))
    }
}

conclave_sdk::export!(toolset: Browser, asks: [blobs]);
