//! Guests for the tests: tiny components, each of which tries one thing. Each is an example of this
//! package, so that one build creates them all; `README.md` describes each. The library itself is
//! empty.
