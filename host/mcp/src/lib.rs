//! The Model Context Protocol, both ways: the tools of a config for clients that people run already, and servers of others as a source of
//! tools. Only over the runtime's public surface.
