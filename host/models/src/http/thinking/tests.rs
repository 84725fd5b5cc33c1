use conclave_core::config::ThinkingMarks;

use super::{ThinkingFilter, ThinkingFormat};

fn format(open: &str, close: &str) -> ThinkingFormat {
    ThinkingFormat::new(Some(ThinkingMarks { open: open.to_owned(), close: close.to_owned() }))
}

fn usual() -> ThinkingFormat {
    ThinkingFormat::new(Some(ThinkingMarks::default()))
}

/// Returns the text, the thinking, and what was shown while the text came.
fn read(format: ThinkingFormat, pieces: &[&str], is_cut: bool) -> (String, String, String) {
    let mut filter = ThinkingFilter::new(format);
    let mut visible: String = pieces.iter().map(|piece| filter.handle_text(piece)).collect();
    visible += &filter.finish(is_cut);
    let (text, thinking) = filter.into_parts();
    (text, thinking, visible)
}

/// Compares the result for the whole text, for each cut of it, and letter by letter.
fn check(format: impl Fn() -> ThinkingFormat, input: &str, is_cut: bool, expected: (&str, &str)) {
    let cuts = (0..=input.len()).filter(|cut| input.is_char_boundary(*cut));
    let mut divisions: Vec<Vec<&str>> =
        cuts.map(|cut| vec![&input[..cut], &input[cut..]]).collect();
    divisions.push(input.split("").collect());
    for pieces in divisions {
        let (text, thinking, visible) = read(format(), &pieces, is_cut);
        assert_eq!((text.as_str(), thinking.as_str()), expected, "{pieces:?}");
        // What was shown before a closing mark without a beginning cannot be taken back.
        assert!(visible.ends_with(&text), "{visible:?} of {text:?}");
    }
}

#[test]
fn thinking_leaves_the_text_wherever_it_stands() {
    for (input, text, thinking) in [
        ("48 metres.", "48 metres.", ""),
        ("<think>plan</think>48 metres.", "48 metres.", "plan"),
        ("\n<think>\nplan\n</think>\n\n48 metres.\n", "48 metres.\n", "plan"),
        ("<think></think>\n\n48", "48", ""),
        ("<think>plan</think>", "", "plan"),
        // Several blocks, with text between them.
        ("<think>a</think><think>b</think>c", "c", "a\nb"),
        ("<think>a</think>One, <think>b</think>two.", "One, two.", "a\nb"),
        ("One.<think>b</think> Two.", "One. Two.", "b"),
        // A block within a block, and one that is only mentioned in another.
        ("<think>a <think>b</think> c</think>answer", "answer", "a\nb\nc"),
        ("<think>I use <think> here.</think>answer", "answer", "I use\nhere."),
        ("<think>a<think>b</think>c<think>d</think>e</think>f", "f", "a\nb\nc\nd\ne"),
        // No beginning, because the template has written it.
        ("plan\n</think>\n\n48", "48", "plan"),
        ("plan {\"request\": \"x\"}</think>", "", "plan {\"request\": \"x\"}"),
        // One end too many.
        ("<think>a</think></think>b", "b", "a"),
        ("<think>a</think>b</think>", "b", "a"),
        // No end.
        ("<think>a", "", "a"),
        ("One.\n<think>a", "One.\n", "a"),
        ("The mark <think> begins it.", "The mark <think> begins it.", ""),
        // A part of a mark is text.
        ("a < b, <thin", "a < b, <thin", ""),
        ("<thinker>a</thinker>", "<thinker>a</thinker>", ""),
        ("2</thing", "2</thing", ""),
    ] {
        check(usual, input, false, (text, thinking));
    }
}

#[test]
fn marks_in_code_strings_and_quotes_are_text() {
    for input in [
        "Write `<think>` and `</think>` around it.",
        "Write \"<think>\" first.",
        "```\n<think>\na\n</think>\n```\nThat is all.",
        r#"{"request": "files.write", "content": "a <think>b</think> c </think>"}"#,
        "<write><content><![CDATA[a <think>b</think>]]></content></write>",
    ] {
        check(usual, input, false, (input, ""));
    }
    let after = r#"{"a": "}\"{"} <think>b</think>c"#;
    check(usual, after, false, (r#"{"a": "}\"{"} c"#, "b"));
}

#[test]
fn a_text_that_was_cut_ends_in_its_thinking() {
    check(usual, "One <think>a", true, ("One ", "a"));
    check(|| format("", "</think>"), "plan", true, ("", "plan"));
}

#[test]
fn a_model_may_have_other_marks_or_none() {
    check(|| format("[THINK]", "[/THINK]"), "[THINK]a[/THINK]<think>b", false, ("<think>b", "a"));
    check(|| format("◁think▷", "◁/think▷"), "◁think▷ä◁/think▷ö", false, ("ö", "ä"));
    check(|| format("", "</think>"), "plan</think>48", false, ("48", "plan"));
    check(|| format("", "</think>"), "48", false, ("48", ""));
    check(ThinkingFormat::default, "<think>a</think>b", false, ("<think>a</think>b", ""));
}

#[test]
fn text_is_shown_while_it_comes_and_thinking_is_not() {
    let mut filter = ThinkingFilter::new(usual());
    let visible: Vec<String> = ["<thi", "nk>a", "</think", ">\n\n", "4", "8 <", " 49"]
        .into_iter()
        .map(|piece| filter.handle_text(piece))
        .collect();
    assert_eq!(visible, ["", "", "", "", "4", "8 ", "< 49"]);
}

#[test]
fn after_one_answer_without_a_beginning_the_next_is_not_shown_before_its_end() {
    let format = usual();
    let mut pieces = ["plan", "</think>48"];
    assert_eq!(read(format.clone(), &pieces, false).2, "plan48");
    assert_eq!(read(format.clone(), &pieces, false).2, "48");
    pieces = ["<think>a", "</think>49"];
    assert_eq!(read(format.clone(), &pieces, false), ("49".into(), "a".into(), "49".into()));
    assert_eq!(read(format, &["no thinking"], false).0, "no thinking");
}
