//! Stubs of `wasi:sockets`, and of `wasi:http` without the `fetch` grant, for guests whose language
//! requires them. No socket code of the host is linked. Functions that can return "access denied"
//! do so, and the refusal is recorded. Constructors on the way there return empty values; the rest
//! traps.

use std::sync::Arc;

use conclave_core::types::denial::{Denial, DenialRecord, Layer};
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{
    Component, Linker, LinkerInstance, Resource, ResourceAny, ResourceType, Type, Val,
};
use wasmtime::{AsContextMut, StoreContextMut};

/// The name of the network in refusals. A manifest cannot request it.
const NETWORK: &str = "network";
/// The error cases for "not allowed", in `wasi:sockets` and in `wasi:http`.
const DENIED: [&str; 2] = ["access-denied", "HTTP-request-denied"];

import_view! {
    /// The network interfaces of a call.
    NetworkImport { authority: Option<String> }
}

/// The type of all resources of these interfaces.
struct Nothing;

/// Whether the interface belongs to the network.
pub(crate) fn is_network(import: &str) -> bool {
    import.starts_with("wasi:sockets/") || import.starts_with("wasi:http/")
}

/// Whether the interface is only a stub.
fn is_inert(import: &str) -> bool {
    is_network(import) && !is_served(import)
}

/// Served under the `fetch` grant.
#[cfg(feature = "fetch")]
use super::wasi_http::is_served;

#[cfg(not(feature = "fetch"))]
fn is_served(_: &str) -> bool {
    false
}

/// Whether a component imports a network interface that is served.
#[cfg(feature = "fetch")]
pub(crate) fn needs_served(component: &Component) -> bool {
    component.component_type().imports(component.engine()).any(|(name, _)| is_served(name))
}

/// Defines the stubs of a component's network interfaces, with its own import types.
pub(crate) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    component: &Component,
    view: fn(&mut T) -> NetworkImport<'_>,
) -> wasmtime::Result<()> {
    let engine = component.engine().clone();
    let ty = component.component_type();
    let instances = || {
        ty.imports(&engine).filter_map(|(name, import)| match import.ty {
            ComponentItem::ComponentInstance(instance) => Some((name, instance)),
            _ => None,
        })
    };
    // Resources that are only passed through, such as streams, keep their types.
    let mut foreign: Vec<ResourceType> = Vec::new();
    let mut own: Vec<ResourceType> = Vec::new();
    for (name, instance) in instances() {
        for (item_name, item) in instance.exports(&engine) {
            let ComponentItem::Resource(ty) = item.ty else { continue };
            if !is_inert(name) {
                foreign.push(ty);
            } else if !foreign.contains(&ty) && !own.contains(&ty) {
                own.push(ty);
                linker.instance(name)?.resource(
                    item_name,
                    ResourceType::host::<Nothing>(),
                    |_, _| Ok(()),
                )?;
            }
        }
    }
    for (name, instance) in instances().filter(|(name, _)| is_inert(name)) {
        let mut target = linker.instance(name)?;
        for (item_name, item) in instance.exports(&engine) {
            if let ComponentItem::ComponentFunc(function) = item.ty {
                let stub = NetworkStub::new(name, item_name, &function, &own);
                define(&mut target, stub, item_name, view)?;
            }
        }
    }
    Ok(())
}

fn define<T: Send + 'static>(
    target: &mut LinkerInstance<'_, T>,
    plan: NetworkStub,
    name: &str,
    view: fn(&mut T) -> NetworkImport<'_>,
) -> wasmtime::Result<()> {
    let plan = Arc::new(plan);
    target.func_new_async(name, move |mut store, _, params, results| {
        let plan = Arc::clone(&plan);
        Box::new(async move {
            view(store.data_mut()).enter(&plan.name, params)?;
            for param in params {
                drop_handles(&mut store, param).await?;
            }
            match &plan.answer {
                NetworkReply::Nothing => {}
                NetworkReply::Denied(denied) => {
                    view(store.data_mut()).refuse(&plan.name, params);
                    results[0] = denied.clone();
                }
                NetworkReply::Empty(ty) => results[0] = empty(&mut store, ty)?,
                NetworkReply::Trap => {
                    view(store.data_mut()).refuse(&plan.name, params);
                    return Err(wasmtime::Error::msg(format!(
                        "{} needs a network, and plugins have none",
                        plan.name
                    )));
                }
            }
            Ok(())
        })
    })
}

/// The stub of a network function.
struct NetworkStub {
    /// The name, such as `wasi:sockets/tcp.bind`.
    name: String,
    answer: NetworkReply,
}

