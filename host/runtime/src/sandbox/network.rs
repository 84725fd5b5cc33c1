//! `wasi:sockets` and `wasi:http` for guests whose language insists on them: no socket code of the host is linked. Every function that can
//! answer "access denied" answers that, and the refusal is recorded; what must be made on the way there is empty; the rest traps.

use std::sync::Arc;

use conclave_core::grant::{Denial, DenialRecord, Layer};
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, Linker, LinkerInstance, Resource, ResourceAny, ResourceType, Type, Val};
use wasmtime::{AsContextMut, StoreContextMut};

use super::CallState;

/// What the network's capability is called in refusals. It is none that a manifest can ask for.
const NETWORK: &str = "network";
/// Cases of error types that say "not allowed", in `wasi:sockets` and in `wasi:http`.
const DENIED: [&str; 2] = ["access-denied", "HTTP-request-denied"];

/// Every resource of these interfaces.
struct Nothing;

/// The interface belongs to the network.
pub(crate) fn is_network(import: &str) -> bool {
    import.starts_with("wasi:sockets/") || import.starts_with("wasi:http/")
}

/// Defines a component's network interfaces, with the types that it imports them by.
pub(crate) fn link(linker: &mut Linker<CallState>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine().clone();
    let imports = component.component_type();
    let mut known: Vec<ResourceType> = Vec::new();
    for (name, import) in imports.imports(&engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let exports = instance.exports(&engine);
        if !is_network(name) {
            // Resources that are only passed through, such as streams, stay what they are.
            known.extend(exports.filter_map(|(_, item)| if let ComponentItem::Resource(ty) = item.ty { Some(ty) } else { None }));
            continue;
        }
        let mut target = linker.instance(name)?;
        for (item_name, item) in exports {
            match item.ty {
                ComponentItem::Resource(ty) if !known.contains(&ty) => {
                    known.push(ty);
                    target.resource(item_name, ResourceType::host::<Nothing>(), |_, _| Ok(()))?;
                }
                ComponentItem::ComponentFunc(function) => define(&mut target, name, item_name, &function)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn define(target: &mut LinkerInstance<'_, CallState>, interface: &str, name: &str, function: &ComponentFunc) -> wasmtime::Result<()> {
    let result = function.results().next();
    let denied = result.as_ref().and_then(denial);
    let plan = Arc::new(Plan {
        name: format!("{}.{name}", interface.split('@').next().unwrap_or(interface)),
        result: result.filter(|_| denied.is_none()),
        denied,
    });
    target.func_new_async(name, move |mut store, _, params, results| {
        let plan = Arc::clone(&plan);
        Box::new(async move {
            store.data_mut().enter()?;
            note_authority(&mut store, &plan.name, params);
            for param in params {
                drop_handles(&mut store, param).await?;
            }
            if let Some(denied) = &plan.denied {
                refuse(&mut store, &plan.name, params);
                results[0] = denied.clone();
            } else if let Some(ty) = &plan.result {
                results[0] =
                    empty(&mut store, ty)?.ok_or_else(|| wasmtime::Error::msg(format!("{} needs a network; there is none", plan.name)))?;
            }
            Ok(())
        })
    })
}

/// What a function of the network does.
struct Plan {
    /// `wasi:sockets/tcp.bind`.
    name: String,
    /// The answer "access denied", where it has one.
    denied: Option<Val>,
    /// Else the type of what it returns, if anything.
    result: Option<Type>,
}

/// The answer "access denied" of a function's result type; none when it has no such answer.
fn denial(result: &Type) -> Option<Val> {
    let Type::Result(result) = result else { return None };
    let case = match result.err()? {
        Type::Enum(error) => error.names().find(|name| DENIED.contains(name)).map(|name| Val::Enum(name.to_owned())),
        Type::Variant(error) => {
            let case = error.cases().find(|case| DENIED.contains(&case.name) && case.ty.is_none());
            case.map(|case| Val::Variant(case.name.to_owned(), None))
        }
        _ => None,
    }?;
    Some(Val::Result(Err(Some(Box::new(case)))))
}

/// The emptiest value of a type; none when there is no harmless one.
fn empty(store: &mut StoreContextMut<'_, CallState>, ty: &Type) -> wasmtime::Result<Option<Val>> {
    Ok(Some(match ty {
        Type::Bool => Val::Bool(false),
        Type::U8 => Val::U8(0),
        Type::U16 => Val::U16(0),
        Type::U32 => Val::U32(0),
        Type::U64 => Val::U64(0),
        Type::String => Val::String(String::new()),
        Type::List(_) => Val::List(Vec::new()),
        Type::Option(_) => Val::Option(None),
        Type::Result(result) => match result.ok() {
            None => Val::Result(Ok(None)),
            Some(ok) => match empty(store, &ok)? {
                Some(value) => Val::Result(Ok(Some(Box::new(value)))),
                None => return Ok(None),
            },
        },
        // A resource of another interface, such as a stream, does not fit, and the guest is stopped for it.
        Type::Own(_) => Val::Resource(ResourceAny::try_from_resource(Resource::<Nothing>::new_own(0), store.as_context_mut())?),
        _ => return Ok(None),
    }))
}

/// A handle that came with a call must be given back, or the guest cannot return from its own call.
async fn drop_handles(store: &mut StoreContextMut<'_, CallState>, value: &Val) -> wasmtime::Result<()> {
    match value {
        Val::Resource(handle) => handle.resource_drop_async(store.as_context_mut()).await,
        Val::Option(Some(inner)) => match inner.as_ref() {
            Val::Resource(handle) => handle.resource_drop_async(store.as_context_mut()).await,
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A request for HTTP names its host in a call of its own.
fn note_authority(store: &mut StoreContextMut<'_, CallState>, function: &str, params: &[Val]) {
    if function.ends_with("set-authority") {
        store.data_mut().authority = params.iter().find_map(text).map(str::to_owned);
    }
}

fn refuse(store: &mut StoreContextMut<'_, CallState>, function: &str, params: &[Val]) {
    let state = store.data_mut();
    let named = params.iter().find_map(text).map(str::to_owned).or_else(|| state.authority.clone());
    let target: String = named.unwrap_or_else(|| function.to_owned()).chars().take(256).collect();
    let record = DenialRecord {
        denial: Denial { capability: NETWORK.to_owned(), detail: format!("the network was refused for {target:?}"), target },
        layer: Layer::Host,
        reason: format!("this host gives plugins no network; the plugin called {function}"),
        suggestion: None,
    };
    state.refuse(record);
}

fn text(value: &Val) -> Option<&str> {
    match value {
        Val::String(text) => Some(text),
        Val::Option(Some(inner)) => text(inner),
        _ => None,
    }
}
