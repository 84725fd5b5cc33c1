//! What lives on from call to call, and its limits.

use conclave_sdk::testing::FakeHost;
use conclave_sdk::{Call, Toolset};
use serde_json::json;

use super::{call, observed, run};
use crate::Terminal;

#[test]
fn a_state_above_the_limit_is_refused_and_the_one_before_stays() {
    let mut host = FakeHost::new().writable("/work");
    run(&mut host, "x=before; echo small > /tmp/small");
    let (output, code) = run(&mut host, "x=after; seq 30000 > /tmp/large; echo wrote");
    assert!(output.starts_with("wrote\n") && output.contains("`limits.scratch`"), "{output}");
    assert_eq!(code, 1);
    assert_eq!(run(&mut host, "echo $x; ls /tmp").0, "before\nsmall");
    let (output, _) = run(&mut host, "seq 100000 > /tmp/larger; cat /tmp/larger >> /tmp/larger");
    assert!(output.contains("`limits.scratch`"), "{output}");
    assert_eq!(run(&mut host, "echo $x; ls /tmp").0, "before\nsmall");
    // A file in a granted folder needs no state.
    assert_eq!(run(&mut host, "seq 30000 > large; wc -l < large").0, "30000");
}

#[test]
fn a_time_out_keeps_the_shell_and_the_files_before_it() {
    let mut host = FakeHost::new().writable("/work");
    run(&mut host, "x=before");
    let arguments =
        json!({ "command": "x=after; echo made > made; sleep 9; echo never", "timeout_s": 5 });
    let (output, code) = observed(&call(&mut host, "run", arguments));
    assert_eq!(code, -1);
    assert!(output.starts_with("Command: \"x=after;") && output.contains("timed out"), "{output}");
    assert_eq!(run(&mut host, "echo $x; cat made").0, "before\nmade");
    let arguments = json!({ "command": "sleep 9; echo in time", "timeout_s": 10 });
    assert_eq!(observed(&call(&mut host, "run", arguments)), ("in time".to_owned(), 0));
}

#[test]
fn what_the_host_does_not_keep_of_a_folder_is_kept_with_the_shell() {
    let mut host = FakeHost::new().writable("/work").file("/work/full/a", "x");
    run(&mut host, "mkdir -p empty/deep; echo 'echo ran $1' > s.sh; chmod +x s.sh; rm -r full");
    assert_eq!(
        run(&mut host, "ls; ls empty; ./s.sh it; [ -e full ] || echo gone").0,
        "empty\ns.sh\ndeep\nran it\ngone"
    );
    assert_eq!(
        run(&mut host, "echo y > empty/deep/file; rmdir empty 2>&1; rm -r empty; ls")
            .0
            .lines()
            .last(),
        Some("s.sh")
    );
    assert_eq!(run(&mut host, "mkdir full; ls full; echo z > full/b; ls full").0, "b");
    assert_eq!(host.content("/work/full/b"), Some(b"z\n".as_slice()));
}

#[test]
fn output_beyond_the_limit_keeps_both_ends_and_a_mark() {
    let mut host = FakeHost::new();
    let (output, code) = run(&mut host, "for ((i=1; i<=20000; i++)); do echo line $i; done");
    assert_eq!(code, 0);
    assert!(
        output.starts_with("line 1\nline 2\n") && output.ends_with("line 20000"),
        "{}",
        output.len()
    );
    assert!(output.chars().count() < 31_000, "{}", output.len());
    assert!(output.contains("truncated"), "{output}");
}

#[test]
fn a_folder_for_reading_only_is_not_changed() {
    let mut host = FakeHost::new().file("/docs/a.txt", "text\n");
    let (output, _) = run(
        &mut host,
        "cat a.txt; echo x > a.txt; rm a.txt; mkdir d; mv a.txt b.txt; rm -r /docs; echo end",
    );
    assert!(output.starts_with("text\n") && output.ends_with("end"), "{output}");
    assert_eq!(run(&mut host, "ls; cat a.txt").0, "a.txt\ntext");
    assert_eq!(host.content("/docs/a.txt"), Some(b"text\n".as_slice()));
}

