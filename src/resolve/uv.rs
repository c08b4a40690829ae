//! Finds or fetches uv, and runs it in a controlled environment.
//!
//! In: arguments and a directory. Out: exit status and output, with every URL removed. uv never runs a
//! package's code here and never downloads a Python. It sees only those variables of the user's environment
//! that say where packages are and how to reach them.

use super::redact::redact;
use stackforge_stack::catalog::{Catalog, Tool};
use stackforge_stack::diag::{Code, Explained, codes, of_disk};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tokio::process::Command;

/// The first release with all options that are used here.
const OLDEST: (u32, u32) = (0, 8);

#[derive(Debug, thiserror::Error)]
pub enum UvError {
    #[error("uv is not on PATH, and stackforge is offline")]
    Offline,
    #[error("uv is not on PATH, and the catalog pins none for this machine")]
    NotPinned,
    #[error("fetch uv {version} with pip: {message}")]
    Fetch { version: String, message: String },
    #[error("run {}", program.display())]
    Run {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("uv has no answer without the network, and stackforge is offline: {message}")]
    NotCached { message: String },
    #[error("uv failed: {message}")]
    Failed { message: String },
    #[error("{doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Explained for UvError {
    fn code(&self) -> Code {
        match self {
            Self::Io { source, .. } => of_disk(source),
            Self::NotCached { .. } => codes::OFFLINE,
            _ => codes::RESOLVER_FAILED,
        }
    }

    fn help(&self) -> String {
        let help = match self {
            Self::Offline => "put a uv on PATH (`pip install uv`), or lock without `--offline`",
            Self::NotPinned | Self::Fetch { .. } => {
                "check that `python3 -m pip` works and reaches an index, or put a uv on PATH"
            }
            Self::NotCached { .. } => "lock once without `--offline`",
            Self::Run { .. } => "put a working uv on PATH",
            Self::Failed { .. } => {
                "check the network, the index configuration (`indexes`, UV_*, PIP_*, pip.conf) and the CA bundle (SSL_CERT_FILE)"
            }
            Self::Io { .. } => "check the store's permissions and free space",
        };
        help.to_owned()
    }
}

/// A working uv.
#[derive(Debug, Clone)]
pub(super) struct Uv {
    program: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// Any Python of this machine: uv needs one, and its search for one of the target's version takes longer
    /// than resolving (measured: 1.2 s with pyenv's shims).
    python: Option<PathBuf>,
}

/// The result of one run. `ok` is false if uv finds no versions that satisfy the requirements.
#[derive(Debug)]
pub(super) struct Answer {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Uv {
    /// Returns uv from PATH, else from `cache`, else installs it with pip into `cache`.
    pub async fn find(
        catalog: &Catalog,
        cache: &Path,
        offline: bool,
        own_indexes: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, UvError> {
        let environment = environment(own_indexes);
        let python = python().await;
        for program in on_path("uv") {
            if version(&program).await.is_some_and(|v| v >= OLDEST) {
                return Ok(Self {
                    program,
                    environment,
                    python,
                });
            }
        }
        let tool = catalog.tool("uv").ok_or(UvError::NotPinned)?;
        let home = cache.join("tools").join(format!("uv-{}", tool.version));
        let program = home.join("bin").join("uv");
        if version(&program).await.is_none() {
            if offline {
                return Err(UvError::Offline);
            }
            progress(&format!("fetching uv {}", tool.version));
            fetch(tool, &home).await?;
        }
        Ok(Self {
            program,
            environment,
            python,
        })
    }

    /// Runs uv in `dir`. Exit status 1 is an answer; any other failure is an error.
    pub async fn run(&self, dir: &Path, arguments: &[String]) -> Result<Answer, UvError> {
        tracing::debug!(?arguments, "uv");
        let mut command = Command::new(&self.program);
        command.args(arguments);
        if let Some(python) = &self.python {
            command.arg("--python").arg(python);
        }
        let output = command
            .current_dir(dir)
            .env_clear()
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| UvError::Run {
                program: self.program.clone(),
                source,
            })?;
        let answer = Answer {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: redact(&String::from_utf8_lossy(&output.stderr)),
        };
        match output.status.code() {
            Some(0 | 1) => Ok(answer),
            _ => Err(UvError::Failed {
                message: last_lines(&answer.stderr, 12),
            }),
        }
    }
}

/// Returns every executable with this name on PATH, in order.
fn on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .filter(|p| p.is_file())
        .collect()
}