enum NetworkReply {
    /// For a function without a result.
    Nothing,
    Denied(Val),
    /// For a function without an error "denied" that leads to one with it.
    Empty(Type),
    /// For a function without any harmless result.
    Trap,
}

impl NetworkStub {
    fn new(interface: &str, name: &str, function: &ComponentFunc, own: &[ResourceType]) -> Self {
        let answer = match function.results().next() {
            None => NetworkReply::Nothing,
            Some(ty) => match denial(&ty) {
                Some(denied) => NetworkReply::Denied(denied),
                None if can_be_empty(&ty, own) => NetworkReply::Empty(ty),
                None => NetworkReply::Trap,
            },
        };
        Self {
            name: format!("{}.{name}", interface.split('@').next().unwrap_or(interface)),
            answer,
        }
    }
}

/// The value "access denied" of a result type, if it has one.
fn denial(result: &Type) -> Option<Val> {
    let Type::Result(result) = result else { return None };
    let case = match result.err()? {
        Type::Enum(error) => {
            error.names().find(|name| DENIED.contains(name)).map(|name| Val::Enum(name.to_owned()))
        }
        Type::Variant(error) => {
            let case = error.cases().find(|case| DENIED.contains(&case.name) && case.ty.is_none());
            case.map(|case| Val::Variant(case.name.to_owned(), None))
        }
        _ => None,
    }?;
    Some(Val::Result(Err(Some(Box::new(case)))))
}

/// Whether the type has a harmless value. Resources of other interfaces, such as streams, cannot be
/// created here.
fn can_be_empty(ty: &Type, own: &[ResourceType]) -> bool {
    match ty {
        Type::Bool
        | Type::U8
        | Type::U16
        | Type::U32
        | Type::U64
        | Type::String
        | Type::List(_)
        | Type::Option(_) => true,
        Type::Result(result) => result.ok().is_none_or(|ok| can_be_empty(&ok, own)),
        Type::Own(resource) => own.contains(resource),
        _ => false,
    }
}

/// Returns the empty value of a type that has one.
fn empty<T: 'static>(store: &mut StoreContextMut<'_, T>, ty: &Type) -> wasmtime::Result<Val> {
    Ok(match ty {
        Type::Bool => Val::Bool(false),
        Type::U8 => Val::U8(0),
        Type::U16 => Val::U16(0),
        Type::U32 => Val::U32(0),
        Type::U64 => Val::U64(0),
        Type::String => Val::String(String::new()),
        Type::List(_) => Val::List(Vec::new()),
        Type::Option(_) => Val::Option(None),
        Type::Result(result) => {
            let ok = result.ok().map(|ok| empty(store, &ok)).transpose()?;
            Val::Result(Ok(ok.map(Box::new)))
        }
        Type::Own(_) => Val::Resource(ResourceAny::try_from_resource(
            Resource::<Nothing>::new_own(0),
            store.as_context_mut(),
        )?),
        _ => return Err(wasmtime::Error::msg("there is no empty value of this type")),
    })
}

/// Drops the handles in the parameters: otherwise the guest cannot return from its own call.
async fn drop_handles<T: Send + 'static>(
    store: &mut StoreContextMut<'_, T>,
    value: &Val,
) -> wasmtime::Result<()> {
    match value {
        Val::Resource(handle) => handle.resource_drop_async(store.as_context_mut()).await,
        Val::Option(Some(inner)) => match inner.as_ref() {
            Val::Resource(handle) => handle.resource_drop_async(store.as_context_mut()).await,
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

impl NetworkImport<'_> {
    /// Counts a host call, and remembers the host of an HTTP request, which the guest sets in a
    /// separate call.
    fn enter(&mut self, function: &str, params: &[Val]) -> wasmtime::Result<()> {
        self.core.enter()?;
        if function.ends_with("set-authority") {
            *self.authority = params.iter().find_map(text).map(str::to_owned);
        }
        Ok(())
    }

    fn refuse(&mut self, function: &str, params: &[Val]) {
        let target = params.iter().find_map(text).or(self.authority.as_deref());
        let target: String = target.unwrap_or(function).chars().take(256).collect();
        self.core.refuse(DenialRecord {
            denial: Denial {
                capability: NETWORK.to_owned(),
                detail: format!("the network was refused for {target:?}"),
                target,
            },
            layer: Layer::Host,
            reason: format!("this host gives plugins no network; the plugin called {function}"),
            suggestion: None,
            writes: false,
        });
    }
}

fn text(value: &Val) -> Option<&str> {
    match value {
        Val::String(text) => Some(text),
        Val::Option(Some(inner)) => text(inner),
        _ => None,
    }
}
