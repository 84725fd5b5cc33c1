//! `#[tool]`: generates the type that describes and calls a function. Everything that the model
//! reads about a tool comes from here.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, LitInt, LitStr, Meta, Pat, PatType,
    Result, ReturnType, Token, Type, parenthesized,
};

const USAGE: &str = "write `idempotent`, `title = \"…\"`, `result_tokens = N`, `retained_tokens = N` or `example = r#\"{…}\"#`, with commas between";

/// The options of `#[tool(…)]`.
#[derive(Default)]
struct Options {
    idempotent: bool,
    /// Keys of the spec's `extra`, with values in JSON.
    extra: Vec<(&'static str, String)>,
    examples: Vec<Example>,
}

/// An example of a call: `example = r#"{…}"#`, or with a thought, `example("why", r#"{…}"#)`.
struct Example {
    thought: Option<String>,
    arguments: serde_json::Map<String, serde_json::Value>,
    literal: LitStr,
}

impl Parse for Options {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut options = Self::default();
        for item in Punctuated::<OptionItem, Token![,]>::parse_terminated(input)? {
            let (name, span) = (item.name.to_string(), item.name.span());
            let is_twice = match name.as_str() {
                "idempotent" => std::mem::replace(&mut options.idempotent, true),
                "example" => false,
                _ => options.extra.iter().any(|(key, _)| *key == name.replace('_', "-")),
            };
            if is_twice {
                return Err(Error::new(span, format!("`{name}` is given twice")));
            }
            match (name.as_str(), item.value) {
                ("idempotent", OptionValue::Nothing) => {}
                ("title", OptionValue::Text(title)) => {
                    let title = serde_json::Value::from(title.value()).to_string();
                    options.extra.push(("title", title));
                }
                ("result_tokens", OptionValue::Number(most)) => {
                    let most = most.base10_parse::<u32>()?.to_string();
                    options.extra.push(("result-tokens", most));
                }
                ("retained_tokens", OptionValue::Number(most)) => {
                    let most = most.base10_parse::<u32>()?.to_string();
                    options.extra.push(("retained-tokens", most));
                }
                ("example", OptionValue::Text(arguments)) => {
                    options.examples.push(Example::new(None, arguments)?);
                }
                ("example", OptionValue::Two(thought, arguments)) => {
                    options.examples.push(Example::new(Some(thought.value()), arguments)?);
                }
                _ => return Err(Error::new(span, USAGE)),
            }
        }
        Ok(options)
    }
}

impl Example {
    fn new(thought: Option<String>, literal: LitStr) -> Result<Self> {
        match serde_json::from_str(&literal.value()) {
            Ok(arguments) => Ok(Self { thought, arguments, literal }),
            Err(error) => {
                let what = format!("the arguments of an example are a JSON object: {error}");
                Err(Error::new(literal.span(), what))
            }
        }
    }

    /// Checks that the tool has each argument.
    fn check(&self, parameters: &[Parameter]) -> Result<()> {
        let is_known = |key: &&String| {
            parameters.iter().any(|parameter| {
                matches!(parameter, Parameter::Argument { name, .. } if name.unraw() == key.as_str())
            })
        };
        match self.arguments.keys().find(|key| !is_known(key)) {
            None => Ok(()),
            Some(key) => Err(Error::new(
                self.literal.span(),
                format!("the tool has no parameter `{key}`, which this example passes"),
            )),
        }
    }
}

/// `idempotent`, `title = "…"`, `result_tokens = 9` or `example("…", "…")`.
struct OptionItem {
    name: Ident,
    value: OptionValue,
}

enum OptionValue {
    Nothing,
    Text(LitStr),
    Number(LitInt),
    Two(LitStr, LitStr),
}

impl Parse for OptionItem {
    fn parse(input: ParseStream) -> Result<Self> {
        let name: Ident = input.parse().map_err(|error| Error::new(error.span(), USAGE))?;
        let value = if input.peek(syn::token::Paren) {
            let two;
            parenthesized!(two in input);
            let first = two.parse()?;
            two.parse::<Token![,]>()?;
            OptionValue::Two(first, two.parse()?)
        } else if input.parse::<Option<Token![=]>>()?.is_none() {
            OptionValue::Nothing
        } else if input.peek(LitStr) {
            OptionValue::Text(input.parse()?)
        } else {
            OptionValue::Number(input.parse().map_err(|error| Error::new(error.span(), USAGE))?)
        };
        Ok(Self { name, value })
    }
}

