//! A scripted agent.
fn main() {}
