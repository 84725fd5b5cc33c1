"""The component's side of the SDK, on top of the bindings of componentize-py.

Only the entry module that `prepare` writes imports it. `codec` converts between the types of the
bindings and those of the SDK, `host` calls the imports, and each other module is one export.
"""
