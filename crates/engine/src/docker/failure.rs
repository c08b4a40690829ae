//! Interprets error texts and log lines of an engine.
//!
//! BuildKit reports only as text how a step ended. These readers know the texts of BuildKit 0.8 (Docker
//! 20.10) to 0.17, of buildah, and of the tools that steps run. Each test has a text as it was printed.

use std::io::ErrorKind;

use super::candidates::By;
use crate::EngineError;

/// Returns the exit code in `… exit code: 137` (BuildKit) or `… exit status 37` (buildah, runc).
pub(super) fn exit_code(text: &str) -> Option<i32> {
    ["exit code: ", "exit status "].iter().find_map(|marker| {
        let rest = &text[text.rfind(marker)? + marker.len()..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

/// Exit code of a step whose first process was killed by the kernel's OOM killer: 128 + SIGKILL.
pub(super) const KILLED: i32 = 137;

/// Whether a log line says that a process was killed for memory or could not allocate any. Errors about
/// GPU memory do not count.
pub(super) fn is_out_of_memory(line: &str) -> bool {
    const SIGNS: [&str; 14] = [
        "Killed signal terminated program",
        "internal compiler error: Killed",
        "died due to signal 9",
        "terminated with signal 9",
        "terminated (signal: 9)",
        "Compiler killed by signal 9",
        "signal: 9,",
        "signal: killed",
        "Cannot allocate memory",
        "cannot allocate memory",
        "Out of memory: Killed process",
        "Memory cgroup out of memory",
        "LLVM ERROR: out of memory",
        "std::bad_alloc",
    ];
    let line = line.trim_end();
    // A shell prints `Killed`, or `sh: line 1:    12 Killed    command`.
    let from_shell = line == "Killed"
        || line
            .split_once(" Killed ")
            .is_some_and(|(before, _)| before.ends_with(|c: char| c.is_ascii_digit()));
    from_shell || SIGNS.iter().any(|sign| line.contains(sign))
}

/// Whether a text says that a disk is full.
pub(super) fn is_disk_full(text: &str) -> bool {
    ["no space left on device", "disk quota exceeded"]
        .iter()
        .any(|sign| text.to_ascii_lowercase().contains(sign))
}

/// Parses an error of the Dockerfile itself, with its line and reason.
pub(super) fn dockerfile_syntax(text: &str) -> Option<EngineError> {
    const MARKER: &str = "ockerfile parse error";
    let rest = &text[text.find(MARKER)? + MARKER.len()..];
    let rest = rest.strip_prefix(" on").unwrap_or(rest);
    let (line, message) = match rest.strip_prefix(" line ").and_then(|r| r.split_once(':')) {
        Some((line, message)) => (line.trim().parse().ok(), message),
        None => (None, rest.trim_start_matches([':', ' '])),
    };
    Some(EngineError::DockerfileSyntax {
        line,
        message: message.trim().to_owned(),
    })
}

/// Whether a text says that the engine is shutting down or has lost the connection.
fn is_engine_gone(text: &str) -> bool {
    [
        "context canceled",
        "transport is closing",
        "no active session",
        "graceful_stop",
        "error reading from server: EOF",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}

/// Converts the text of a failed build in which no step failed.
pub(super) fn of_build(text: &str, doing: &str) -> EngineError {
    if is_disk_full(text) {
        return EngineError::NoSpace {
            doing: doing.to_owned(),
        };
    }
    if let Some(error) = dockerfile_syntax(text) {
        return error;
    }
    if is_engine_gone(text) {
        return EngineError::Gone {
            doing: doing.to_owned(),
            source: Some(text.to_owned().into()),
        };
    }
    EngineError::Build {
        message: text.to_owned(),
    }
}

/// Converts an error of the client library that occurred while `doing` at `address`.
pub(super) fn of_client(error: bollard::errors::Error, address: &str, doing: &str) -> EngineError {
    use bollard::errors::Error as Client;
    let doing = doing.to_owned();
    match error {
        Client::DockerResponseServerError { message, .. } if is_disk_full(&message) => {
            EngineError::NoSpace { doing }
        }
        Client::DockerResponseServerError {
            status_code,
            message,
        } => match dockerfile_syntax(&message) {
            Some(error) => error,
            None => EngineError::Api {
                status: status_code,
                message: message.trim().to_owned(),
                doing,
            },
        },
        Client::DockerStreamError { error } => of_build(&error, &doing),
        Client::HyperLegacyError { err } if err.is_connect() => not_reachable(address, err),
        Client::HyperLegacyError { .. }
        | Client::HyperResponseError { .. }
        | Client::IOError { .. }
        | Client::RequestTimeoutError => EngineError::Gone {
            doing,
            source: Some(error.into()),
        },
        other => EngineError::Build {
            message: format!("{doing}: the engine's answer makes no sense: {other}"),
        },
    }
}

/// Returns the kind of the innermost I/O error among an error and its causes.
fn kind(error: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    let mut cause = Some(error);
    let mut kind = None;
    while let Some(inner) = cause {
        let io = inner.downcast_ref::<std::io::Error>();
        kind = io.map(std::io::Error::kind).or(kind);
        cause = inner.source();
    }
    kind
}

/// Rates how informative the failure of one of several addresses is. A missing socket says the least,
/// because most of them are expected to be missing.
pub(super) fn informativeness(error: &EngineError) -> u8 {
    let EngineError::NotReachable { source, .. } = error else {
        return 3;
    };
    let source = source.as_deref();
    match source.and_then(|s| kind(s as &(dyn std::error::Error + 'static))) {
        Some(ErrorKind::NotFound | ErrorKind::NotADirectory) => 0,
        Some(ErrorKind::PermissionDenied) => 2,
        _ => 1,
    }
}

/// Adds the origin of an address that does not answer to the help.
pub(super) fn named_by(mut error: EngineError, by: &By) -> EngineError {
    if let (EngineError::NotReachable { help, .. }, By::Context(name)) = (&mut error, by) {
        help.push_str(&format!(
            "; the docker context `{name}` names it, and `docker context use` chooses another"
        ));
    }
    error
}

/// Creates the error for a stream that could not be opened.
pub(super) fn not_reachable(
    address: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> EngineError {
    let mut reason = error.to_string();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        reason = inner.to_string();
        cause = inner.source();
    }
    let help = if kind(&error) == Some(ErrorKind::PermissionDenied) {
        "add your user to the group that owns the socket (`sudo usermod -aG docker $USER`) and log in again, \
         or use a rootless engine"
    } else if kind(&error) == Some(ErrorKind::ConnectionRefused) && address.starts_with("unix://") {
        "the socket is there and nobody listens on it: start the engine (`sudo systemctl start docker`, \
         `systemctl --user start podman.socket`, Docker Desktop, `colima start`)"
    } else if address.starts_with("ssh://") {
        "see that `ssh HOST docker version` works without asking for anything: keys belong in an \
         agent, the host in known_hosts"
    } else {
        "start Docker or Podman's socket, or point DOCKER_HOST at an engine \
         (unix://, tcp:// or ssh://)"
    };
    EngineError::NotReachable {
        address: address.to_owned(),
        reason,
        source: Some(Box::new(error)),
        help: help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_read_from_each_generation_of_texts() {
        for (text, code) in [
            (
                "failed to solve with frontend dockerfile.v0: failed to build LLB: executor \
                 failed running [/bin/sh -c exit 37]: exit code: 37",
                Some(37),
            ),
            (
                "process \"/bin/sh -c exit code: 3; exit 137\" did not complete successfully: \
                 exit code: 137",
                Some(137),
            ),
            (
                "building at STEP \"RUN exit 37\": while running runtime: exit status 37",
                Some(37),
            ),
            ("exit code: 137: context canceled", Some(137)),
            ("exit code: ", None),
            ("exit code: 99999999999", None),
            ("runc did not terminate successfully", None),
        ] {
            assert_eq!(exit_code(text), code, "{text}");
        }
    }

    #[test]
    fn lines_of_killed_processes_are_told_from_others() {
        for line in [
            "Killed",
            "/bin/sh: line 1:    12 Killed                  python3 -c x",
            "bash: line 7:     8 Killed ninja",
            "c++: fatal error: Killed signal terminated program cc1plus",
            "g++: internal compiler error: Killed (program cc1plus)",
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
            "collect2: fatal error: ld terminated with signal 9 [Killed]",
            "process didn't exit successfully: `rustc` (signal: 9, SIGKILL: kill)",
            "virtual memory exhausted: Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
        ] {
            assert!(is_out_of_memory(line), "{line}");
        }
        for line in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "Killed the old server before starting",
            "test_signal_handling: Killed by test ok",
            "exit signal: 15",
            "memory.c: compiled",
        ] {
            assert!(!is_out_of_memory(line), "{line}");
        }
    }

    #[test]
    fn dockerfile_errors_keep_their_line() {
        for (text, line, message) in [
            (
                "failed to solve with frontend dockerfile.v0: failed to create LLB definition: \
                 dockerfile parse error line 3: unknown instruction: RUNN",
                Some(3),
                "unknown instruction: RUNN",
            ),
            (
                "dockerfile parse error on line 12: unknown flag: --link",
                Some(12),
                "unknown flag: --link",
            ),
            (
                "Dockerfile parse error: file with no instructions",
                None,
                "file with no instructions",
            ),
        ] {
            match dockerfile_syntax(text) {
                Some(EngineError::DockerfileSyntax {
                    line: found,
                    message: found_message,
                }) => {
                    assert_eq!((found, found_message.as_str()), (line, message));
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(dockerfile_syntax("failed to compute cache key").is_none());
    }

    #[test]
    fn a_full_disk_and_a_dying_engine_have_errors_of_their_own() {
        let of = |text| of_build(text, "building");
        assert!(matches!(
            of("write /x: no space left on device"),
            EngineError::NoSpace { .. }
        ));
        assert!(matches!(of("context canceled"), EngineError::Gone { .. }));
        assert!(matches!(
            of("failed to compute cache key: \"/x\" not found"),
            EngineError::Build { .. }
        ));
    }
}
