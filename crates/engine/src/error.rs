//! How an engine fails. Each error says what was being done and to what; [`EngineError::help`]
//! says what to do about it.

use std::path::PathBuf;

use super::StepSummary;

type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("cannot reach a container engine at {address}: {reason}")]
    NotReachable {
        address: String,
        reason: String,
        #[source]
        source: Option<Cause>,
        help: String,
    },
    #[error("{0}")]
    StepFailed(Box<StepFailure>),
    /// The connection ended before the engine said how the work ended.
    #[error("the engine went away while {doing}")]
    Gone {
        doing: String,
        #[source]
        source: Option<Cause>,
    },
    #[error("the engine refuses the Dockerfile{}: {message}", at_line(*line))]
    DockerfileSyntax { line: Option<u32>, message: String },
    #[error("no space left on the engine's disk while {doing}")]
    NoSpace { doing: String },
    #[error("the engine answered {status} while {doing}: {message}")]
    Api {
        status: u16,
        message: String,
        doing: String,
    },
    #[error("the engine cannot push {reference}: {message}")]
    Push { reference: String, message: String },
    /// The build failed outside of any step.
    #[error("the build failed: {message}")]
    Build { message: String },
    #[error("{engine} cannot {what}")]
    TooOld {
        engine: String,
        what: String,
        help: &'static str,
    },
    /// A name that was given to an image is not that image's.
    #[error("{}", misnamed(reference, wanted, found.as_deref()))]
    Misnamed {
        reference: String,
        wanted: String,
        found: Option<String>,
    },
    #[error("cancelled while {doing}")]
    Cancelled { doing: String },
    #[error("{engine} cannot do this: {what}")]
    Unsupported {
        what: String,
        engine: String,
        help: String,
    },
    /// A name, path or option of the request that no engine is asked about.
    #[error("{what} is not valid: {value:?}")]
    Invalid {
        what: &'static str,
        value: String,
        help: &'static str,
    },
    #[error("cannot read {} for the build context", path.display())]
    Context {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot write the build log {}", path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} in {image} is larger than {limit} bytes")]
    TooLarge {
        image: String,
        path: String,
        limit: usize,
    },
}

/// A build step that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFailure {
    pub id: u32,
    /// The step as the engine names it: `[build 3/5] RUN …`.
    pub name: String,
    /// Line of the Dockerfile at which the step begins, counted from 1.
    pub line: Option<u32>,
    pub exit_code: Option<i32>,
    /// The exit code or the log says that the kernel, or an allocator, ran out of memory.
    pub killed_for_memory: bool,
    /// What the engine says about it.
    pub message: String,
    /// The last lines of the step's log, oldest first.
    pub tail: Vec<String>,
    /// What had finished until then.
    pub finished: Vec<StepSummary>,
}

impl std::fmt::Display for StepFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A RUN line can be thousands of characters; its beginning tells which one it is.
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
    /// What the user can do.
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
            EngineError::Push { .. } => {
                "see that the engine itself reaches the registry (one without TLS has to be among \
                 its insecure registries), and that `docker login` or the registry lets you write"
            }
            EngineError::Build { message } if tells_of_pull(message) => {
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

/// What BuildKit and Podman say of a base image that they do not have and cannot get.
fn tells_of_pull(message: &str) -> bool {
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