#[test]
fn a_command_that_does_not_exist_names_those_that_do() {
    let mut host = FakeHost::new();
    let (output, code) = run(&mut host, "node -e 'print(1)'");
    assert_eq!(code, 127);
    assert!(output.starts_with("bash: node: command not found\n"), "{output}");
    for command in [" awk ", " curl ", " grep ", " jq ", " sed ", " tar "] {
        assert!(output.contains(command), "{output}");
    }
    assert_eq!(
        run(&mut host, "command -v python3 || type ls >/dev/null && echo only ls").0,
        "only ls"
    );
}

#[test]
fn a_function_that_is_nested_deep_is_kept_or_refused_and_the_shell_stays_usable() {
    let nested = |levels: usize| {
        let (begin, end) = ("if true; then ".repeat(levels), "fi; ".repeat(levels));
        format!("f() {{ {begin}echo deep; {end}}}; echo defined")
    };
    let mut host = FakeHost::new();
    run(&mut host, "x=kept");
    for levels in [10, 24] {
        assert_eq!(run(&mut host, &nested(levels)), ("defined".to_owned(), 0), "{levels}");
        assert_eq!(run(&mut host, "f; echo $x").0, "deep\nkept", "{levels}");
    }
    let started = call(&mut host, "run", json!({ "command": "f", "background": true }));
    assert_eq!(observed(&started).1, 0, "the copy of the shell has the function too");
    let most = run(&mut host, &nested(90));
    assert!(most.1 == 0 || most.0.contains("nested too deep") || most.1 == 2, "{most:?}");
    assert_eq!(run(&mut host, "echo $x").0, "kept");
}

#[test]
fn a_state_that_cannot_be_read_begins_a_new_shell_and_says_so() {
    let mut host = FakeHost::new();
    host.run(|| conclave_sdk::scratch::set_bytes(b"no state\n")).expect("it can be stored");
    let (output, code) = run(&mut host, "x=new; echo ran");
    assert!(output.starts_with("terminal: this is a new shell, because"), "{output}");
    assert!(output.ends_with("\nran") && code == 0, "{output}");
    assert_eq!(run(&mut host, "echo $x").0, "new");
}

#[test]
fn a_pattern_expands_to_all_names() {
    let mut host = FakeHost::new();
    for name in 0..10_050 {
        host = host.file(&format!("/many/{name}"), "");
    }
    assert_eq!(run(&mut host, "set -- /many/*; echo $#").0, "10050");
}

#[test]
fn the_commands_are_listed_once_in_a_call() {
    let mut host = FakeHost::new();
    let lists = |text: &str| text.matches("The commands are: ").count();
    let (output, code) = run(&mut host, "git status; svn info");
    assert_eq!((lists(&output), code), (1, 127), "{output}");
    assert!(output.ends_with("bash: svn: command not found\n") || output.ends_with("found"));
    assert_eq!(lists(&run(&mut host, "svn info").0), 1, "a later call has the list again");
    let (python, _) = run(&mut host, "pytest -q");
    assert!(python.contains("run_ipython") && lists(&python) == 0, "{python}");
}

#[test]
fn a_file_that_is_edited_in_place_keeps_its_mode_and_leaves_no_other() {
    let mut host = FakeHost::new().writable("/work").file("/work/a.sh", "echo one\n");
    run(&mut host, "chmod 700 a.sh");
    let (output, code) = run(&mut host, "sed -i s/one/two/ a.sh; stat -c %a a.sh; ls -A");
    assert_eq!((output.as_str(), code), ("700\na.sh", 0));
    assert_eq!(host.content("/work/a.sh"), Some(b"echo two\n".as_slice()));
}

#[test]
fn input_for_a_running_program_is_no_command() {
    let mut host = FakeHost::new().writable("/work");
    let input = json!({ "command": "touch made", "is_input": true });
    let failed = host.run(|| Terminal::call("run", input, &Call::default()));
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(run(&mut host, "ls").0, "");
}
