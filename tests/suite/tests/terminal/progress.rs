//! Progress of calls on a terminal: one line that is overwritten, and removed before the result.

use conclave_test_support::{Rig, guest, stock};
use serde_json::{Value, json};

use super::MARK;
use super::emulator::Terminal;
use crate::cli::text;

/// The number of calls of one turn, each of which reports its progress three times.
const CALLS: usize = 12;

fn rig() -> Rig {
    let call = |id: usize| json!({ "id": id.to_string(), "name": "worker.run", "args": {} });
    let calls: Vec<Value> = (0..CALLS).map(call).collect();
    let replies = json!({ "replies": [{ "calls": calls }, "All of it is done."] });
    let config = format!(
        "entry = \"main\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n\
         [plugins.chat]\nsource = \"{}\"\ngrants.model = [\"default\"]\n\
         grants.tools = [\"worker.*\"]\n[plugins.worker]\nsource = \"{}\"\n\
         [tasks.main]\nagent = \"chat\"\n",
        stock().join("chat.wasm").display(),
        guest("progressing").display()
    );
    Rig::new().with_file("c.toml", config).with_file("replies.json", replies.to_string())
}

#[test]
fn progress_is_one_line_that_is_gone_before_the_result() {
    for columns in [40, 80, 120] {
        let rig = rig();
        let mut terminal = Terminal::start(&rig, &["run", "c.toml", "go"], columns);
        let (mut most, is_progress) = (0, |row: &&String| row.contains(" of 3"));
        // Checks each visible state of the screen up to the result.
        let is_result = |row: &String| row.contains("All of it is done.") && row.contains(MARK);
        terminal.until("the result", |rows| {
            most = most.max(rows.iter().filter(is_progress).count());
            let has_ended = rows.iter().any(is_result);
            let shown = rows.iter().filter(is_progress).count();
            assert!(!has_ended || shown == 0, "{columns}: {rows:#?}");
            has_ended
        });
        assert!(most <= 1, "{columns}: {most} rows of progress at once");
        let (status, rows) = terminal.ends();
        assert_eq!(status.code(), Some(0), "{columns}: {rows:#?}");
        assert_eq!(rows.iter().filter(is_progress).count(), 0, "{columns}: {rows:#?}");
    }
    // The same run through a pipe shows that the progress was reported.
    let rig = rig();
    let piped = rig.conclave(&["run", "c.toml", "go"]).output().expect("the program runs");
    assert!(text(&piped.stderr).contains("worker 1 of 3"), "{}", text(&piped.stderr));
}
