//! Errors of an engine. Each says what was being done and to what; [`EngineError::help`] says what to
//! do about it.

use std::path::PathBuf;

use super::outcome::StepSummary;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why an engine did not do what was asked. `doing` completes "… while", such as "tagging A as B".
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No engine answers.
    #[error("cannot reach a container engine at {address}: {reason}")]
    NotReachable {
        /// The address that was tried.
        address: String,
        /// What happened at the address.
        reason: String,
        /// The cause, if it is known besides the reason.
        #[source]
        source: Option<Cause>,
        /// What to do about it.
        help: String,
    },
    /// A step of the Dockerfile failed.
    #[error("{0}")]
    StepFailed(Box<StepFailure>),
    /// The connection ended before the engine reported the result.
    #[error("the engine went away while {doing}")]
    Gone {
        /// What was being done.
        doing: String,
        /// How the connection ended.
        #[source]
        source: Option<Cause>,
    },
    /// The Dockerfile does not parse.
    #[error("the engine refuses the Dockerfile{}: {message}", at_line(*line))]
    DockerfileSyntax {
        /// The line, counted from 1, if the engine names it.
        line: Option<u32>,
        /// What the engine says.
        message: String,
    },
    /// The engine's disk is full.
    #[error("no space left on the engine's disk while {doing}")]
    NoSpace {
        /// What was being done.
        doing: String,
    },
    /// The engine refuses a request.
    #[error("the engine answered {status} while {doing}: {message}")]
    Api {
        /// The HTTP status code.
        status: u16,
        /// What the engine says.
        message: String,
        /// What was being done.
        doing: String,
    },
    /// The program of a container could not be started.
    #[error("the program cannot be started: {message}")]
    Program {
        /// What the engine says.
        message: String,
        /// Whether it is not there; else it cannot be executed.
        missing: bool,
    },
    /// The image could not be pushed to the registry.
    #[error("the engine cannot push {reference}: {message}")]
    Push {
        /// The name that was pushed.
        reference: String,
        /// What the engine says.
        message: String,
    },
    /// The build failed outside of any step.
    #[error("the build failed: {message}")]
    Build {
        /// What the engine says.
        message: String,
    },
    /// A newer engine is needed.
    #[error("{engine} cannot {what}")]
    TooOld {
        /// The engine and its version.
        engine: String,
        /// What it cannot do; completes "cannot …".
        what: String,
        /// What to do about it.
        help: &'static str,
    },
    /// A name that was given to an image belongs to another image, or to none.
    #[error("{}", misnamed(reference, wanted, found.as_deref()))]
    Misnamed {
        /// The name.
        reference: String,
        /// The ID that the image should have.
        wanted: String,
        /// The ID that it has. `None` if there is no such image.
        found: Option<String>,
    },
    /// The caller asked to stop.
    #[error("cancelled while {doing}")]
    Cancelled {
        /// What was being done.
        doing: String,
    },
    /// This kind of engine cannot do it in any version.
    #[error("{engine} cannot do this: {what}")]
    Unsupported {
        /// What the engine cannot do.
        what: String,
        /// The engine and its version.
        engine: String,
        /// What to do about it.
        help: String,
    },
    /// A name, path or option of the request is invalid, so no engine was asked.
    #[error("{what} is not valid: {value:?}")]
    Invalid {
        /// What kind of value it is.
        what: &'static str,
        /// The value as it was given.
        value: String,
        /// What the value should be.
        help: &'static str,
    },
    /// A file of the build context cannot be read.
    #[error("cannot read {} for the build context", path.display())]
    Context {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// The build's log file cannot be written.
    #[error("cannot write the build log {}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
    /// A file of an image is larger than the caller's limit.
    #[error("{path} in {image} is larger than {limit} bytes")]
    TooLarge {
        /// The image.
        image: String,
        /// The file's path in the image.
        path: String,
        /// The caller's limit in bytes.
        limit: usize,
    },
}

/// A build step that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFailure {
    /// The step's number, as in its [`Event`](super::Event)s.
    pub id: u32,
    /// The step as the engine names it: `[build 3/5] RUN …`.
    pub name: String,
    /// Line of the Dockerfile at which the step begins, counted from 1.
    pub line: Option<u32>,
    /// The exit code of the step's command, if the engine reports it.
    pub exit_code: Option<i32>,
    /// Whether the exit code or the log says that the kernel killed a process for memory, or an
    /// allocation failed.
    pub killed_for_memory: bool,
    /// What the engine says about the failure.
    pub message: String,
    /// The last lines of the step's log, oldest first.
    pub tail: Vec<String>,
    /// The steps that had finished before.
    pub finished: Vec<StepSummary>,
}

