//! Tests that a page of hostile texts stays a page: every text is data, and nothing on it runs or
//! loads.

use conclave_core::inspect::prompts::ModelPrompt;
use conclave_core::inspect::timeline::{
    Effected, Given, Lane, RoomEnd, RowSubject, SandboxUsage, Timeline, TimelineRow, Totals,
};
use conclave_core::types::completion::{Prompt, PromptPiece, TokenUsage, ToolChoice, ToolFormat};
use conclave_core::types::denial::Layer;
use conclave_core::types::ids::{Millis, PluginName, RoomId, TaskName};
use conclave_core::types::outcome::Status;
use conclave_runtime::store::RunState;

use super::*;

const HOSTILE: &str = "</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\" onload='x' --><!--\u{202e}\u{1b}[2J";

pub(crate) fn row(depth: u32, start: u64, end: Option<u64>, what: RowSubject) -> TimelineRow {
    TimelineRow {
        room: RoomId::from("3f2a91c0"),
        seq: start,
        depth,
        start_ms: start,
        end_ms: end,
        abandoned: false,
        what,
    }
}

fn name<T: From<String>>(text: &str) -> T {
    T::from(text.to_owned())
}

/// Returns a row of each kind that holds texts, with this text in every place.
fn rows(text: &str) -> Vec<TimelineRow> {
    let some = || Some(text.to_owned());
    let used = Some(SandboxUsage { wall_us: 1_200, cpu_ms: 10, memory: 943_719 });
    let (task, plugin): (TaskName, PluginName) = (name(text), name(text));
    let whats = vec![
        RowSubject::Task {
            task: task.clone(),
            agent: plugin.clone(),
            caller: Some(task.clone()),
            status: Some(Status::Done),
            reason: text.into(),
        },
        RowSubject::Step {
            task: task.clone(),
            agent: plugin.clone(),
            says: text.into(),
            fault: some(),
            sandbox: used,
        },
        RowSubject::Model {
            task: Some(task.clone()),
            plugin: plugin.clone(),
            model: name(text),
            answered_by: some(),
            usage: TokenUsage {
                input_tokens: 1_200,
                cached_input_tokens: 100,
                output_tokens: 80,
                cost_micro_usd: Some(20_000),
            },
            error: some(),
        },
        RowSubject::Tool {
            task: task.clone(),
            caller: Some(plugin.clone()),
            name: text.into(),
            arguments: text.into(),
            answer: text.into(),
            is_error: true,
            fault: some(),
            sandbox: used,
        },
        RowSubject::SideEffect {
            plugin: plugin.clone(),
            verb: text.into(),
            target: text.into(),
            bytes: Some(3),
            came: Some(Effected::Answered { status: 200, length: 5, address: some() }),
        },
        RowSubject::Approval {
            task: task.clone(),
            caller: plugin.clone(),
            tool: text.into(),
            arguments: text.into(),
            source: text.into(),
            given: Some(Given::Refused { reason: text.into() }),
            author: some(),
        },
        RowSubject::User {
            task: task.clone(),
            channel: name(text),
            prompt: text.into(),
            answer: some(),
        },
        RowSubject::Background {
            id: name(text),
            task: task.clone(),
            child: name(text),
            status: some(),
            came: text.into(),
        },
        RowSubject::Delivered {
            id: name(text),
            task: task.clone(),
            strategy: Some(plugin.clone()),
            channel: name(text),
            text: text.into(),
        },
        RowSubject::Denied {
            plugin: plugin.clone(),
            capability: text.into(),
            target: text.into(),
            layer: Layer::Runtime,
            reason: text.into(),
            suggestion: some(),
        },
        RowSubject::Message { task, text: text.into() },
        RowSubject::Replaced { plugin, sha256: text.into() },
        RowSubject::Stopped {
            task: None,
            by: conclave_core::types::message::Role::User,
            reason: text.into(),
        },
        RowSubject::Other { event: text.into() },
    ];
    whats
        .into_iter()
        .zip(0..)
        .map(|(what, at)| row(u32::from(at > 0), at * 10, Some(at * 10 + 5), what))
        .collect()
}

pub(crate) fn timeline(text: &str, rows: Vec<TimelineRow>) -> Timeline {
    let took_ms = rows.iter().filter_map(|row| row.end_ms).max().unwrap_or(0);
    let lane = Lane {
        room: name(text),
        entry: name(text),
        start_ms: 0,
        end_ms: Some(took_ms),
        records: 3,
        status: Some(Status::Done),
    };
    Timeline {
        run: RoomId::from("3f2a91c0"),
        started: Millis(1_795_000_000_000),
        took_ms,
        entry: name(text),
        message: text.into(),
        ended: Some(RoomEnd {
            status: Status::Done,
            reason: text.into(),
            answer: Some(text.into()),
        }),
        totals: Totals {
            records: 3,
            steps: 2,
            input_tokens: 1_200,
            output_tokens: 80,
            cost_micro_usd: 20_000,
            ..Totals::default()
        },
        rooms: vec![lane],
        rows,
    }
}

