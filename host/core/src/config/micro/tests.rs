//! Well-formed, malformed and hostile files of prompt agents.

use serde_json::json;

use super::*;

const CODER: &str = "---\nname: coder\ndescription: Does one task.\ninputs:\n  task: what to do\n  depth:\noutputs:\n  summary: string\n\
                     agent: planner\ntools: [search.find, notes.save]\ntriggers:\n- fix\n- \"mend: now\"\nversion: 1.0\n---\n\n\
                     # You are a coder\nDo {{ inputs.task }} with {{state.inputs.depth}} or ${task}.\n";

fn problems(text: &str) -> Problems {
    match read("a.md", text) {
        Err(problems) => problems,
        Ok(micro) => panic!("it was read: {micro:?}"),
    }
}

fn with_front(front: &str) -> String {
    format!("---\n{front}\n---\nDo it.\n")
}

#[test]
fn a_file_says_what_goes_in_and_out() {
    let micro = read("a.md", CODER).unwrap();
    assert_eq!(
        (micro.name.as_deref(), micro.description.as_str()),
        (Some("coder"), "Does one task.")
    );
    assert_eq!(
        micro.inputs,
        BTreeMap::from([("task".into(), "what to do".into()), ("depth".into(), String::new())])
    );
    assert_eq!(micro.outputs, BTreeMap::from([("summary".into(), "string".into())]));
    assert_eq!((micro.agent.as_deref(), micro.tools.len()), (Some("planner"), 2));
    assert_eq!(micro.triggers, ["fix", "mend: now"]);
    assert!(micro.prompt.starts_with("# You are a coder") && micro.warnings.is_empty());
}

#[test]
fn files_of_both_eras_are_read() {
    let of_2024 = with_front(
        "name: Verifier\ndescription: Verifies.\ninputs:\n  task: string\noutputs:\n  completed: boolean\n  n: 3",
    );
    assert_eq!(read("a.md", &of_2024).unwrap().outputs["completed"], "boolean");
    let of_2025 = with_front(
        "name: pr\ntype: task\ninputs:\n  - name: URL\n    description: of the pull request\n    required: true\ntriggers: []",
    );
    assert_eq!(
        read("a.md", &of_2025).unwrap().inputs,
        BTreeMap::from([("URL".into(), "of the pull request".into())])
    );
    let typed = with_front("outputs: {diff: {type: string, description: the change}}");
    assert_eq!(read("a.md", &typed).unwrap().outputs["diff"], "string: the change");
    assert_eq!(read("a.md", "\u{feff}---\r\n---\r\nDo it.\r\n").unwrap().prompt, "Do it.");
}

#[test]
fn an_empty_trigger_stands_in_nothing() {
    let problems = problems(&with_front("triggers:\n- git\n- \" \""));
    assert_eq!(problems.codes(), [ProblemCode::InvalidValue], "{problems}");
    assert_eq!((problems.0[0].line, problems.0[0].column), (4, 3), "{problems}");
}

#[test]
fn inputs_are_put_in_once() {
    let inputs = json!({ "task": "a {{ inputs.depth }} ${depth}", "depth": 3, "list": ["x"] });
    let micro = read("a.md", CODER).unwrap();
    let rendered = render(&micro.prompt, &inputs);
    assert_eq!(
        rendered,
        "# You are a coder\nDo a {{ inputs.depth }} ${depth} with 3 or a {{ inputs.depth }} ${depth}."
    );
    assert_eq!(
        render("{{inputs.list}} $5 {x} {{ x }} ${y} {{ inputs.task", &inputs),
        "[\"x\"] $5 {x} {{ x }} ${y} {{ inputs.task"
    );
}

#[test]
fn what_names_no_input_is_reported_and_stays() {
    let text = "---\ninputs: {task: string}\n---\nDo {{ inputs.tsak }}.\nSee {{ to_json(state.history) }}, ${HOME}, {{ inputs.task }}.\n";
    let micro = read("a.md", text).unwrap();
    let positions: Vec<_> =
        micro.warnings.0.iter().map(|problem| (problem.line, problem.column)).collect();
    assert_eq!(positions, [(4, 4), (5, 5), (5, 35)]);
    assert_eq!(micro.warnings.codes(), [ProblemCode::NoEffect; 3], "{}", micro.warnings);
}

