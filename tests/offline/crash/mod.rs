//! Programs that are killed at a system call, as a power cut or an OOM killer does: what they leave, and what
//! the next run makes of it. STACKFORGE_TEST_KILLS says at how many calls each is killed.

mod import;
mod trees;

use support::{self, kept, kill, layers};
