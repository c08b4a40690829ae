//! Programs that are killed at a system call while they pull from a registry: what they leave, and what the next
//! run makes of it. STACKFORGE_TEST_KILLS says at how many calls each is killed.

mod rootfs;
mod update;

use support::{self, kill, layers, server};
