//! Guests for the tests: tiny components, each of which tries one thing. Each is an example of this
//! package, so that one build makes them all; `README.md` says what each one tries. There is
//! nothing in the library itself.
