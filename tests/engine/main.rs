//! What needs the Docker Engine of this machine. Most of it needs the network too.

mod audit_images;
mod base_real;
mod build_audit;
mod build_real;
mod debian_real;
mod demo;
mod docker;
mod edge;
mod fleet;
mod foreign_code;
mod layer;
mod native;
mod oci_images;
mod publish;
mod run;