impl std::fmt::Display for StepFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A RUN line can have thousands of characters; its beginning is enough to identify it.
        let short: String = self.name.chars().take(120).collect();
        let dots = if short.len() < self.name.len() {
            "…"
        } else {
            ""
        };
        write!(f, "step {}{dots}{} failed", short, at_line(self.line))?;
        match (self.killed_for_memory, self.exit_code) {
            (true, Some(code)) => write!(f, ": out of memory (exit code {code})"),
            (true, None) => f.write_str(": out of memory"),
            (false, Some(code)) => write!(f, " with exit code {code}"),
            (false, None) => write!(f, ": {}", self.message),
        }
    }
}

fn misnamed(reference: &str, wanted: &str, found: Option<&str>) -> String {
    match found {
        Some(found) => format!("the engine's image `{reference}` is {found}, not {wanted}"),
        None => format!("the engine has no image `{reference}`, though it took {wanted}"),
    }
}

fn at_line(line: Option<u32>) -> String {
    line.map_or_else(String::new, |line| format!(" at Dockerfile line {line}"))
}

impl EngineError {
    /// Returns what the user can do.
    pub fn help(&self) -> &str {
        match self {
            EngineError::NotReachable { help, .. } | EngineError::Unsupported { help, .. } => help,
            EngineError::StepFailed(step) if step.killed_for_memory => {
                "run fewer jobs at once, or give the engine's machine more memory or swap"
            }
            EngineError::StepFailed(_) => {
                "read the step's log; steps that finished before it stay cached"
            }
            EngineError::Gone { .. } => {
                "see that the engine is running, then run the same command again: finished steps \
                 stay cached"
            }
            EngineError::DockerfileSyntax { .. } => {
                "the engine's BuildKit may be older than the Dockerfile: Docker 20.10 or newer is \
                 needed"
            }
            EngineError::NoSpace { .. } => {
                "free space where the engine keeps its data, for instance with `docker system \
                 prune` and `docker builder prune`"
            }
            EngineError::Api { status, .. } => match status {
                401 | 403 => "log the engine in to the registry and try again",
                404 => "see that the name is spelled as `docker images` shows it",
                _ => "the engine's own log may say more",
            },
            EngineError::Program { .. } => {
                "name a program that the image has, by its path or on its PATH"
            }
            EngineError::Push { .. } => {
                "see that the engine itself reaches the registry (one without TLS has to be among \
                 its insecure registries), and that `docker login` or the registry lets you write"
            }
            EngineError::Build { message } if is_pull_failure(message) => {
                "the engine could not fetch a base image: see that the name is right, that the \
                 engine reaches the registry, and that the image is public, loaded already, or \
                 opened to you by `docker login`"
            }
            EngineError::Build { .. } => "the engine's own log may say more",
            EngineError::Misnamed { .. } => {
                "run the same command again; if the name is still not there, see what the engine's own \
                 log says of it"
            }
            EngineError::Cancelled { .. } => {
                "run the same command again to go on: finished steps stay cached"
            }
            EngineError::Invalid { help, .. } | EngineError::TooOld { help, .. } => help,
            EngineError::Context { .. } => "see that the file is there, readable and not changing",
            EngineError::Log { .. } => "see that the directory is there and writable",
            EngineError::TooLarge { .. } => "raise the limit, or read something smaller",
        }
    }
}

/// Whether an error text of BuildKit or Podman says that a base image is missing and cannot be pulled.
fn is_pull_failure(message: &str) -> bool {
    message.ends_with(": not found")
        || [
            "pull access denied",
            "pulling from host",
            "authorization failed",
            "no basic auth credentials",
            "failed to do request",
            "unable to copy from source",
        ]
        .iter()
        .any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_image_that_cannot_be_fetched_has_help_of_its_own() {
        let help = |message: &str| {
            let message = message.to_owned();
            EngineError::Build { message }.help().to_owned()
        };
        let of_pull = help(
            "failed to solve with frontend dockerfile.v0: failed to create LLB definition: \
             registry.example/x/y:1: not found",
        );
        assert!(of_pull.contains("base image"));
        let private = help(
            "failed to solve with frontend dockerfile.v0: failed to create LLB definition: pulling \
             from host registry.example failed with status code [manifests 1]: 401 Unauthorized",
        );
        assert!(private.contains("docker login"));
        assert!(!help("failed to compute cache key").contains("base image"));
    }

    #[test]
    fn a_failed_step_reads_as_one_line() {
        let step = StepFailure {
            id: 3,
            name: format!("[build 2/4] RUN {}", "x".repeat(500)),
            line: Some(7),
            exit_code: Some(137),
            killed_for_memory: true,
            message: "exit code: 137".to_owned(),
            tail: Vec::new(),
            finished: Vec::new(),
        };
        let text = step.to_string();
        assert!(text.len() < 200);
        assert!(
            text.ends_with("… at Dockerfile line 7 failed: out of memory (exit code 137)"),
            "{text}"
        );
    }
}
