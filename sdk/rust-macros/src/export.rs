//! `export!`: joins an author's items to the contract and embeds the manifest. This module
//! generates only the impls that must live in the author's crate; the SDK's `export` module has the
//! rest.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitByteStr, LitStr, Path, Result, Token, bracketed};

const USAGE: &str = "write `export!(tools: [a, b])`, `export!(toolset: X)`, `export!(agent: X)`, `export!(agent: X, responder: X)`, \
                     `export!(delivery: X)`, \
                     `export!(memory: X)`, `export!(analyzer: X)`, `export!(condenser: X)`, `export!(gate: X)`, \
                     `export!(judge: X)`, `export!(simulated_user: X)` or `export!(observer: X)`, or several of them \
                     with commas between";

/// The macro's arguments.
#[derive(Default)]
struct Exports {
    tools: Vec<Path>,
    toolset: Option<Path>,
    agent: Option<Path>,
    responder: Option<Path>,
    delivery: Option<Path>,
    memory: Option<Path>,
    analyzer: Option<Path>,
    condenser: Option<Path>,
    gate: Option<Path>,
    judge: Option<Path>,
    simulated_user: Option<Path>,
    observer: Option<Path>,
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
                "agent" => exports.agent = Some(input.parse()?),
                "responder" => exports.responder = Some(input.parse()?),
                "delivery" => exports.delivery = Some(input.parse()?),
                "memory" => exports.memory = Some(input.parse()?),
                "analyzer" => exports.analyzer = Some(input.parse()?),
                "condenser" => exports.condenser = Some(input.parse()?),
                "gate" => exports.gate = Some(input.parse()?),
                "judge" => exports.judge = Some(input.parse()?),
                "simulated_user" => exports.simulated_user = Some(input.parse()?),
                "observer" => exports.observer = Some(input.parse()?),
                "manifest" => exports.manifest = Some(input.parse()?),
                "asks" => exports.asks = Some(list(input)?),
                _ => return Err(Error::new(key.span(), format!("unknown key `{key}`: {USAGE}"))),
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
    fn check(&self) -> Result<()> {
        // A manifest alone is for a component whose exports are written by hand.
        let has_manifest = self.manifest.is_some() || self.asks.is_some();
        let kinds = [
            &self.toolset,
            &self.agent,
            &self.responder,
            &self.delivery,
            &self.memory,
            &self.analyzer,
            &self.condenser,
            &self.gate,
            &self.judge,
            &self.simulated_user,
            &self.observer,
        ];
        if !has_manifest && self.tools.is_empty() && kinds.iter().all(|kind| kind.is_none()) {
            return Err(Error::new(Span::call_site(), format!("nothing is exported: {USAGE}")));
        }
        if let (Some(toolset), false) = (&self.toolset, self.tools.is_empty()) {
            return Err(Error::new_spanned(
                toolset,
                "give `tools` or `toolset`, not both: either of them is the whole list",
            ));
        }
        if let (Some(responder), None) = (&self.responder, &self.agent) {
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
    let agent = exports.agent.as_ref().map(export_agent);
    let responder = exports.responder.as_ref().map(export_responder);
    let delivery = exports.delivery.as_ref().map(export_delivery);
    let memory = exports.memory.as_ref().map(export_memory);
    let analyzer = exports.analyzer.as_ref().map(export_analyzer);
    let condenser = exports.condenser.as_ref().map(export_condenser);
    let gate = exports.gate.as_ref().map(export_gate);
    let judge = exports.judge.as_ref().map(export_judge);
    let simulated_user = exports.simulated_user.as_ref().map(export_simulated_user);
    let observer = exports.observer.as_ref().map(export_observer);
    Ok(quote! {
        const _: () = {
            struct Plugin;
            // Other targets export nothing, because native linkers reject the names. The items
            // still count as used.
            const _: ::core::marker::PhantomData<Plugin> = ::core::marker::PhantomData;
            #tools
            #toolset
            #agent
            #responder
            #delivery
            #memory
            #analyzer
            #condenser
            #gate
            #judge
            #simulated_user
            #observer
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
    Ok(quote! {
        impl ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::Guest for Plugin {
            fn list_tools() -> ::core::result::Result<
                ::std::vec::Vec<::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolSpec>,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                ::core::result::Result::Ok(::std::vec![#(<#tools as ::conclave_sdk::__private::Tool>::spec()),*])
            }

            fn call(
                name: ::std::string::String,
                arguments: ::std::string::String,
            ) -> ::core::result::Result<
                ::conclave_sdk::Outcome,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                match name.as_str() {
                    #(#names => ::conclave_sdk::export::call_tool::<#tools>(&arguments),)*
                    _ => ::conclave_sdk::export::unknown_tool(&name),
                }
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::tool::export_tools!(Plugin with_types_in ::conclave_sdk::bindings::tool);
    })
}

fn export_toolset(toolset: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::Guest for Plugin {
            fn list_tools() -> ::core::result::Result<
                ::std::vec::Vec<::conclave_sdk::ToolSpec>,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                ::conclave_sdk::export::list_toolset::<#toolset>()
            }

            fn call(
                name: ::std::string::String,
                arguments: ::std::string::String,
            ) -> ::core::result::Result<
                ::conclave_sdk::Outcome,
                ::conclave_sdk::bindings::tool::exports::conclave::plugin::tools::ToolError,
            > {
                ::conclave_sdk::export::call_toolset::<#toolset>(&name, &arguments)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::tool::export_tools!(Plugin with_types_in ::conclave_sdk::bindings::tool);
    }
}

fn export_agent(agent: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::agent::exports::conclave::plugin::agent::Guest for Plugin {
            fn step() -> ::core::result::Result<
                ::conclave_sdk::actions::Turn,
                ::conclave_sdk::actions::AgentError,
            > {
                ::conclave_sdk::export::step::<#agent>()
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::agent::export_agent!(Plugin with_types_in ::conclave_sdk::bindings::agent);
    }
}

fn export_responder(responder: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::responder::exports::conclave::plugin::responder::Guest for Plugin {
            fn respond() -> ::core::result::Result<
                ::core::option::Option<::conclave_sdk::actions::Turn>,
                ::conclave_sdk::actions::AgentError,
            > {
                ::conclave_sdk::export::respond::<#responder>()
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::responder::export_responder!(Plugin with_types_in ::conclave_sdk::bindings::responder);
    }
}

fn export_delivery(strategy: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::delivery::exports::conclave::plugin::delivery_strategy::Guest for Plugin {
            fn decide(
                wake: ::conclave_sdk::delivery::Wake,
            ) -> ::core::result::Result<
                ::std::vec::Vec<::conclave_sdk::delivery::Decision>,
                ::conclave_sdk::bindings::delivery::exports::conclave::plugin::delivery_strategy::StrategyError,
            > {
                ::conclave_sdk::export::decide::<#strategy>(wake)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::delivery::export_delivery!(Plugin with_types_in ::conclave_sdk::bindings::delivery);
    }
}

fn export_memory(memory: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::memory::exports::conclave::plugin::memory::Guest for Plugin {
            fn search(
                query: ::std::string::String,
                limit: u32,
            ) -> ::core::result::Result<
                ::std::vec::Vec<::std::string::String>,
                ::conclave_sdk::bindings::memory::exports::conclave::plugin::memory::MemoryError,
            > {
                ::conclave_sdk::export::search::<#memory>(&query, limit)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::memory::export_memory!(Plugin with_types_in ::conclave_sdk::bindings::memory);
    }
}

fn export_analyzer(analyzer: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::analyzer::exports::conclave::plugin::security_analyzer::Guest for Plugin {
            fn assess(
                action: ::conclave_sdk::actions::Action,
                thought: ::std::string::String,
            ) -> ::core::result::Result<
                ::conclave_sdk::analyzer::Verdict,
                ::conclave_sdk::bindings::analyzer::exports::conclave::plugin::security_analyzer::AnalyzerError,
            > {
                ::conclave_sdk::export::assess::<#analyzer>(&action, &thought)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::analyzer::export_analyzer!(Plugin with_types_in ::conclave_sdk::bindings::analyzer);
    }
}

fn export_condenser(condenser: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::condenser::exports::conclave::plugin::condenser::Guest for Plugin {
            fn condense(
                why: ::conclave_sdk::condenser::Reason,
            ) -> ::core::result::Result<
                ::core::option::Option<::conclave_sdk::condenser::Condensation>,
                ::conclave_sdk::bindings::condenser::exports::conclave::plugin::condenser::CondenserError,
            > {
                ::conclave_sdk::export::condense::<#condenser>(why)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::condenser::export_condenser!(Plugin with_types_in ::conclave_sdk::bindings::condenser);
    }
}

fn export_gate(gate: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::gate::exports::conclave::plugin::gate::Guest for Plugin {
            fn check(
                what: ::conclave_sdk::gate::GateInput,
            ) -> ::core::result::Result<
                ::conclave_sdk::gate::Verdict,
                ::conclave_sdk::bindings::gate::exports::conclave::plugin::gate::GateError,
            > {
                ::conclave_sdk::export::check::<#gate>(&what)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::gate::export_gate!(Plugin with_types_in ::conclave_sdk::bindings::gate);
    }
}

fn export_judge(judge: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::judge::exports::conclave::plugin::judge::Guest for Plugin {
            fn rule(
                answer: ::conclave_sdk::judge::Answer,
            ) -> ::core::result::Result<
                ::conclave_sdk::bindings::judge::exports::conclave::plugin::judge::Ruling,
                ::conclave_sdk::bindings::judge::exports::conclave::plugin::judge::JudgeError,
            > {
                ::conclave_sdk::export::rule::<#judge>(&answer)
            }

            fn conclude(
                ending: ::conclave_sdk::judge::Ending,
            ) -> ::core::result::Result<
                ::core::option::Option<::conclave_sdk::judge::TaskResult>,
                ::conclave_sdk::bindings::judge::exports::conclave::plugin::judge::JudgeError,
            > {
                ::conclave_sdk::export::conclude::<#judge>(&ending)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::judge::export_judge!(Plugin with_types_in ::conclave_sdk::bindings::judge);
    }
}

fn export_simulated_user(user: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::simulated_user::exports::conclave::plugin::simulated_user::Guest for Plugin {
            fn answer(
                question: ::std::string::String,
            ) -> ::core::result::Result<
                ::core::option::Option<::std::string::String>,
                ::conclave_sdk::bindings::simulated_user::exports::conclave::plugin::simulated_user::SimulatedUserError,
            > {
                ::conclave_sdk::export::answer::<#user>(&question)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::simulated_user::export_simulated_user!(Plugin with_types_in ::conclave_sdk::bindings::simulated_user);
    }
}

fn export_observer(observer: &Path) -> TokenStream {
    quote! {
        impl ::conclave_sdk::bindings::observer::exports::conclave::plugin::observer::Guest for Plugin {
            fn observe(
                events: ::std::vec::Vec<::conclave_sdk::observer::ObservedEvent>,
            ) -> ::core::result::Result<
                (),
                ::conclave_sdk::bindings::observer::exports::conclave::plugin::observer::ObserverError,
            > {
                ::conclave_sdk::export::observe::<#observer>(&events)
            }
        }
        #[cfg(target_family = "wasm")]
        ::conclave_sdk::bindings::observer::export_observer!(Plugin with_types_in ::conclave_sdk::bindings::observer);
    }
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
