//! `export!`: joins an author's items to the contract and embeds the manifest. This module
//! generates only the impls that must live in the author's crate; the SDK's `export` module has the
//! rest.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitByteStr, LitStr, Path, Result, Token, bracketed};

/// A kind that an author implements as a type: `export!(KEY: X)`.
struct Kind {
    /// The key of the macro, and the module of the SDK's bindings.
    key: &'static str,
    /// The exported interface, as the bindings spell it.
    interface: &'static str,
    functions: &'static [Function],
}

/// A function of an interface. The SDK's `export` has one of the same name, which takes the type of
/// the author.
struct Function {
    name: &'static str,
    /// Names and types. An argument `&name` is passed on as a reference.
    arguments: &'static [(&'static str, &'static str)],
    /// A type; one that begins with an upper-case letter is of the interface itself.
    answer: &'static str,
    /// A type, as `answer`.
    error: &'static str,
}

/// The kinds, in the order of the generated code.
const KINDS: [Kind; 11] = [
    Kind {
        key: "agent",
        interface: "agent",
        functions: &[Function {
            name: "step",
            arguments: &[],
            answer: "::conclave_sdk::actions::Turn",
            error: "::conclave_sdk::actions::AgentError",
        }],
    },
    Kind {
        key: "responder",
        interface: "responder",
        functions: &[Function {
            name: "respond",
            arguments: &[],
            answer: "::core::option::Option<::conclave_sdk::actions::Turn>",
            error: "::conclave_sdk::actions::AgentError",
        }],
    },
    Kind {
        key: "delivery",
        interface: "delivery_strategy",
        functions: &[Function {
            name: "decide",
            arguments: &[("wake", "::conclave_sdk::delivery::Wake")],
            answer: "::std::vec::Vec<::conclave_sdk::delivery::Decision>",
            error: "StrategyError",
        }],
    },
    Kind {
        key: "memory",
        interface: "memory",
        functions: &[Function {
            name: "search",
            arguments: &[("&query", "::std::string::String"), ("limit", "u32")],
            answer: "::std::vec::Vec<::std::string::String>",
            error: "MemoryError",
        }],
    },
    Kind {
        key: "analyzer",
        interface: "security_analyzer",
        functions: &[Function {
            name: "assess",
            arguments: &[
                ("&action", "::conclave_sdk::actions::Action"),
                ("&thought", "::std::string::String"),
            ],
            answer: "::conclave_sdk::analyzer::Verdict",
            error: "AnalyzerError",
        }],
    },
    Kind {
        key: "condenser",
        interface: "condenser",
        functions: &[Function {
            name: "condense",
            arguments: &[("why", "::conclave_sdk::condenser::Reason")],
            answer: "::core::option::Option<::conclave_sdk::condenser::Condensation>",
            error: "CondenserError",
        }],
    },
    Kind {
        key: "gate",
        interface: "gate",
        functions: &[Function {
            name: "check",
            arguments: &[("&what", "::conclave_sdk::gate::GateInput")],
            answer: "::conclave_sdk::gate::Verdict",
            error: "GateError",
        }],
    },
    Kind {
        key: "judge",
        interface: "judge",
        functions: &[
            Function {
                name: "rule",
                arguments: &[("&answer", "::conclave_sdk::judge::Answer")],
                answer: "Ruling",
                error: "JudgeError",
            },
            Function {
                name: "conclude",
                arguments: &[("&ending", "::conclave_sdk::judge::Ending")],
                answer: "::core::option::Option<::conclave_sdk::judge::TaskResult>",
                error: "JudgeError",
            },
        ],
    },
    Kind {
        key: "simulated_user",
        interface: "simulated_user",
        functions: &[Function {
            name: "answer",
            arguments: &[("&question", "::std::string::String")],
            answer: "::core::option::Option<::std::string::String>",
            error: "SimulatedUserError",
        }],
    },
    Kind {
        key: "observer",
        interface: "observer",
        functions: &[Function {
            name: "observe",
            arguments: &[("&events", "::std::vec::Vec<::conclave_sdk::observer::ObservedEvent>")],
            answer: "()",
            error: "ObserverError",
        }],
    },
    Kind {
        key: "channel",
        interface: "channel",
        functions: &[
            Function {
                name: "send",
                arguments: &[("&message", "::conclave_sdk::channel::Message")],
                answer: "::conclave_sdk::channel::Delivery",
                error: "ChannelError",
            },
            Function {
                name: "received",
                arguments: &[("&request", "::conclave_sdk::channel::Request")],
                answer: "::conclave_sdk::channel::Reception",
                error: "ChannelError",
            },
        ],
    },
];

