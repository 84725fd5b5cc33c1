//! The pages in docs/write-plugins: what a reader copies from them compiles, and its tests pass.

#[path = "pages/responder.rs"]
#[expect(unreachable_pub, reason = "the page shows it as a crate's root")]
mod responder;

#[test]
fn the_page_has_the_file_as_it_is() {
    let page = include_str!("../../../docs/write-plugins/responder.md");
    let file = include_str!("pages/responder.rs");
    assert!(page.contains(&format!("```rust\n{file}```")), "docs/write-plugins/responder.md");
}
