use super::*;

#[test]
fn texts_of_others_are_escaped_and_look_alikes_marked() {
    let page = text::foreign("<b>\"x\"</b>\u{202e}&").into_string();
    assert_eq!(page, "<bdi>&lt;b&gt;&quot;x&quot;&lt;/b&gt;\\u{202e}&amp;</bdi>");
    let marked = text::foreign_block("p\u{430}ypal").into_string();
    assert!(marked.contains("look-alike") && marked.contains("paypal"), "{marked}");
    assert!(!text::foreign("Zürich").into_string().contains("look-alike"));
}

#[test]
fn an_address_has_the_values_that_there_are() {
    let query = [("text", Some("a&b")), ("kind", None), ("from", Some(""))];
    assert_eq!(text::address("/runs", query), "/runs?text=a%26b");
    assert_eq!(text::run_path("a/b\"<"), "/runs/a%2Fb%22%3C");
}

#[test]
fn only_pages_of_this_server_are_pages() {
    for path in ["/runs", "/runs/3f2a", "/login"] {
        assert!(is_page(path), "{path}");
    }
    for path in ["/", "//there/runs", "/runsx", "/api/v1/runs", "https://there/runs", ""] {
        assert!(!is_page(path), "{path}");
    }
}

#[test]
fn who_has_no_access_gets_a_form_that_leads_to_the_page() {
    let failure = Failure::new(StatusCode::UNAUTHORIZED, "no_access", "no <access>");
    let answer = refused(failure, Some("/runs/\"a"));
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let form = document("x", None, None, &html! { input value="/runs/\"a"; }).0;
    assert!(form.contains("value=\"/runs/&quot;a\"") && !form.contains("<nav"), "{form}");
    assert!(!form.contains("style=") && !form.contains("<script>"), "nothing stands inline");
}