/// A parameter of the function.
enum Parameter {
    /// An argument that the model passes.
    Argument { name: Ident, kind: Box<Type>, documentation: String, refinements: Vec<Attribute> },
    /// The facts about the call.
    Call,
}

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(attribute)?;
    let mut function: ItemFn = syn::parse2(item)?;
    check_signature(&function)?;
    let description = description(&function)?;
    let parameters = function.sig.inputs.iter_mut().map(parameter).collect::<Result<Vec<_>>>()?;
    options.examples.iter().try_for_each(|example| example.check(&parameters))?;
    let result = result_type(&function.sig.output);
    let implementation =
        implementation(&function.sig.ident, &description, &options, &parameters, result.as_ref());
    let (name, visibility) = (&function.sig.ident, &function.vis);
    let about = format!("The tool `{name}`, for `export!`.");
    Ok(quote! {
        #function

        #[doc = #about]
        #[doc(hidden)]
        // Not `expect`: a name in a single case may not trigger the lint.
        #[allow(non_camel_case_types, reason = "it has the function's name, so that a path to one is a path to the other")]
        #visibility enum #name {}

        #implementation
    })
}

/// Returns the type of the result; `None` if it has no name, as `impl IntoOutcome`.
fn result_type(output: &ReturnType) -> Option<TokenStream> {
    match output {
        ReturnType::Default => Some(quote! { () }),
        ReturnType::Type(_, kind) => {
            let text = quote! { #kind }.to_string();
            let is_named = !text.split_whitespace().any(|word| word == "impl");
            is_named.then(|| quote! { #kind })
        }
    }
}

fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(word) = &signature.asyncness {
        return Err(Error::new_spanned(
            word,
            "a tool is a plain function: the host runs many calls at once, each in its own sandbox; remove `async`",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a tool has no generic parameters: the model could not choose them",
        ));
    }
    let name = signature.ident.unraw().to_string();
    let plain =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !plain || name.split('_').any(str::is_empty) {
        return Err(Error::new_spanned(
            &signature.ident,
            "a tool's name is lower-case letters and digits with `_` between words, such as `read_lines`",
        ));
    }
    Ok(())
}

fn description(function: &ItemFn) -> Result<String> {
    let text = documentation(&function.attrs);
    if text.is_empty() {
        let message = "a tool needs a doc comment: it is all that the model knows about it. Say what it does and when to use it";
        return Err(Error::new_spanned(&function.sig.ident, message));
    }
    Ok(text)
}

/// Returns the doc comment as one text. A line break inside a paragraph comes from the source's
/// line width, so it becomes a space.
fn documentation(attributes: &[Attribute]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut in_code = false;
    for line in attributes.iter().filter_map(doc_line) {
        let line = line.strip_prefix(' ').unwrap_or(&line).trim_end();
        let is_fence = line.starts_with("```");
        let begins =
            in_code || is_fence || line.is_empty() || line.starts_with(['-', '*', '|', '#', ' ']);
        match lines
            .last_mut()
            .filter(|last| !begins && !last.is_empty() && !last.starts_with("```"))
        {
            Some(last) => *last = format!("{last} {line}"),
            None => lines.push(line.to_owned()),
        }
        in_code ^= is_fence;
    }
    lines.join("\n").trim().to_owned()
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if pair.path.is_ident("doc") => {
            Some(text.value())
        }
        _ => None,
    }
}

/// Removes the attributes, because rustc accepts neither docs nor `schemars` on a parameter.
fn parameter(input: &mut FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(
            input,
            "a tool is a function, not a method: it has no `self`",
        ));
    };
    if is_call(&typed.ty) {
        return Ok(Parameter::Call);
    }
    if let Type::Reference(reference) = &*typed.ty {
        let message = "a tool owns its arguments: take a `String` instead of a `&str`, a `Vec<T>` instead of a slice";
        return Err(Error::new_spanned(reference, message));
    }
    let name = argument_name(typed)?;
    let documentation = documentation(&typed.attrs);
    let (refinements, attributes) = std::mem::take(&mut typed.attrs)
        .into_iter()
        .filter(|attribute| !attribute.path().is_ident("doc"))
        .partition(|attribute| attribute.path().is_ident("schemars"));
    typed.attrs = attributes;
    Ok(Parameter::Argument { name, kind: typed.ty.clone(), documentation, refinements })
}

