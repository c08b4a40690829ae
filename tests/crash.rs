//! Programs that are killed at a system call, as a power cut or an OOM killer does: what they leave, and what
//! the next run makes of it. STACKFORGE_TEST_KILLS says at how many calls each is killed.

#[path = "crash/build.rs"]
mod build;
#[path = "crash/import.rs"]
mod import;
#[path = "crash/kept.rs"]
mod kept;
#[path = "crash/kill.rs"]
mod kill;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "support/layers.rs"]
mod layers;
#[path = "crash/rootfs.rs"]
mod rootfs;
#[allow(dead_code, reason = "another test file uses the rest")]
#[path = "registry/server.rs"]
mod server;
mod support;
#[path = "crash/trees.rs"]
mod trees;
#[path = "crash/update.rs"]
mod update;
