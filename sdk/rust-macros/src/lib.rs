//! The macros of `conclave-sdk`: `#[tool]` and `export!`. They know the SDK's hidden items. They do
//! not know the contract, which only the SDK's bindings read.

#![warn(missing_docs)]

mod export;
mod tool;

use proc_macro::TokenStream;

/// Makes a function a tool.
///
/// The model reads the function's name and doc comment, and its parameters' names, types and doc
/// comments. Parameters are owned types that implement `serde::Deserialize` and
/// `schemars::JsonSchema`. An `Option` may be left out, and `#[schemars(…)]` on a parameter refines
/// its schema. A parameter of type `&Call` gets the facts about the call, and is not an argument.
/// The return type is anything that implements `IntoOutcome`, alone or in a `Result`.
///
/// In the parentheses, each may be left out: `idempotent` promises that calling again with the same
/// call id is the same as calling once; `title = "…"` is a second name, for display;
/// `result_tokens = 2000` and `retained_tokens = 200` limit the result when the agent first reads
/// it, and the part that stays in its history; `example = r#"{"place": "Oban"}"#`, or
/// `example("a thought", r#"{…}"#)`, shows a call to models that write calls as text, and may be
/// repeated. The schema of a `Json(…)` result is derived from its type.
///
/// The function itself stays unchanged. The macro adds a type of the same name, which `export!`
/// needs.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Exports a plugin and embeds its manifest: `export!(tools: [a, b])`, `export!(agent: X)`,
/// `export!(agent: X, responder: X)`, `export!(delivery: X)`, `export!(memory: X)`,
/// `export!(analyzer: X)`, `export!(condenser: X)`, `export!(gate: X)`, `export!(judge: X)`,
/// `export!(simulated_user: X)`, `export!(observer: X)`, `export!(channel: X)`, or several of them
/// separated by commas. `toolset: X` replaces `tools` if they are known only from the settings.
///
/// The manifest is `conclave-plugin.toml` beside `Cargo.toml`. A package with several components
/// names another file with `manifest: "x.toml"`, relative to `Cargo.toml`. Test guests named like
/// their crate can replace the file with `asks: [files, kv?]`, the capabilities alone, with `?` for
/// optional ones. Either argument alone embeds the manifest of a component whose exports are
/// written by hand.
#[proc_macro]
pub fn export(input: TokenStream) -> TokenStream {
    export::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