pub(crate) fn about(text: &str) -> RunFacts {
    RunFacts {
        state: RunState::Ended(Status::Done),
        config: Some(text.into()),
        command: text.into(),
        reason: None,
        pending_changes: 0,
        blocked_changes: 0,
        change_decisions: Vec::new(),
    }
}

/// Tags that the page may contain. Any other tag would be a text that was not escaped.
const TAGS: [&str; 39] = [
    "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "code", "span", "p",
    "ul", "li", "div", "main", "footer", "form", "label", "input", "i", "svg", "rect", "details",
    "summary", "b", "small", "dl", "dt", "dd", "/html", "/head", "/title", "/style", "/body",
    "!doctype", "!--", "a", "br",
];

/// Returns a hostile prompt for each record of the rows.
fn hostile_prompts() -> RunPrompts {
    let prompt = |row: &TimelineRow| ModelPrompt {
        room: row.room.clone(),
        seq: row.seq,
        call_seq: row.seq,
        task: Some(name(HOSTILE)),
        plugin: name(HOSTILE),
        model: name(HOSTILE),
        prompt: Prompt {
            pieces: vec![PromptPiece::System { text: format!("read: {HOSTILE}").into() }],
            tools: Vec::new(),
            tool_format: ToolFormat::Native,
            tool_choice: ToolChoice::Auto,
            output_schema: None,
            stream: false,
            options: vec![(HOSTILE.to_owned(), HOSTILE.into())],
        },
    };
    RunPrompts::new(rows(HOSTILE).iter().map(prompt).collect())
}

#[test]
fn no_text_becomes_markup() {
    let page = page(
        &timeline(HOSTILE, rows(HOSTILE)),
        &about(HOSTILE),
        &[(HOSTILE.into(), vec![HOSTILE.into()])],
        &hostile_prompts(),
    );
    // The style is the program's own, and contains no `<`.
    let (head, rest) = page.split_once("<style>").expect("a style");
    let (style, body) = rest.split_once("</style>").expect("its end");
    assert!(!style.contains('<') && style == STYLE);
    for part in [head, body] {
        for tag in part.split('<').skip(1) {
            let end = tag.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(tag.len());
            let found = &tag[..end];
            let known = TAGS.contains(&found)
                || found.strip_prefix('/').is_some_and(|tag| TAGS.contains(&tag));
            assert!(known, "{found:?} is no tag of the page");
            let attributes = tag.split('>').next().unwrap_or_default();
            for word in [" on", "javascript", " src", " href", " style="] {
                let quoted = attributes.split('"').step_by(2).collect::<String>();
                assert!(!quoted.contains(word), "{attributes:?}");
            }
        }
    }
    for bad in ["<script", "<img", "</script", "\u{202e}", "\u{1b}"] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    assert!(page.matches("&lt;script&gt;").count() > 40, "every text is there");
    assert!(page.contains("[system]\nread: &lt;/script&gt;"), "what the model read, too");
}

#[test]
fn a_run_that_failed_says_why_in_its_box_and_a_refusal_how_to_learn_more() {
    let mut failed = timeline("x", rows("x"));
    failed.ended =
        Some(RoomEnd { status: Status::MaxTurns, reason: "too <many> turns".into(), answer: None });
    let page = page(
        &failed,
        &RunFacts { state: RunState::Ended(Status::MaxTurns), ..about("x") },
        &[],
        &RunPrompts::default(),
    );
    assert!(
        page.contains(
            "<div class=\"answer bad\"><b>Ended as max-turns: too &lt;many&gt; turns</b>"
        ),
        "{page}"
    );
    assert!(page.contains("<dd>conclave why 3f2a91c0:"));
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    let page = page(&timeline("x", rows("x")), &about("x"), &[], &RunPrompts::default());
    assert!(page.starts_with(BEGIN));
    let policy = page
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-")
            && !policy.contains("unsafe")
            && !policy.contains("script"),
        "{policy}"
    );
    for reference in ["http:", "https:", "//", "url(", "@import", "<link", "<script", " style=\""] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn a_long_run_is_folded_and_its_page_stays_small() {
    let tool = |at: u64| RowSubject::Step {
        task: name("t"),
        agent: name("a"),
        says: format!("step {at}"),
        fault: None,
        sandbox: None,
    };
    let task = RowSubject::Task {
        task: name("t"),
        agent: name("a"),
        caller: None,
        status: None,
        reason: String::new(),
    };
    let mut rows = vec![row(0, 0, None, task)];
    rows.extend((0..10_000).map(|at| row(1, at, Some(at + 1), tool(at))));
    let refused = RowSubject::Denied {
        plugin: name("p"),
        capability: "files".into(),
        target: "/key".into(),
        layer: Layer::Runtime,
        reason: "outside".into(),
        suggestion: None,
    };
    rows.insert(5_000, row(1, 4_999, Some(4_999), refused));
    let page = page(&timeline("x", rows), &about("x"), &[], &RunPrompts::default());
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
    assert!(page.contains("more rows") && page.contains("more are not on this page"));
    assert!(page.contains("DENIED p"), "what stands out is shown");
}
