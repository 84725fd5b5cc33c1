use super::readable;

fn text(html: &str) -> String {
    readable(html, "https://a.example/dir/page.html?q=1", 0).0
}

#[test]
fn a_page_becomes_text() {
    let html = "<!doctype html><html><head><title> A &amp; B </title><style>p { }</style>\
        <script>alert('<p>')</script></head>\n<body>\
        <h1>Lights</h1><p>Skerryvore was <b>first</b>\n lit in <a href='/1844'>1844</a>.</p><p>It stands.</p>\
        <ul><li>one<li>two<ul><li>deep</li></ul></li></ul><ol><li>first<li>second</ol><hr><div>end</div></body></html>";
    let expected = "Title: A & B\n\n# Lights\n\nSkerryvore was first lit in [1844](https://a.example/1844).\n\nIt stands.\n\n\
                    - one\n- two\n  - deep\n\n1. first\n2. second\n\n---\n\nend";
    assert_eq!(text(html), expected);
}

#[test]
fn tables_are_rows_of_cells() {
    let html = "<p>before</p><table><tr><th>Name</th><th>Year</th></tr><tr><td>Skerryvore</td><td></td><td>48 m</td></tr></table><p>after";
    assert_eq!(text(html), "before\n\nName | Year\nSkerryvore |  | 48 m\n\nafter");
}

#[test]
fn links_lead_to_whole_addresses() {
    for (html, expected) in [
        ("<a href=b>t</a>", "[t](https://a.example/dir/b)"),
        ("<a href='../b'>t</a>", "[t](https://a.example/b)"),
        ("<a href='//b.example/x'>t</a>", "[t](https://b.example/x)"),
        ("<a href='https://b.example/?a=1&amp;b=2'>t</a>", "[t](https://b.example/?a=1&b=2)"),
        ("<a href='#top'>t</a>", "t"),
        ("<a href='javascript:x()'>t</a>", "t"),
        ("<a href=x></a>y", "y"),
        (
            "<a href=x>t <a href=y>u</a>",
            "[t](https://a.example/dir/x) [u](https://a.example/dir/y)",
        ),
        ("<a href=x>never closed", "[never closed](https://a.example/dir/x)"),
        ("a <a href=x> b </a> c", "a [b](https://a.example/dir/x) c"),
        ("<p>a</p><a href=x><h2>b</h2></a>", "a\n\n## [b](https://a.example/dir/x)"),
        ("<a href=x><hr>b</a>", "---\n\n[b](https://a.example/dir/x)"),
        ("<td>a<a href=x><td>b</a>", "a | [b](https://a.example/dir/x)"),
        ("<a href=x><pre></pre><p>b</a>", "[b](https://a.example/dir/x)"),
        ("<ul><li><a href=x>b</a></ul>", "- [b](https://a.example/dir/x)"),
        ("<base href='https://c.example/d/'><a href=x>t</a>", "[t](https://c.example/d/x)"),
        ("<a href='https://b.example'>https://b.example</a>", "https://b.example"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn links_have_numbers_as_far_as_their_addresses_fit() {
    let html = "<a href=/1>a</a> <a href='#top'>b</a> <a href=/2>c</a> <a href=/3>d</a>";
    let address = "https://a.example/1";
    let (text, links) = readable(html, address, 2 * address.len());
    assert_eq!(text, "a [1] b c [2] [d](https://a.example/3)");
    assert_eq!(links, [address, "https://a.example/2"]);
}

#[test]
fn code_keeps_its_lines() {
    for (html, expected) in [
        ("<p>a</p><pre>fn a() {\r\n    b();\n}</pre><p>c", "a\n\nfn a() {\n    b();\n}\n\nc"),
        ("<pre><div>a {</div><div>&nbsp; b<br>\tc</div></pre>", "a {\n  b\n\tc"),
        ("<pre>  <a href=x> b</a></pre>", "   [b](https://a.example/dir/x)"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn character_references_are_replaced() {
    for (html, expected) in [
        ("a &amp; b &lt;c&gt; &amp;amp;", "a & b <c> &amp;"),
        ("&#233;&#xE9;&eacute;&hearts;&nbsp;&quot;", "ééé♥ \""),
        ("AT&T; a & b; &unknown; &", "AT&T; a & b; &unknown; &"),
        // What steers a terminal is none of a page's text.
        ("a&#27;[31m&#x9b;31m&#0;", "a&#27;[31m31m&#0;"),
        ("Donau&shy;dampf\u{ad}schiff", "Donaudampfschiff"),
        ("<title>a&shy;b &#x9b; c</title>", "Title: ab c"),
        ("<img alt='&lt;b&gt;'>", "[image: <b>]"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn what_is_not_text_is_left_out() {
    for (html, expected) in [
        ("a<script>b</script>c", "ac"),
        ("a<svg><svg>b</svg>c</svg>d", "ad"),
        ("a<textarea>b</textarea>c", "ac"),
        ("<img alt='a  lamp'> <img src=x>", "[image: a lamp]"),
        ("a<br>b<br><br><br>c", "a\nb\n\nc"),
        ("a\u{1b}[31mb", "a[31mb"),
        ("<svg><title>icon</title></svg>x", "x"),
        ("a<svg/>b<svg><svg/></svg>c", "abc"),
        ("<title>only</title>", "Title: only"),
        ("  ", ""),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn hostile_pages_end() {
    for piece in [
        "<div>",
        "<ul><li>",
        "<a href=x>",
        "<table><tr><td>",
        "<pre>",
        "<svg>",
        "<h1>",
        "&",
        "&amp;",
        "&#",
        "<a href=x>y",
        "<title>",
        "<br>",
        "</ul>",
        "<ol><li>x",
    ] {
        let shown = text(&piece.repeat(20_000));
        assert!(shown.len() <= 4_000_000, "{piece} {}", shown.len());
    }
    // These took minutes when each link copied the page's base, and each line was compared with all
    // that its link had so far.
    let base = format!("<base href='https://a.example/{}'>", "x/".repeat(500_000));
    assert_eq!(text(&(base + &"<a href=/></a>".repeat(70_000))), "");
    let lines = "\n".repeat(400_000) + &"x<br>".repeat(40_000);
    assert!(text(&format!("<pre><a href=x>{lines}")).ends_with("x](https://a.example/dir/x)"));
}
