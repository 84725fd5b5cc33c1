//! The macros of `conclave-sdk`: `#[tool]` and `export!`. They know the shape of the SDK's hidden
//! items and the format of `conclave-plugin.toml`; they do not know the contract, which only the
//! SDK's bindings read.

mod export;
mod manifest;
mod tool;

use proc_macro::TokenStream;

/// Makes a function a tool.
///
/// Its name and doc comment, and the names, types and doc comments of its parameters, are what the
/// model reads. Parameters are owned types that implement `serde::Deserialize` and
/// `schemars::JsonSchema`; an `Option` may be left out; `#[schemars(…)]` on a parameter refines its
/// schema. A parameter of type `&Call` gets the facts about the call and is no argument. The return
/// type is anything that implements `IntoOutcome`, alone or in a `Result`.
///
/// `#[tool(idempotent)]` promises that calling again with the same call id is the same as calling
/// once.
///
/// The function itself stays as it is. Beside it, a type of the same name carries what `export!`
/// needs.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(attribute.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// Exports a plugin and embeds its manifest: `export!(tools: [a, b])`, `export!(agent: X)`,
/// `export!(delivery: X)`, `export!(memory: X)`, `export!(analyzer: X)`, `export!(condenser: X)`,
/// `export!(gate: X)`, or several of them separated by commas. `toolset: X` stands in the place of
/// `tools` where they are known only from the settings.
///
/// The manifest is `conclave-plugin.toml` beside `Cargo.toml`. Where one package holds several
/// components, `manifest: "x.toml"` names another file, relative to `Cargo.toml`; and `asks:
/// [files, kv?]` replaces the file by the capabilities alone, those with `?` optional, for test
/// guests whose name is that of their crate. Either of them alone embeds the manifest of a
/// component whose exports are written by hand.
#[proc_macro]
pub fn export(input: TokenStream) -> TokenStream {
    export::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
