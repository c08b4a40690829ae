//! Known faults of engines that only their own projects can fix.
//!
//! The input is the engine that answered; the output is the faults that were seen in its release. A
//! release that was not examined may have faults that are not listed here.

use super::client::{Docker, release};
use crate::Fault;

/// Major and minor version.
type Release = (u32, u32);

/// Faults of Podman, each with the first and last release that it was seen in.
const PODMAN: [(Fault, Release, Release); 3] = [
    (
        Fault {
            what: "its service may end with `panic: semaphore: released more than held` after a build that \
                   failed or was interrupted",
            help: "let systemd start it again: `systemctl --user enable --now podman.socket`",
            source: "https://github.com/containers/buildah/issues/7091",
        },
        (4, 3),
        (5, 8),
    ),
    (
        Fault {
            what: "a step of a build that was interrupted goes on to its end",
            help: "end it with `podman ps --external` and `podman kill`, or wait for it",
            source: "seen in Podman 4.3.1, 5.4.2 and 5.8.6",
        },
        (4, 3),
        (5, 8),
    ),
    (
        Fault {
            what: "a service that dies during a build leaves the build's secrets in its temporary folder",
            help: "remove `.secret-*` below its TMPDIR (`/var/tmp`) after that",
            source: "seen in Podman 4.3.1 and 5.4.2",
        },
        (4, 3),
        (5, 8),
    ),
];

impl Docker {
    /// Returns the known faults of the release that answered.
    pub fn faults(&self) -> Vec<Fault> {
        if self.is_podman() {
            of_podman(&self.server.version)
        } else {
            Vec::new()
        }
    }
}

fn of_podman(version: &str) -> Vec<Fault> {
    let Some(release) = release(version) else {
        return Vec::new();
    };
    let present = PODMAN
        .iter()
        .filter(|(_, first, last)| (*first..=*last).contains(&release));
    present.map(|(fault, ..)| fault.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::of_podman;

    #[test]
    fn faults_are_of_releases_that_they_were_seen_in() {
        assert_eq!(of_podman("4.3.1").len(), 3);
        assert_eq!(of_podman("5.8.6").len(), 3);
        assert_eq!(of_podman("6.0.0"), []);
        assert_eq!(of_podman("dev"), []);
    }
}
