"""How a component is built: `describe` and `prepare`, which run on the author's machine."""
