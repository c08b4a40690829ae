//! `push` and `pull`: images and variants through Debian's docker-registry, with skopeo and umoci as the other
//! side, and through a network that does harm.

mod delta;
mod devices;
mod faults;
mod files;
mod images;
mod index;
mod rootfs;

use support::published::{answer, digest, enter, refusal};
use support::server::{Kind, Server, layout, skopeo};
use support::{Sandbox, image_spec, layers, machines, made, proxy};
