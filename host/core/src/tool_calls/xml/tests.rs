use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn calls_are_found_in_text() {
    for (text, found) in [
        ("a <tool><x>1</x></tool> b <tool></tool>", vec!["<tool><x>1</x></tool>", "<tool></tool>"]),
        ("none", vec![]),
        ("a <x>1</x></tool> b", vec!["<tool><x>1</x></tool>"]),
        ("a < b <x y='1'><x>1</x></tool>", vec!["<tool><x>1</x></tool>"]),
        (
            "bare </tool> and <é_1>q</tool> <a>r</tool>",
            vec!["<tool><é_1>q</tool>", "<tool><a>r</tool>"],
        ),
        ("<tool><x>1</x>", vec!["<tool><x>1</x></tool>"]),
        ("<tool><x>1</x> <tool><y>2</y>", vec!["<tool><y>2</y></tool>"]),
        ("<tool>a<tool>b</tool></tool>", vec!["<tool>a<tool>b</tool>"]),
        // Text before an opening tag is not a call, text after the last closed one may be
        ("<x>1</x></tool><tool><y/></tool>", vec!["<tool><y/></tool>"]),
        ("<tool><y/></tool> <x>1</x></tool>", vec!["<tool><y/></tool>", "<tool><x>1</x></tool>"]),
        ("<tool ><x>1</x></tool>", vec!["<tool><x>1</x></tool>"]),
        ("<Tool><x>1</x></Tool>", vec![]),
    ] {
        assert_eq!(candidates(text), found, "{text:?}");
    }
}

#[test]
fn fields_without_a_schema() {
    for (inside, expected) in [
        ("<request>get</request><k> abc\n</k>", json!({"request": "get", "k": "abc"})),
        ("", json!({})),
        ("text", json!({})),
        ("<a/><b></b>", json!({"a": "", "b": ""})),
        ("<a><x>1</x><x> 2 </x></a>", json!({"a": ["1", "2"]})),
        ("<a><x>1</x></a>", json!({"a": ["1"]})),
        ("<a>t<x>1</x>u<y>2</y>v</a>", json!({"a": {"x": "1", "y": "2"}})),
        ("<a>1</a><a>2</a>", json!({"a": "2"})),
        ("<_id>1</_id><a><_b>1</_b><c>2</c></a>", json!({"a": {"_b": {}, "c": "2"}})),
        ("<a>&lt;&#65;&#x1F600;&amp;&gt;&quot;&apos;</a>", json!({"a": "<A😀&>\"'"})),
        ("<a><![CDATA[x]]y & <b>]]>z<![CDATA[q]]></a>", json!({"a": "x]]y & <b>zq"})),
        ("<a>1\r\n2\r3</a>", json!({"a": "1\n2\n3"})),
        ("<a x='1' xml:y = \"2\"\n>1</a ><b z='>'/>", json!({"a": "1", "b": ""})),
        ("<code>\n x\n</code>", json!({"code": "x"})),
        ("<é-1.b>1</é-1.b>", json!({"é-1.b": "1"})),
    ] {
        assert_eq!(fields(&format!("<tool>{inside}</tool>"), None).unwrap(), expected, "{inside}");
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}, "code": {"type": "string"}, "tags": {"type": "array"}}}},
        "properties": {
            "list": {"type": "array", "items": {"type": "object"}},
            "maybe": {"anyOf": [{"type": "array", "items": {"type": "array"}}, {"type": "null"}]},
            "map": {"type": "object", "additionalProperties": {"type": "array"}},
            "point": {"$ref": "#/$defs/point"},
            "script": {"type": "string", "verbatim": true},
            "code": {"type": "string"},
            "loop": {"$ref": "#/properties/loop"}
        }
    })
}

#[test]
fn a_schema_says_what_elements_are() {
    for (inside, expected) in [
        ("<list/>", json!({"list": []})),
        ("<list><a/><a><k>1</k></a></list>", json!({"list": [{}, {"k": "1"}]})),
        ("<maybe></maybe>", json!({"maybe": []})),
        ("<maybe><i/></maybe>", json!({"maybe": [[]]})),
        ("<map/>", json!({"map": {}})),
        ("<map><k><i>1</i></k></map>", json!({"map": {"k": ["1"]}})),
        ("<map><k/><l/></map>", json!({"map": {"k": [], "l": []}})),
        ("<point><x> 1 </x></point>", json!({"point": {"x": "1"}})),
        ("<point><tags/></point>", json!({"point": {"tags": []}})),
        ("<point></point>", json!({"point": ""})),
        ("<loop><a>1</a></loop>", json!({"loop": ["1"]})),
        // Only a top-level field is verbatim
        ("<point><code> x </code></point>", json!({"point": {"code": "x"}})),
        ("<code>\n x\n</code>", json!({"code": "\n x\n"})),
        (
            "<script><![CDATA[ if a < b:\n  \"&amp;\" ]]></script>",
            json!({"script": " if a < b:\n  \"&amp;\" "}),
        ),
        ("<script> ```\nx\n```\n</script>", json!({"script": "x"})),
        ("<script>```</script>", json!({"script": ""})),
        ("<script>```py\nx</script>", json!({"script": "```py\nx"})),
        ("<script/>", json!({"script": ""})),
    ] {
        assert_eq!(
            fields(&format!("<tool>{inside}</tool>"), Some(&schema())).unwrap(),
            expected,
            "{inside}"
        );
    }
}