/// How to write the macro, for its errors.
fn usage() -> String {
    let kinds = KINDS.iter().map(|kind| match kind.key {
        "responder" => "`export!(agent: X, responder: X)`".to_owned(),
        key => format!("`export!({key}: X)`"),
    });
    let mut ways = vec!["`export!(tools: [a, b])`".to_owned(), "`export!(toolset: X)`".to_owned()];
    ways.extend(kinds);
    let last = ways.pop().unwrap_or_default();
    format!("write {} or {last}, or several of them with commas between", ways.join(", "))
}

/// The macro's arguments.
#[derive(Default)]
struct Exports {
    tools: Vec<Path>,
    toolset: Option<Path>,
    /// The author's types by the key of their kind.
    types: Vec<(&'static str, Path)>,
    manifest: Option<LitStr>,
    asks: Option<Vec<Ask>>,
}

/// A capability's name, with `?` if the plugin works without it.
struct Ask {
    name: Ident,
    optional: bool,
}

impl Parse for Ask {
    fn parse(input: ParseStream) -> Result<Self> {
        let name = input.parse()?;
        let optional = input.parse::<Option<Token![?]>>()?.is_some();
        Ok(Self { name, optional })
    }
}

impl Parse for Exports {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut exports = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            input.parse::<Token![:]>()?;
            if seen.contains(&key) {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
            }
            match key.to_string().as_str() {
                "tools" => exports.tools = list(input)?,
                "toolset" => exports.toolset = Some(input.parse()?),
                "manifest" => exports.manifest = Some(input.parse()?),
                "asks" => exports.asks = Some(list(input)?),
                name => match KINDS.iter().find(|kind| kind.key == name) {
                    Some(kind) => exports.types.push((kind.key, input.parse()?)),
                    None => {
                        let message = format!("unknown key `{key}`: {}", usage());
                        return Err(Error::new(key.span(), message));
                    }
                },
            }
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        exports.check()?;
        Ok(exports)
    }
}

impl Exports {
    /// The author's type for a kind.
    fn type_of(&self, key: &str) -> Option<&Path> {
        self.types.iter().find(|(kind, _)| *kind == key).map(|(_, path)| path)
    }

    fn check(&self) -> Result<()> {
        // A manifest alone is for a component whose exports are written by hand.
        let has_manifest = self.manifest.is_some() || self.asks.is_some();
        let has_tools = !self.tools.is_empty() || self.toolset.is_some();
        if !has_manifest && !has_tools && self.types.is_empty() {
            return Err(Error::new(Span::call_site(), format!("nothing is exported: {}", usage())));
        }
        if let (Some(toolset), false) = (&self.toolset, self.tools.is_empty()) {
            return Err(Error::new_spanned(
                toolset,
                "give `tools` or `toolset`, not both: either of them is the whole list",
            ));
        }
        if let (Some(responder), None) = (self.type_of("responder"), self.type_of("agent")) {
            return Err(Error::new_spanned(
                responder,
                "an agent answers in the role `agent`: give `agent` too",
            ));
        }
        Ok(())
    }
}

