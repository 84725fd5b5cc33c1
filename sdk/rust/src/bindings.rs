//! What wit-bindgen makes of `wit/`: one module per kind of plugin, so that one component may export several kinds, and one
//! module for all that they share, so that an author meets one set of types. Authors use the crate's own modules instead.

/// The imports, and the types that every kind uses.
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

/// A component that exports `tools`.
pub mod tool {
    wit_bindgen::generate!({
        world: "tool-plugin",
        path: "../../wit",
        type_section_suffix: "tool",
        runtime_path: "::conclave_sdk::__private::wit_bindgen::rt",
        default_bindings_module: "conclave_sdk::bindings::tool",
        additional_derives: [PartialEq, Clone],
        pub_export_macro: true,
        export_macro_name: "export_tools",
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
        },
    });
}

/// A component that exports `agent`.
pub mod agent {
    wit_bindgen::generate!({
        world: "agent-plugin",
        path: "../../wit",
        type_section_suffix: "agent",
        runtime_path: "::conclave_sdk::__private::wit_bindgen::rt",
        default_bindings_module: "conclave_sdk::bindings::agent",
        additional_derives: [PartialEq, Clone],
        pub_export_macro: true,
        export_macro_name: "export_agent",
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
        },
    });
}

/// A component that exports `delivery-strategy`.
pub mod delivery {
    wit_bindgen::generate!({
        world: "delivery-plugin",
        path: "../../wit",
        type_section_suffix: "delivery",
        runtime_path: "::conclave_sdk::__private::wit_bindgen::rt",
        default_bindings_module: "conclave_sdk::bindings::delivery",
        additional_derives: [PartialEq, Clone],
        pub_export_macro: true,
        export_macro_name: "export_delivery",
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
        },
    });
}