#[test]
fn every_mistake_has_its_place_its_code_and_its_remedy() {
    use ProblemCode::{
        Duplicate, InvalidName, InvalidValue, MissingKey, OutOfRange, Syntax, Unavailable,
        UnknownKey, WrongType,
    };
    let files = [
        ("Do it.", (1, 1), Syntax),
        ("", (1, 1), Syntax),
        ("---\nname: a\nDo it.", (1, 1), Syntax),
        ("---\nname: a\n---\n \n", (3, 4), MissingKey),
        ("---\nname: a\n---\nA\n{% for x in y %}\n", (5, 1), InvalidValue),
        ("---\nname: a\n---\nA {# note\nlong #}\n", (4, 3), InvalidValue),
    ];
    let many = format!("tools: [{}]", "a,".repeat(101));
    let fronts = [
        ("nmae: a", (2, 1), UnknownKey),
        ("name: [a]", (2, 7), WrongType),
        ("tools: find", (2, 8), WrongType),
        ("tools:\n- a\n- {b: c}", (4, 3), WrongType),
        ("inputs: task", (2, 9), WrongType),
        ("inputs:\n  a b: string", (3, 8), InvalidName),
        ("inputs:\n- description: x", (3, 3), MissingKey),
        ("inputs:\n- {name: a}\n- {name: a}", (4, 3), Duplicate),
        ("mcp_tools: {}", (2, 1), Unavailable),
        ("- a", (2, 1), WrongType),
        ("name: \"a", (3, 1), Syntax),
        ("name: a\nname: b", (3, 1), Syntax),
        ("a: b: c", (2, 5), Syntax),
        (many.as_str(), (2, 8), OutOfRange),
    ];
    let fronts = fronts.map(|(front, place, code)| (with_front(front), place, code));
    let files = files.map(|(file, place, code)| (file.to_owned(), place, code));
    for (text, place, code) in files.into_iter().chain(fronts) {
        let problems = problems(&text);
        let [problem] = &problems.0[..] else { panic!("{text}: {problems}") };
        assert_eq!(
            (problem.line, problem.column, problem.code),
            (place.0, place.1, code),
            "{text}"
        );
        assert!(problem.remedy.is_some(), "{text}: {problems}");
    }
}

#[test]
fn only_so_many_mistakes_are_said() {
    let text = format!(
        "---\nname: a\n---\n{}{}",
        (0..10_000).map(|n| format!("${{a{n}}} ")).collect::<String>(),
        "{%%} ".repeat(10_000)
    );
    let Err(problems) = read("a.md", &text) else { panic!("it was read") };
    assert!(problems.has_errors() && problems.0.len() <= 2 * MOST_PROBLEMS, "{}", problems.0.len());
}

#[test]
fn all_mistakes_are_said_at_once() {
    let problems = problems("---\nnmae: a\ntools: b\n---\n{% x %}\n");
    let lines: Vec<usize> = problems.0.iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [2, 3, 5]);
}

#[test]
fn hostile_files_are_refused() {
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]";
    let many = (0..200).map(|n| format!("  i{n}: x\n")).collect::<String>();
    let cases = [
        with_front(bomb),
        with_front(&format!("name: {}{}", "[".repeat(50_000), "]".repeat(50_000))),
        with_front(&format!("name: {}", "[".repeat(100_000))),
        with_front(&format!("name: {}", "{a: ".repeat(50_000))),
        with_front(&format!(
            "name:\n{}",
            (0..200).map(|n| format!("{}a:\n", " ".repeat(n + 1))).collect::<String>()
        )),
        with_front(&format!("{}: a", "k".repeat(100_000))),
        with_front(&format!("tools: [{}]", "a,".repeat(60_000))),
        with_front(&format!("inputs:\n{many}")),
        with_front("<<: {name: a}"),
        with_front("name: a\n--- {name: b}"),
        "x".repeat(LARGEST_FILE + 1),
        format!("---\nname: a\n---\n{}", "{%".repeat(100_000)) + "%}",
    ];
    for (index, text) in cases.iter().enumerate() {
        let report = problems(text).to_string();
        assert!(report.len() < 20_000, "case {index} says too much: {} bytes", report.len());
    }
}

#[test]
fn many_open_braces_are_only_text() {
    for text in ["{{".repeat(60_000), "${".repeat(60_000), "{% ".repeat(40_000)] {
        let _ = read("a.md", &format!("---\nname: a\n---\n{text}"));
        assert_eq!(render(&text, &json!({})), text);
    }
}

#[test]
fn outputs_are_asked_for_and_checked() {
    let outputs = BTreeMap::from([
        ("diff".to_owned(), String::new()),
        ("summary".to_owned(), "what was changed".to_owned()),
    ]);
    let text = outputs_text(&outputs);
    assert_eq!(
        text,
        "When you are done, give a JSON object with these keys:\n- diff\n- summary: what was changed"
    );
    assert_eq!(missing_outputs(&outputs, &json!({ "diff": "", "summary": null })), None);
    assert!(
        missing_outputs(&outputs, &json!("done"))
            .unwrap()
            .starts_with("The outputs lack `diff` and `summary`. When you are done")
    );
    assert_eq!(
        missing_inputs(&outputs, &json!({ "diff": 1 })).as_deref(),
        Some("The inputs lack `summary`.")
    );
    assert_eq!(
        (outputs_text(&BTreeMap::new()), missing_outputs(&BTreeMap::new(), &json!(null))),
        (String::new(), None)
    );
}