#[test]
fn mistakes_are_placed() {
    for (text, why) in [
        ("<tool>\n<a>é</b></tool>", "line 2, column 8: `</b>` where `</a>` is expected"),
        ("<tool><a>1</tool>", "`</tool>` where `</a>` is expected"),
        ("<tool><a>1</a>", "line 1, column 15: the element `tool` is not closed"),
        ("<tool></tool></tool>", "closes nothing"),
        ("<tool></tool><a/>", "only one outermost"),
        ("<tool></tool>x", "outside the outermost"),
        ("", "no element"),
        ("<tool><a>x < y</a></tool>", "line 1, column 13: a name is expected"),
        ("<tool><a>x<y</a></tool>", "`>` is expected"),
        ("<tool><1a>x</1a></tool>", "a name is expected"),
        ("<tool><a:b>x</a:b></tool>", "`a` is not declared"),
        ("<tool><a>a & b</a></tool>", "a bare `&`"),
        ("<tool><a>&foo;</a></tool>", "no entity `&foo;`"),
        ("<tool><a>&#0;</a></tool>", "no entity `&#0;`"),
        ("<tool><a>&#+65;</a></tool>", "no entity"),
        ("<tool><a>a ]]> b</a></tool>", "without CDATA"),
        ("<tool><a><![CDATA[</a></tool>", "has no end"),
        ("<tool><a>\u{1}</a></tool>", "may not stand in XML"),
        ("<tool><!-- c --></tool>", "a comment may not"),
        ("<tool><?pi x?></tool>", "an instruction may not"),
        ("<!DOCTYPE tool [<!ENTITY a 'b'>]><tool/>", "DTD may not"),
        ("<tool><a x=1/></tool>", "in quotes"),
        ("<tool><a x/></tool>", "`=` is expected"),
        ("<tool><a x='1' x='2'/></tool>", "stands twice"),
        ("<tool><a x='1'y='2'/></tool>", "`>` is expected"),
        ("<tool><a x='<'/></tool>", "may not hold"),
        ("<tool><script>x <b>y</b></script></tool>", "put it into CDATA"),
        (&format!("<tool>{}", "<a>".repeat(300)), "more than 256"),
    ] {
        let error = fields(text, Some(&schema())).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    assert!(
        fields(&format!("<tool>{}{}</tool>", "<a>".repeat(255), "</a>".repeat(255)), None).is_ok()
    );
}

#[test]
fn a_call_is_written() {
    let arguments = json!({"code": "a]]>b\r", "list": [{"k": 1}], "point": {"x": "<&"}, "none": null, "a b": 1});
    let written = render("get", &arguments, &schema());
    let expected = "<tool>\n  <request>get</request>\n  <code><![CDATA[a]]]]><![CDATA[>b]]>&#13;<![CDATA[]]></code>\n  <list>\n    <item>\n      <k>1</k>\n    \
                    </item>\n  </list>\n  <point>\n    <x>&lt;&amp;</x>\n  </point>\n</tool>";
    assert_eq!(written, expected);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), marks in proptest::collection::vec(prop::sample::select(PIECES), 0..30)) {
        for text in [text, marks.concat()] {
            for candidate in candidates(&text).into_iter().chain([text]) {
                let _ = (fields(&candidate, None), fields(&candidate, Some(&schema())));
            }
        }
    }

    #[test]
    fn what_is_written_is_read(code in any::<String>(), text in any::<String>(), list in proptest::collection::vec("[a-z<&>\\]\"]{1,9}", 0..4),
        keys in proptest::collection::btree_map("[a-z][a-z0-9.-]{0,9}", proptest::collection::vec("[a-z]{1,3}", 0..3), 0..4)) {
        prop_assume!(!code.trim().starts_with(FENCE) && code.chars().chain(text.chars()).all(element::is_char));
        let map: Map<String, Value> = keys.into_iter().map(|(key, items)| (key, json!(items))).collect();
        let arguments = json!({"code": code, "plain": text.trim(), "maybe": list.iter().map(|_| json!([])).collect::<Vec<_>>(), "list": [], "map": map, "untyped": list});
        let written = render("get", &arguments, &schema());
        prop_assert_eq!(candidates(&written).len(), if code.contains(CLOSING) { candidates(&written).len() } else { 1 });
        let mut expected = arguments;
        expected["request"] = json!("get");
        if list.is_empty() {
            expected["untyped"] = json!("");
        }
        prop_assert_eq!(fields(&written, Some(&schema())).unwrap(), expected);
    }
}

const PIECES: &[&str] = &[
    "<tool>",
    "</tool>",
    "<a>",
    "</a>",
    "<a x='1'>",
    "<a/>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "&amp;",
    "&",
    ";",
    "&#",
    "é",
    "<",
    ">",
    "\"",
    "`",
    "_",
    "\n",
    "<code>",
    "</code>",
];

/// Quadratic time would exceed the time limit of the test runner.
#[test]
fn hostile_texts_take_time_in_proportion() {
    for piece in [
        "<tool>",
        "</tool>",
        "<",
        "<a",
        "<tool></tool>",
        "&amp;",
        "<![CDATA[",
        "<![CDATA[]]>",
        "<a>",
        "<a></a>",
        "a\r",
        "]]>",
        "<a b='",
    ] {
        let text = piece.repeat(1_000_000 / piece.len());
        let _ = candidates(&text);
        let _ = fields(&format!("<tool>{text}</tool>"), None);
    }
    let attributes: String = (0..100_000).map(|i| format!(" a{i}=''")).collect();
    assert!(fields(&format!("<tool{attributes}/>"), None).is_ok());
}