fn is_call(kind: &Type) -> bool {
    let Type::Reference(reference) = kind else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "Call")
}

fn argument_name(typed: &PatType) -> Result<Ident> {
    match &*typed.pat {
        Pat::Ident(pattern) if pattern.by_ref.is_none() => Ok(pattern.ident.clone()),
        other => Err(Error::new_spanned(
            other,
            "a tool's parameter needs a plain name: the model reads it",
        )),
    }
}

/// The schema is derived from a struct with the parameters as its fields. The struct is never
/// constructed: arguments are taken one by one, so that an error names the wrong one.
fn implementation(
    function: &Ident,
    description: &str,
    options: &Options,
    parameters: &[Parameter],
    result: Option<&TokenStream>,
) -> TokenStream {
    let tool_name = function.unraw().to_string();
    let idempotent = options.idempotent;
    let output_schema = match result {
        Some(result) => {
            quote! { <#result as ::conclave_sdk::IntoOutcome>::output_schema() }
        }
        None => quote! { ::core::option::Option::None },
    };
    let examples: Vec<serde_json::Value> = options
        .examples
        .iter()
        .map(|example| {
            serde_json::json!({ "thought": example.thought, "arguments": example.arguments })
        })
        .collect();
    let examples =
        (!examples.is_empty()).then(|| ("examples", serde_json::Value::from(examples).to_string()));
    let extra = options.extra.iter().cloned().chain(examples).map(|(key, value)| {
        quote! { ::conclave_sdk::Extra { key: #key.into(), value: #value.into() } }
    });
    let extra: Vec<TokenStream> = extra.collect();
    let mut fields = Vec::new();
    let mut takes = Vec::new();
    let mut passed = Vec::new();
    for (index, parameter) in parameters.iter().enumerate() {
        let Parameter::Argument { name, kind, documentation, refinements } = parameter else {
            passed.push(quote! { &call() });
            continue;
        };
        let (variable, key) = (format_ident!("argument_{index}"), name.unraw().to_string());
        let described = (!documentation.is_empty()).then(|| quote! { #[doc = #documentation] });
        fields.push(quote! { #described #(#refinements)* #name: #kind });
        takes.push(quote! { let #variable: #kind = arguments.take(#key)?; });
        passed.push(quote! { #variable });
    }
    quote! {
        const _: () = {
            use ::conclave_sdk::__private::{self, schemars};

            #[derive(schemars::JsonSchema)]
            #[schemars(crate = "::conclave_sdk::__private::schemars", deny_unknown_fields)]
            #[allow(dead_code, reason = "only its schema is used")]
            struct Parameters { #(#fields),* }

            impl __private::Tool for #function {
                fn spec() -> __private::ToolSpec {
                    __private::ToolSpec {
                        name: #tool_name.into(),
                        description: #description.into(),
                        input_schema: __private::input_schema::<Parameters>(),
                        output_schema: #output_schema,
                        idempotent: #idempotent,
                        extra: ::std::vec![#(#extra),*],
                    }
                }

                fn call(arguments: &str, call: &dyn ::core::ops::Fn() -> ::conclave_sdk::Call) -> ::conclave_sdk::Result<::conclave_sdk::Outcome> {
                    let mut arguments = __private::Arguments::parse(arguments)?;
                    #(#takes)*
                    arguments.finish()?;
                    let _ = call;
                    ::conclave_sdk::IntoOutcome::into_outcome(#function(#(#passed),*))
                }
            }
        };
    }
}
