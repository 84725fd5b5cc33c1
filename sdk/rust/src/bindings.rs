//! The bindings that wit-bindgen generates from `wit/`: one module per kind of plugin, so that a
//! component may export several kinds, and one for the shared types. Authors use the crate's own
//! modules instead.

/// The imports, and the types that all kinds share.
pub mod imports {
    wit_bindgen::generate!({
        world: "imports",
        path: "../../wit",
        type_section_suffix: "imports",
        runtime_path: "::conclave_sdk::__private::wit_bindgen::rt",
        additional_derives: [PartialEq, Clone],
        generate_all,
    });
}

/// Generates one kind from its world, the unique name of its custom section, its module, its export
/// macro, and the modules whose types it shares besides the imports.
macro_rules! kind {
    ($world:literal, $suffix:literal, $module:literal, $export:literal, { $($interface:literal: $shared:path),* }) => {
        wit_bindgen::generate!({
            world: $world,
            path: "../../wit",
            type_section_suffix: $suffix,
            runtime_path: "::conclave_sdk::__private::wit_bindgen::rt",
            default_bindings_module: $module,
            additional_derives: [PartialEq, Clone],
            pub_export_macro: true,
            export_macro_name: $export,
            generate_all,
            with: {
                "conclave:plugin/types@0.1.0-draft": crate::bindings::imports::conclave::plugin::types,
                "conclave:plugin/log@0.1.0-draft": crate::bindings::imports::conclave::plugin::log,
                "conclave:plugin/progress@0.1.0-draft": crate::bindings::imports::conclave::plugin::progress,
                "conclave:plugin/config@0.1.0-draft": crate::bindings::imports::conclave::plugin::config,
                "conclave:plugin/scratch@0.1.0-draft": crate::bindings::imports::conclave::plugin::scratch,
                "conclave:plugin/blobs@0.1.0-draft": crate::bindings::imports::conclave::plugin::blobs,
                "conclave:plugin/model@0.1.0-draft": crate::bindings::imports::conclave::plugin::model,
                "conclave:plugin/files@0.1.0-draft": crate::bindings::imports::conclave::plugin::files,
                "conclave:plugin/kv@0.1.0-draft": crate::bindings::imports::conclave::plugin::kv,
                "conclave:plugin/secrets@0.1.0-draft": crate::bindings::imports::conclave::plugin::secrets,
                "conclave:plugin/fetch@0.1.0-draft": crate::bindings::imports::conclave::plugin::fetch,
                $($interface: $shared,)*
            },
        });
    };
}

/// A component that exports `tools`.
pub mod tool {
    kind!("tool-plugin", "tool", "conclave_sdk::bindings::tool", "export_tools", {});
}

/// A component that exports `agent`. The kinds below share its types too.
pub mod agent {
    kind!("agent-plugin", "agent", "conclave_sdk::bindings::agent", "export_agent", {});
}

/// A component that exports `responder`, beside `agent`.
pub mod responder {
    kind!("responder-plugin", "responder", "conclave_sdk::bindings::responder", "export_responder", {
        "conclave:plugin/actions@0.1.0-draft": crate::bindings::agent::conclave::plugin::actions,
        "conclave:plugin/state@0.1.0-draft": crate::bindings::agent::conclave::plugin::state
    });
}

/// A component that exports `delivery-strategy`.
pub mod delivery {
    kind!("delivery-plugin", "delivery", "conclave_sdk::bindings::delivery", "export_delivery", {});
}

/// A component that exports `memory`.
pub mod memory {
    kind!("memory-plugin", "memory", "conclave_sdk::bindings::memory", "export_memory", {});
}

/// A component that exports `security-analyzer`.
pub mod analyzer {
    kind!("analyzer-plugin", "analyzer", "conclave_sdk::bindings::analyzer", "export_analyzer", {
        "conclave:plugin/actions@0.1.0-draft": crate::bindings::agent::conclave::plugin::actions,
        "conclave:plugin/state@0.1.0-draft": crate::bindings::agent::conclave::plugin::state
    });
}

/// A component that exports `gate`.
pub mod gate {
    kind!("gate-plugin", "gate", "conclave_sdk::bindings::gate", "export_gate", {});
}

/// A component that exports `observer`.
pub mod observer {
    kind!("observer-plugin", "observer", "conclave_sdk::bindings::observer", "export_observer", {});
}

/// A component that exports `channel`.
pub mod channel {
    kind!("channel-plugin", "channel", "conclave_sdk::bindings::channel", "export_channel", {});
}

/// A component that exports `condenser`.
pub mod condenser {
    kind!("condenser-plugin", "condenser", "conclave_sdk::bindings::condenser", "export_condenser", {
        "conclave:plugin/actions@0.1.0-draft": crate::bindings::agent::conclave::plugin::actions,
        "conclave:plugin/state@0.1.0-draft": crate::bindings::agent::conclave::plugin::state
    });
}

/// A component that exports `judge`.
pub mod judge {
    kind!("judge-plugin", "judge", "conclave_sdk::bindings::judge", "export_judge", {
        "conclave:plugin/actions@0.1.0-draft": crate::bindings::agent::conclave::plugin::actions,
        "conclave:plugin/state@0.1.0-draft": crate::bindings::agent::conclave::plugin::state
    });
}

/// A component that exports `simulated-user`.
pub mod simulated_user {
    kind!("simulated-user-plugin", "simulated-user", "conclave_sdk::bindings::simulated_user", "export_simulated_user", {
        "conclave:plugin/actions@0.1.0-draft": crate::bindings::agent::conclave::plugin::actions,
        "conclave:plugin/state@0.1.0-draft": crate::bindings::agent::conclave::plugin::state
    });
}
