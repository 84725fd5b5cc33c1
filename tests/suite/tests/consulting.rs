//! What the host asks plugins beside steps and tool calls, with real components: memories, how
//! risky an action is, what a history may forget; and that none of it is lost, or paid for twice,
//! when a process ends in the middle.

mod condensing;
mod confirming;
mod cut_off;
mod remembering;
mod world;
