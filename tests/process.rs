//! Child processes as they really are: the supervisor against the scripted agent, the shell and the kernel.
#![cfg(feature = "test-fakes")]

mod process_world;

use agentrun::process::*;
use process_world::*;

#[test]
fn smoke() {
    let world = World::new();
    let end = world.run(world.shell("echo one; echo two >&2; printf three"));
    println!("{end:?}");
    assert_eq!(end.ending.status, Status::Exited(0));
    assert_eq!(end.lines, ["one", "three"]);
}