fn list<T: Parse>(input: ParseStream) -> Result<Vec<T>> {
    let content;
    bracketed!(content in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let exports: Exports = syn::parse2(input)?;
    let manifest = embedded_manifest(&exports)?;
    let tools = (!exports.tools.is_empty()).then(|| export_tools(&exports.tools)).transpose()?;
    let toolset = exports.toolset.as_ref().map(export_toolset);
    let kinds = KINDS
        .iter()
        .filter_map(|kind| exports.type_of(kind.key).map(|path| export_kind(kind, path)))
        .collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        const _: () = {
            struct Plugin;
            // Other targets export nothing, because native linkers reject the names. The items
            // still count as used.
            const _: ::core::marker::PhantomData<Plugin> = ::core::marker::PhantomData;
            #tools
            #toolset
            #(#kinds)*
            #manifest
        };
    })
}

fn export_tools(tools: &[Path]) -> Result<TokenStream> {
    let mut names: Vec<String> = Vec::new();
    for tool in tools {
        let name =
            tool.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if names.contains(&name) {
            return Err(Error::new_spanned(tool, format!("two tools are named `{name}`")));
        }
        names.push(name.trim_start_matches("r#").to_owned());
    }
    Ok(tools_impl(
        &quote! {
            ::core::result::Result::Ok(::std::vec![#(<#tools as ::conclave_sdk::__private::Tool>::spec()),*])
        },
        &quote! {
            match name.as_str() {
                #(#names => ::conclave_sdk::export::call_tool::<#tools>(&arguments),)*
                _ => ::conclave_sdk::export::unknown_tool(&name),
            }
        },
    ))
}

fn export_toolset(toolset: &Path) -> TokenStream {
    tools_impl(
        &quote! { ::conclave_sdk::export::list_toolset::<#toolset>() },
        &quote! { ::conclave_sdk::export::call_toolset::<#toolset>(&name, &arguments) },
    )
}

/// The interface `tools`, with the bodies of its functions.
fn tools_impl(list_tools: &TokenStream, call: &TokenStream) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::Guest for Plugin {
            fn list_tools() -> ::core::result::Result<
                ::std::vec::Vec<::conclave_sdk::ToolSpec>,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                #list_tools
            }

            fn call(
                name: ::std::string::String,
                arguments: ::std::string::String,
            ) -> ::core::result::Result<
                ::conclave_sdk::Outcome,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                #call
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::tool::export_tools!(Plugin with_types_in ::conclave_sdk::bindings::tool);
    }
}

fn export_kind(kind: &Kind, path: &Path) -> Result<TokenStream> {
    let (module, interface) = (format_ident!("{}", kind.key), format_ident!("{}", kind.interface));
    let export = format_ident!("export_{}", kind.key);
    let exports =
        quote! { ::conclave_sdk::bindings::#module::exports::conclave::plugin::#interface };
    let functions = kind.functions.iter().map(|function| export_function(function, &exports, path));
    let functions = functions.collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        impl #exports::Guest for Plugin {
            #(#functions)*
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::#module::#export!(Plugin with_types_in ::conclave_sdk::bindings::#module);
    })
}

/// A function of an interface, whose types are in the module `exports`.
fn export_function(function: &Function, exports: &TokenStream, path: &Path) -> Result<TokenStream> {
    let name = format_ident!("{}", function.name);
    let (mut arguments, mut values) = (Vec::new(), Vec::new());
    for (argument, argument_type) in function.arguments {
        let argument_type: TokenStream = argument_type.parse()?;
        let argument_name = format_ident!("{}", argument.trim_start_matches('&'));
        values.push(argument.parse::<TokenStream>()?);
        arguments.push(quote! { #argument_name: #argument_type });
    }
    let in_interface = |text: &str| -> Result<TokenStream> {
        let tokens: TokenStream = text.parse()?;
        let is_own = text.starts_with(|first: char| first.is_ascii_uppercase());
        Ok(if is_own {
            quote! { #exports::#tokens }
        } else {
            tokens
        })
    };
    let (answer, error) = (in_interface(function.answer)?, in_interface(function.error)?);
    Ok(quote! {
        fn #name(#(#arguments,)*) -> ::core::result::Result<#answer, #error,> {
            ::conclave_sdk::export::#name::<#path>(#(#values),*)
        }
    })
}

/// Returns the custom section, on wasm only: other object formats have other rules for section
/// names. `include_str!` makes cargo rebuild when the file changes.
fn embedded_manifest(exports: &Exports) -> Result<TokenStream> {
    let (json, watch) = match (&exports.asks, &exports.manifest) {
        (Some(_), Some(file)) => {
            return Err(Error::new(
                file.span(),
                "give `manifest` or `asks`, not both: the file says what is asked",
            ));
        }
        (Some(asks), None) => (inline_manifest(asks)?, None),
        (None, file) => {
            let (json, path) = manifest_of_file(file.as_ref())?;
            (json, Some(quote! { const _: &str = ::core::include_str!(#path); }))
        }
    };
    let length = json.len();
    let bytes = LitByteStr::new(json.as_bytes(), Span::call_site());
    let section = quote! {
        #[cfg(target_family = "wasm")]
        #[used]
        #[unsafe(link_section = "conclave:manifest")]
        static MANIFEST: [u8; #length] = *#bytes;
    };
    Ok(quote! { #section #watch })
}

fn manifest_of_file(file: Option<&LitStr>) -> Result<(String, String)> {
    let span = file.map_or_else(Span::call_site, LitStr::span);
    let name = file.map_or_else(|| "conclave-plugin.toml".to_owned(), LitStr::value);
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let path = PathBuf::from(folder).join(&name);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Error::new(
            span,
            format!("{}: {error}\nA plugin says there what it is and what it asks for; the smallest one is\n\n{SMALLEST}", path.display()),
        )
    })?;
    let json =
        conclave_manifest::to_json(&name, &text).map_err(|problems| Error::new(span, problems))?;
    Ok((json, path.display().to_string()))
}

const SMALLEST: &str = "[plugin]\nname = \"my-plugin\"\nversion = \"0.1.0\"\n";

/// Returns the manifest of a plugin without a file, named after its crate.
fn inline_manifest(asks: &[Ask]) -> Result<String> {
    let asks: Vec<_> = asks.iter().map(|ask| (ask.name.to_string(), ask.optional)).collect();
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    conclave_manifest::inline(&variable("CARGO_CRATE_NAME"), &variable("CARGO_PKG_VERSION"), &asks)
        .map_err(|problem| Error::new(Span::call_site(), problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_calls_the_function_of_the_sdk_with_the_type_of_the_author() {
        let path: Path = syn::parse_str("my::Own").unwrap();
        for kind in &KINDS {
            let text = export_kind(kind, &path).unwrap().to_string().replace(' ', "");
            let module = format!("::conclave_sdk::bindings::{}::", kind.key);
            let interface = format!("exports::conclave::plugin::{}", kind.interface);
            let guest = format!("impl{module}{interface}::GuestforPlugin{{");
            assert!(text.starts_with(&guest), "{text}");
            for function in kind.functions {
                let names = function.arguments.iter().map(|(name, _)| *name).collect::<Vec<_>>();
                let (name, arguments) = (function.name, names.join(","));
                let call = format!("::conclave_sdk::export::{name}::<my::Own>({arguments})");
                assert!(text.contains(&call), "{call}: {text}");
            }
        }
    }

    #[test]
    fn an_unknown_key_names_those_that_there_are() {
        let error = |text: &str| syn::parse_str::<Exports>(text).err().unwrap().to_string();
        assert_eq!(
            error("gates: X"),
            "unknown key `gates`: write `export!(tools: [a, b])`, `export!(toolset: X)`, \
             `export!(agent: X)`, `export!(agent: X, responder: X)`, `export!(delivery: X)`, \
             `export!(memory: X)`, `export!(analyzer: X)`, `export!(condenser: X)`, \
             `export!(gate: X)`, `export!(judge: X)`, `export!(simulated_user: X)`, \
             `export!(observer: X)` or `export!(channel: X)`, or several of them with commas between"
        );
        assert!(error("").starts_with("nothing is exported: write `export!(tools: [a, b])`"));
        assert_eq!(error("gate: X, gate: Y"), "`gate` is given twice");
        assert_eq!(error("responder: X"), "an agent answers in the role `agent`: give `agent` too");
    }
}
