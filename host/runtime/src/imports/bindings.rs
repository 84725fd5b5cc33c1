//! Bindings that wasmtime generates from `wit/`: types, a trait per import, an accessor per export.
//! `convert` maps them to the core's types.

wasmtime::component::bindgen!({
    world: "all",
    path: "../../wit",
    imports: {
        "conclave:plugin/files.list-entries": async | trappable,
        "conclave:plugin/files.read": async | trappable,
        "conclave:plugin/files.write": async | trappable,
        "conclave:plugin/files.remove": async | trappable,
        "conclave:plugin/kv.get": async | trappable,
        "conclave:plugin/kv.set": async | trappable,
        "conclave:plugin/kv.delete": async | trappable,
        "conclave:plugin/kv.keys": async | trappable,
        "conclave:plugin/blobs.read": async | trappable,
        "conclave:plugin/blobs.put": async | trappable,
        "conclave:plugin/fetch.send": async | trappable,
        "conclave:plugin/model.complete": async | trappable,
        "conclave:plugin/model.[method]completion-stream.next-text": async | trappable,
        "conclave:plugin/model.[method]completion-stream.wait": async | trappable,
        "conclave:plugin/toolbox.call-all": async | trappable,
        "conclave:plugin/exec.run": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "conclave:plugin/model.completion-stream": crate::imports::resources::CompletionStream,
        "conclave:plugin/fetch.response": crate::imports::resources::Response,
    },
});

pub(crate) use conclave::plugin;
