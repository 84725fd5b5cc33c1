//! `#[tool]`: generates the type that describes and calls a function. Everything that the model
//! reads about a tool comes from here.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, Meta, Pat, PatType, Result, Type,
};

/// A parameter of the function.
enum Parameter {
    /// An argument that the model passes.
    Argument { name: Ident, kind: Box<Type>, documentation: String, refinements: Vec<Attribute> },
    /// The facts about the call.
    Call,
}

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let idempotent = is_idempotent(attribute)?;
    let mut function: ItemFn = syn::parse2(item)?;
    check_signature(&function)?;
    let description = description(&function)?;
    let parameters = function.sig.inputs.iter_mut().map(parameter).collect::<Result<Vec<_>>>()?;
    let implementation = implementation(&function.sig.ident, &description, idempotent, &parameters);
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

fn is_idempotent(attribute: TokenStream) -> Result<bool> {
    if attribute.is_empty() {
        return Ok(false);
    }
    let word: Ident = syn::parse2(attribute)?;
    if word == "idempotent" {
        Ok(true)
    } else {
        Err(Error::new(word.span(), "write `#[tool]` or `#[tool(idempotent)]`"))
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
    let (refinements, kept) = std::mem::take(&mut typed.attrs)
        .into_iter()
        .filter(|attribute| !attribute.path().is_ident("doc"))
        .partition(|attribute| attribute.path().is_ident("schemars"));
    typed.attrs = kept;
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
    idempotent: bool,
    parameters: &[Parameter],
) -> TokenStream {
    let tool_name = function.unraw().to_string();
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
                        output_schema: ::core::option::Option::None,
                        idempotent: #idempotent,
                        extra: ::std::vec::Vec::new(),
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
