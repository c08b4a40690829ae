//! What needs programs that `scripts/setup.sh tests` installs, and servers on loopback. No Docker, no network.

mod bytecode;
mod complete;
mod console;
mod crash;
mod deploy;
mod diagnose;
mod evidence;
mod outside;
mod printable;
mod publish;
mod registry;
mod run;
mod sandbox;
mod slurm;
mod start;
mod still;
mod store;
mod tls;
mod workflows;