/// Returns the interpreter that `python3` runs, without shims.
async fn python() -> Option<PathBuf> {
    let output = Command::new("python3")
        .args(["-I", "-c", "import sys; print(sys.executable)"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    (output.status.success() && path.is_absolute()).then_some(path)
}

async fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.strip_prefix("uv ")?.split('.');
    let mut number = || numbers.next()?.trim().parse().ok();
    output.status.success().then_some((number()?, number()?))
}

/// Installs uv with pip, which verifies the catalog's digests. The directory gets its name when it is complete.
async fn fetch(tool: &Tool, home: &Path) -> Result<(), UvError> {
    let io = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| UvError::Io {
            doing,
            path,
            source,
        }
    };
    let parent = home.parent().unwrap_or(home);
    std::fs::create_dir_all(parent).map_err(io("create", parent))?;
    let work = tempfile::tempdir_in(parent).map_err(io("create a directory in", parent))?;
    let mut wanted = format!("{}=={}", tool.name, tool.version);
    for file in &tool.files {
        wanted.push_str(&format!(" --hash={}", file.sha256));
    }
    let list = work.path().join("uv.txt");
    std::fs::write(&list, wanted).map_err(io("write", &list))?;
    let into = work.path().join("uv");
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"])
        .args(["--disable-pip-version-check", "--require-hashes"])
        .args(["--only-binary", ":all:", "--target"])
        .arg(&into)
        .arg("-r")
        .arg(&list)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let failed = |message| UvError::Fetch {
        version: tool.version.clone(),
        message,
    };
    let Output { status, stderr, .. } = output.map_err(|e| failed(format!("run python3: {e}")))?;
    let message = redact(&String::from_utf8_lossy(&stderr));
    if !status.success() {
        return Err(failed(last_lines(&message, 6)));
    }
    if version(&into.join("bin").join("uv")).await.is_none() {
        return Err(failed("the fetched program does not run here".into()));
    }
    match std::fs::rename(&into, home) {
        Ok(()) => Ok(()),
        // Another process has installed it meanwhile.
        Err(_) if home.join("bin").join("uv").is_file() => Ok(()),
        Err(source) => Err(io("create", home)(source)),
    }
}

/// Returns the user's variables that uv may see. Those that would change the choice of packages
/// (UV_PRERELEASE, UV_CONSTRAINT, …) are left out: only the stack decides that.
fn environment(own_indexes: bool) -> Vec<(OsString, OsString)> {
    let plain = [
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "NETRC",
        "XDG_CONFIG_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "SSL_CLIENT_CERT",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "UV_CACHE_DIR",
        "UV_HTTP_TIMEOUT",
        "UV_REQUEST_TIMEOUT",
        "UV_HTTP_RETRIES",
        "UV_CONCURRENT_DOWNLOADS",
        "UV_NATIVE_TLS",
        "UV_SYSTEM_CERTS",
        "UV_KEYRING_PROVIDER",
        "UV_INSECURE_HOST",
    ];
    let index = [
        "UV_INDEX",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_INDEX_STRATEGY",
    ];
    let wanted = |name: &str| {
        let credentials = name.starts_with("UV_INDEX_")
            && (name.ends_with("_USERNAME") || name.ends_with("_PASSWORD"));
        plain.contains(&name) || credentials || (!own_indexes && index.contains(&name))
    };
    let mut kept: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, value)| name.to_str().is_some_and(wanted) && !value.is_empty())
        .collect();
    let has = |kept: &[(OsString, OsString)], name: &str| kept.iter().any(|(n, _)| n == name);
    if !has(&kept, "SSL_CERT_FILE") && !has(&kept, "SSL_CERT_DIR") {
        match std::env::var_os("PIP_CERT").filter(|v| !v.is_empty()) {
            Some(bundle) => kept.push(("SSL_CERT_FILE".into(), bundle)),
            // Use the system's certificates, by the setting's old and new name.
            None => {
                for name in ["UV_NATIVE_TLS", "UV_SYSTEM_CERTS"] {
                    if !has(&kept, name) {
                        kept.push((name.into(), "true".into()));
                    }
                }
            }
        }
    }
    kept.push(("UV_PYTHON_DOWNLOADS".into(), "never".into()));
    kept.push(("LC_ALL".into(), "C.UTF-8".into()));
    kept
}

pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_change_the_choice_stay_outside() {
        let names: Vec<_> = environment(true).into_iter().map(|(n, _)| n).collect();
        assert!(names.iter().any(|n| n == "PATH"));
        for name in ["UV_PRERELEASE", "UV_DEFAULT_INDEX", "PYTHONPATH"] {
            assert!(!names.iter().any(|n| n == name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_program_that_is_no_uv_has_no_version() {
        assert_eq!(version(Path::new("/bin/echo")).await, None);
        assert_eq!(version(Path::new("/nonexistent")).await, None);
    }
}
