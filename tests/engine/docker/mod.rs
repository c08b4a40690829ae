//! The Docker engine against a real one, on the socket that `DOCKER_HOST` names or the usual one.
//! Images are named `stackforge-test-*` and removed in the end.

mod answers;
mod builds;
mod connections;
mod containers;
mod places;
mod workshop;

pub use workshop::socket;
