//! Each limit that the config accepts, and a guest that exceeds it. A fault is an observation, so
//! the task still answers.

use std::net::TcpListener;

use conclave_core::config::{KEYS, ProblemCode};
use conclave_core::protocol::event::Event;
use conclave_core::types::fault::{Fault, FaultKind};
use conclave_core::types::outcome::Status;
use conclave_test_support::{Ran, Rig, calling, guest, stepping};
use serde_json::json;

/// Calls a guest's tool with these limits. The agent must receive the fault as an observation and
/// finish.
fn exceeds(guest_name: &str, limits: &str) -> (Fault, Ran) {
    let ran = Rig::new()
        .run(&calling(guest_name, "run", &json!({}), &format!("limits = {{ {limits} }}")), "go");
    assert_eq!(ran.status(), Status::Done, "{}", ran.outcome.reason);
    let fault = ran.fault();
    assert!(
        ran.content().contains(&fault.message),
        "the agent can read {:?} in {:?}",
        fault.message,
        ran.content()
    );
    (fault, ran)
}

#[test]
fn a_spinning_tool_is_stopped_at_its_cpu_limit() {
    let (fault, ran) = exceeds("spin", r#"cpu = "100 ms""#);
    assert_eq!(fault.kind, FaultKind::Cpu);
    assert!(
        fault.message.contains("100 ms") && fault.message.contains("limits.cpu"),
        "{}",
        fault.message
    );
    assert!(ran.answer().report.cpu_ticks >= 9, "{:?}", ran.answer().report);
}

#[test]
fn a_tool_that_waits_is_stopped_at_its_wall_limit_and_used_no_cpu() {
    // If waiting counted as computing, the CPU limit would apply first.
    let (fault, ran) = exceeds("sleepy", r#"wall = "1500 ms", cpu = "1 s""#);
    assert_eq!(fault.kind, FaultKind::Wall);
    assert!(fault.message.contains("limits.wall"), "{}", fault.message);
    assert!(ran.answer().report.wall_us >= 1_500_000, "{:?}", ran.answer().report);
}

#[test]
fn endless_allocation_is_stopped_at_the_memory_limit() {
    let (fault, ran) = exceeds("allocate", r#"memory = "8 MiB""#);
    assert_eq!(fault.kind, FaultKind::Memory);
    assert!(
        fault.message.contains("8 MiB") && fault.message.contains("limits.memory"),
        "{}",
        fault.message
    );
    assert!(ran.answer().report.memory <= 8 << 20, "{:?}", ran.answer().report);
}

#[test]
fn deep_recursion_is_stopped() {
    let (fault, _) = exceeds("recurse", r#"cpu = "5 s""#);
    assert_eq!(fault.kind, FaultKind::Stack);
}

#[test]
fn a_panic_becomes_an_observation_with_its_place() {
    let (fault, ran) = exceeds("panic", r#"cpu = "5 s""#);
    assert_eq!(fault.kind, FaultKind::Panic);
    assert!(
        fault.message.contains("panic.rs:"),
        "file and line reach the author: {}",
        fault.message
    );
    assert!(ran.logs().iter().any(|line| line.contains("panicked")), "{:?}", ran.logs());
}

#[test]
fn too_much_output_is_refused() {
    let (fault, _) = exceeds("huge_output", r#"memory = "256 MiB", output = "64 KiB""#);
    assert_eq!(fault.kind, FaultKind::Output);
    assert!(fault.message.contains("limits.output"), "{}", fault.message);
}

#[test]
fn a_flood_of_host_calls_is_stopped() {
    let (fault, _) = exceeds("host_call_flood", "host_calls = 1000");
    assert_eq!(fault.kind, FaultKind::HostCalls);
    assert!(fault.message.contains("1000"), "{}", fault.message);
}

#[test]
fn a_flood_of_wasi_resources_is_stopped() {
    let (fault, _) = exceeds("pollable_flood", "handles = 50");
    assert_eq!(fault.kind, FaultKind::Handles);
}

#[test]
fn garbage_for_a_value_is_a_bad_answer() {
    let (fault, _) = exceeds("garbage_json", r#"cpu = "5 s""#);
    assert_eq!(fault.kind, FaultKind::BadAnswer);
}

#[test]
fn a_flood_of_log_lines_is_cut_and_counted_and_the_tool_goes_on() {
    let ran = Rig::new().run(
        &calling(
            "log_flood",
            "run",
            &json!({}),
            r#"limits = { log = "2 KiB", cpu = "10 s", host_calls = 10_000_000 }"#,
        ),
        "go",
    );
    let answer = ran.answer();
    assert!(!answer.is_error, "{answer:?}");
    assert!(answer.report.log_dropped > 900_000, "{:?}", answer.report);
    let kept: usize = ran.logs().iter().map(String::len).sum();
    assert!(kept <= 3 * 1024, "{kept} bytes were kept");
}

#[test]
fn reading_more_files_than_allowed_is_refused_with_the_quota() {
    let rig = Rig::new().with_file("data/big.txt", vec![b'x'; 64 * 1024]);
    let lines = r#"grants.files = [{ dir = "data", at = "/folder", mode = "read" }]
limits = { read = "256 KiB", cpu = "5 s" }"#;
    let ran =
        rig.run(&calling("files_bomb", "run", &json!({ "path": "/folder/big.txt" }), lines), "go");
    assert!(ran.content().contains("262144"), "{}", ran.content());
}

#[test]
fn a_scratch_that_is_too_large_is_refused() {
    let ran = Rig::new().run(
        &calling(
            "scratch_large",
            "run",
            &json!({}),
            r#"limits = { scratch = "1 KiB", output = "1 MiB", memory = "256 MiB", cpu = "5 s" }"#,
        ),
        "go",
    );
    let fault_or_text = ran.content();
    // 100 MiB do not even reach the host: the output limit applies first.
    assert_eq!(
        ran.answer().fault.map(|fault| fault.kind),
        Some(FaultKind::Output),
        "{fault_or_text}"
    );
    let ran = Rig::new().run(
        &calling(
            "scratch_large",
            "some",
            &json!({ "bytes": 2000 }),
            r#"limits = { scratch = "1 KiB" }"#,
        ),
        "go",
    );
    assert!(ran.content().contains("1024"), "{}", ran.content());
}

#[test]
fn a_spinning_agent_is_stopped_and_its_task_ends_with_the_reason() {
    let ran = Rig::new().run(&stepping("agent_spin", r#"limits = { cpu = "50 ms" }"#, ""), "go");
    assert_eq!(ran.status(), Status::Error);
    assert_eq!(ran.plugin_faults(), [FaultKind::Cpu; 3]);
    assert!(ran.outcome.reason.contains("3 times in a row"), "{}", ran.outcome.reason);
}

#[test]
fn an_agent_that_says_too_much_is_refused() {
    let ran = Rig::new().run(
        &stepping(
            "agent_big_turn",
            r#"limits = { memory = "256 MiB", output = "64 KiB", cpu = "5 s" }"#,
            "",
        ),
        "go",
    );
    assert_eq!(ran.plugin_faults().first(), Some(&FaultKind::Output));
}

#[test]
fn arguments_that_are_too_large_are_refused() {
    let call = |limits: &str| {
        Rig::new().run(&calling("echo", "run", &json!({ "text": "x".repeat(2_000) }), limits), "go")
    };
    let ran = call(r#"limits = { arguments = "1 KiB" }"#);
    assert!(ran.answer().is_error);
    assert!(
        ran.content().contains("up to 1 KiB are taken (limits.arguments of the plugin)"),
        "{}",
        ran.content()
    );
    assert!(!call(r#"limits = { arguments = "4 KiB" }"#).answer().is_error);
}

/// No server accepts the connection, so the guest waits inside the host, where the engine's clock
/// cannot interrupt it.
#[test]
fn a_tool_whose_model_never_answers_is_stopped_at_its_wall_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/v1", silent.local_addr().expect("it has one"));
    let config =
        calling(
            "model_denied",
            "wait",
            &json!({}),
            "grants.model = [\"default\"]\nlimits = { wall = \"500 ms\" }",
        ) + &format!("[models.default]\nkind = \"openai\"\nurl = \"{url}\"\nmodel = \"m\"\n");
    let ran = Rig::new().run(&config, "go");
    assert_eq!(
        (ran.status(), ran.fault().kind),
        (Status::Done, FaultKind::Wall),
        "{}",
        ran.content()
    );
}

/// Each key of `limits`, and the test here, in `by_hand`, `compile` or `blobs` that exceeds it.
const EXCEEDED: [(&str, &str); 18] = [
    ("memory", "endless_allocation_is_stopped_at_the_memory_limit"),
    ("cpu", "a_spinning_tool_is_stopped_at_its_cpu_limit"),
    ("wall", "a_tool_that_waits_is_stopped_at_its_wall_limit_and_used_no_cpu"),
    ("output", "too_much_output_is_refused"),
    ("log", "a_flood_of_log_lines_is_cut_and_counted_and_the_tool_goes_on"),
    ("host_calls", "a_flood_of_host_calls_is_stopped"),
    ("handles", "a_flood_of_wasi_resources_is_stopped"),
    ("read", "reading_more_files_than_allowed_is_refused_with_the_quota"),
    ("scratch", "a_scratch_that_is_too_large_is_refused"),
    ("blobs", "what_one_call_keeps_is_bounded_altogether"),
    ("at_once", "calls_beyond_those_allowed_at_once_wait_for_their_turn"),
    ("table_elements", "a_table_grows_up_to_the_bound_and_no_further"),
    ("instances", "more_instances_than_the_host_gives_are_refused_at_load"),
    ("arguments", "arguments_that_are_too_large_are_refused"),
    ("list", "a_list_that_is_too_long_is_refused"),
    ("component", "a_component_that_is_too_large_is_refused"),
    ("compile_time", "a_component_that_takes_long_to_compile_is_given_up"),
    ("compile_memory", "a_component_that_takes_much_memory_to_compile_is_given_up"),
];

/// A limit that the config accepts but no code enforces would be worse than no limit.
#[test]
fn every_limit_has_a_test_that_exceeds_it_and_a_row_in_the_manual() {
    let tests = [
        include_str!("limits.rs"),
        include_str!("by_hand.rs"),
        include_str!("compile.rs"),
        include_str!("blobs.rs"),
    ]
    .join("\n");
    let manual = include_str!("../../../docs/use/permissions.md");
    let keys: Vec<&str> =
        KEYS.iter().filter(|key| key.table == "plugins.NAME.limits").map(|key| key.name).collect();
    assert_eq!(keys, EXCEEDED.map(|(key, _)| key));
    for (key, test) in EXCEEDED {
        let is_test = |attribute: &str| tests.contains(&format!("{attribute}\nfn {test}() {{"));
        assert!(is_test("#[test]"), "there is no test {test}");
        assert!(
            manual.contains(&format!("\n| `{key}` | ")),
            "docs/use/permissions.md has no row for {key}"
        );
    }
}

#[test]
fn a_run_ends_at_its_turns() {
    let config = stepping("agent_loop", "", r#"subtasks = ["echo"]"#)
        + &format!(
            "[plugins.echo]\nsource = \"{}\"\n[tasks.echo]\nagent = \"echo\"\n[limits.run]\nturns = 7\n",
            guest("agent_echo").display()
        );
    let ran = Rig::new().run(&config, "go");
    assert_eq!(ran.status(), Status::MaxTurns, "{}", ran.outcome.reason);
    assert_eq!(ran.outcome.spent.turns, 7);
}

#[test]
fn a_run_ends_at_its_wall_time_although_a_guest_waits() {
    let config = calling("sleepy", "run", &json!({}), r#"limits = { wall = "1 h" }"#)
        + "[limits.run]\nwall = \"300 ms\"\n";
    let ran = Rig::new().run(&config, "go");
    assert_eq!(ran.status(), Status::Timeout);
}

#[test]
fn stopping_a_run_stops_a_spinning_guest() {
    let config = calling("spin", "run", &json!({}), r#"limits = { cpu = "1 h", wall = "1 h" }"#);
    let ran = Rig::new().run_with(&config, "go", |follow| {
        if let conclave_runtime::subscribe::RunEvent::Notice {
            notice: conclave_core::protocol::notice::Notice::ToolCalled { .. },
        } = &follow.happening.what
        {
            follow.stop.expect("the run has started").stop("the test says so");
        }
    });
    assert_eq!(ran.status(), Status::Kill);
}

#[test]
fn a_spin_in_list_tools_is_stopped_at_load() {
    let problems = conclave_test_support::refused(
        &Rig::new(),
        &calling("spin_list_tools", "run", &json!({}), r#"limits = { cpu = "100 ms" }"#),
    );
    assert_eq!(problems.codes(), [ProblemCode::PluginRefused], "{problems}");
    let text = problems.to_string();
    assert!(text.contains("list-tools") || text.contains("computed"), "{text}");
}

#[test]
fn calls_beyond_those_allowed_at_once_wait_for_their_turn() {
    let config = format!(
        "entry = \"main\"\n[models.default]\nkind = \"scripted\"\nreplies = \"replies.json\"\n[plugins.chat]\nsource = \"stock:chat\"\n\
         grants.model = [\"default\"]\ngrants.tools = [\"subject.*\"]\n[plugins.subject]\nsource = \"{}\"\n\
         limits = {{ wall = \"300 ms\", at_once = 1 }}\n[tasks.main]\nagent = \"chat\"\n",
        guest("sleepy").display()
    );
    let calls = json!({ "calls": [{ "name": "subject.run" }, { "name": "subject.run" }] });
    let ran = Rig::new()
        .with_file("replies.json", json!({ "replies": [calls, "end"] }).to_string())
        .run(&config, "go");
    assert_eq!(ran.answers().iter().filter(|answer| answer.is_error).count(), 2);
    let ended: Vec<u64> = ran
        .happenings
        .iter()
        .filter(|happening| {
            use conclave_runtime::subscribe::RunEvent;
            matches!(
                &happening.what,
                RunEvent::Notice {
                    notice: conclave_core::protocol::notice::Notice::ToolAnswered { .. }
                }
            )
        })
        .map(|happening| happening.at.0)
        .collect();
    // Each sleeps until its wall limit. In parallel both would end at the same time, however slow
    // the machine is.
    assert!(ended[1] - ended[0] >= 290, "{ended:?}");
}

/// Returns a config whose agent reads all of `data/large.txt` 100 times in each of so many turns.
/// That is less than one message may hold.
fn reading_again_and_again(turns: usize, limits: &str) -> String {
    let call = |id: usize| {
        let args = json!({ "path": "/data/large.txt" });
        json!({ "id": id.to_string(), "name": "reader.run", "args": args })
    };
    let turn =
        |turn: usize| json!({ "calls": (turn * 100..).take(100).map(call).collect::<Vec<_>>() });
    let replies: Vec<_> = (0..turns).map(turn).chain([json!({ "text": "DONE" })]).collect();
    let script = json!({ "llm": { "kind": "seq", "replies": replies } });
    format!(
        "entry = \"lead\"\n[plugins.lead]\nsource = \"{}\"\ngrants.tools = [\"reader.run\"]\n\
         config = {{ script = '{script}' }}\n[plugins.reader]\nsource = \"{}\"\n\
         grants.files = [{{ dir = \"data\", at = \"/data\", mode = \"read\" }}]\n\
         [tasks.lead]\nagent = \"lead\"\n{limits}",
        guest("script_agent").display(),
        guest("files_read").display()
    )
}

/// B10: each answer is within its own limit, but their sum is not.
#[test]
fn answers_that_fill_the_memory_of_a_room_end_its_run() {
    let config = reading_again_and_again(1, "[limits.run]\nhistory = \"4 MiB\"\n");
    let ran = Rig::new().with_file("data/large.txt", "x".repeat(512 << 10)).run(&config, "go");
    assert_eq!(ran.status(), Status::MaxHistory, "{}", ran.outcome.reason);
    assert!(ran.outcome.reason.contains("limits.run.history"), "{}", ran.outcome.reason);
    let answered = ran
        .events("test")
        .iter()
        .filter(|event| matches!(event, Event::ToolAnswered { .. }))
        .count();
    assert!(
        (8..=16).contains(&answered),
        "it ended at the limit, and not after all of them: {answered}"
    );
}

/// B10 as it was found: answers of nearly a mebibyte, with the default limits. Without
/// `limits.run.history` four times as many take a multiple of the memory.
#[cfg(target_os = "linux")]
#[test]
fn four_times_as_many_answers_take_no_more_memory() {
    let few = peak_while_reading(1);
    let many = peak_while_reading(4);
    // Without the limit the ratio is nearly 2, because a third of the memory is used before any
    // answer.
    assert!(2 * many < 3 * few, "{many} KiB for 400 answers, {few} KiB for 100");
}

/// Returns the peak memory of this process in KiB during a run with so many turns.
#[cfg(target_os = "linux")]
fn peak_while_reading(turns: usize) -> u64 {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    let peak = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&peak);
    let rig = Rig::new().with_file("data/large.txt", "x".repeat(1000 << 10));
    let ran = rig.run_with(&reading_again_and_again(turns, ""), "go", move |_| {
        seen.fetch_max(resident_kib(), Ordering::Relaxed);
    });
    assert_eq!(ran.status(), Status::MaxHistory, "{}", ran.outcome.reason);
    peak.load(Ordering::Relaxed)
}

#[cfg(target_os = "linux")]
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is always there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()).expect("it has memory");
    number.parse().expect("it is a number")
}
