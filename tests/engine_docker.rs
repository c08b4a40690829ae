//! The Docker engine against a real one, on the socket that `DOCKER_HOST` names or the usual one.
//! Images are named `stackforge-test-*` and removed in the end.

#[path = "engine_docker/answers.rs"]
mod answers;
#[path = "engine_docker/builds.rs"]
mod builds;
#[path = "engine_docker/connections.rs"]
mod connections;
#[path = "engine_docker/containers.rs"]
mod containers;
#[path = "engine_docker/places.rs"]
mod places;
#[path = "engine_docker/workshop.rs"]
mod workshop;
