//! What clients read, for the operator.

use std::sync::Arc;

use conclave_mcp::serve::ReadObserver;

use crate::ui::screen::Screen;
use crate::ui::show::{FAINT, one_line, paint};

/// Prints reads to stderr.
pub(super) struct ReadPrinter(pub(super) Arc<Screen>);

impl ReadObserver for ReadPrinter {
    fn on_read(&self, uri: &str, refused: Option<&str>) {
        let uri = one_line(uri, 200);
        let line = match refused {
            Some(why) => format!("a client was refused {uri}: {}", one_line(why, 200)),
            None => format!("a client read {uri}"),
        };
        self.0.line(format_args!("{}", paint(FAINT, line)));
    }
}
