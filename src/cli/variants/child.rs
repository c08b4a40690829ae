//! Runs one variant's build as a process: its arguments, its output, and whether its engine is lost.

use super::super::args::{CompressionChoice, EngineChoice};
use super::super::output::ENGINE_FAULT;
use super::{Ended, Fleet, Job, Place};
use serde_json::Value;
use stackforge_build::fleet::End;
use stackforge_engine::EngineError;
use stackforge_engine::docker::Docker;
use stackforge_stack::spec::Platform;
use stackforge_types::Cancel;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Time between two checks of an engine; `PATIENCE` is the longest wait for its answer, and `MISSES` the
/// number of failed checks in a row after which it is lost.
const ASKED: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(20);
const MISSES: u32 = 3;
/// Time that a build gets to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(15);
/// Exit status of a build that was interrupted.
const INTERRUPTED: i32 = 130;
/// Lines of a build's output that are kept; `MOST_BYTES` is the longest document, in bytes.
const MOST_LINES: usize = 400;
const MOST_BYTES: u64 = 64 << 20;

impl Fleet<'_> {
    /// Runs one variant's build until it ends or its engine is lost.
    pub async fn work(&self, job: usize, place: usize, cancel: &Cancel) -> End<Ended> {
        let start = Instant::now();
        let name = &self.jobs[job].variant.name;
        let mut child = match self.command(job, place).spawn() {
            Ok(child) => child,
            Err(e) => return End::Lost(format!("a build cannot be started: {e}")),
        };
        let on = self.places[place].name();
        let bar = self.show.bar(name, on);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let document = async {
            let mut text = Vec::new();
            if let Some(stdout) = stdout {
                let _ = stdout.take(MOST_BYTES).read_to_end(&mut text).await;
            }
            serde_json::from_slice(&text).unwrap_or(Value::Null)
        };
        let stderr_lines = async {
            let mut stderr_lines = Vec::new();
            let Some(stderr) = stderr else {
                return stderr_lines;
            };
            let mut lines = BufReader::new(stderr).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                let line = String::from_utf8_lossy(&line).into_owned();
                match serde_json::from_str::<Value>(&line) {
                    Ok(event) if event.is_object() => self.show.event((name, on), &bar, event),
                    _ if stderr_lines.len() < MOST_LINES => stderr_lines.push(line),
                    _ => {}
                }
            }
            stderr_lines
        };
        let ending = self.ended(&mut child, &self.places[place], cancel);
        let (document, stderr_lines, ending) = tokio::join!(document, stderr_lines, ending);
        bar.finish_and_clear();
        let exit = match ending {
            Ok(exit) => exit,
            Err(why) => return End::Lost(why),
        };
        let of_engine = self.places[place].address.is_some() && !cancel.is_cancelled();
        if let Some(why) = engine_fault(&document).filter(|_| of_engine) {
            return End::Lost(why);
        }
        // Without a document, the build's result is not known.
        let exit = match (exit, &document) {
            (0, Value::Null) => -1,
            _ => exit,
        };
        let ended = Ended {
            place,
            seconds: start.elapsed().as_secs_f64(),
            exit,
            document,
        };
        let state = match exit {
            0 => "built",
            _ => "failed",
        };
        self.show
            .line(&format!("{name}: {state}, {:.0} s", ended.seconds));
        self.show.print_output(name, &stderr_lines, exit != 0);
        End::Done(ended)
    }

    /// Waits for a build. Stops it if the work is cancelled or its engine does not answer.
    async fn ended(
        &self,
        child: &mut Child,
        place: &Place,
        cancel: &Cancel,
    ) -> Result<i32, String> {
        let status = tokio::select! {
            status = child.wait() => status,
            () = cancel.cancelled() => {
                stop(child).await;
                let _ = child.wait().await;
                return Ok(INTERRUPTED);
            }
            why = silent(place) => {
                stop(child).await;
                let _ = child.wait().await;
                return Err(why);
            }
        };
        match status {
            Ok(status) => Ok(status.code().unwrap_or(-1)),
            Err(e) => Err(format!("its build cannot be waited for: {e}")),
        }
    }

    fn command(&self, job: usize, place: usize) -> Command {
        let (args, common) = (self.args, self.common);
        let mut words: Vec<OsString> = vec!["build".into(), args.stack.clone().into()];
        let mut word = |word: &str| words.push(word.into());
        word("--json");
        word("--locked");
        if self.matrix {
            word("--variant");
            word(&self.jobs[job].variant.name);
        }
        let address = self.places[place].address.as_ref();
        word("--engine");
        word(match args.engine {
            EngineChoice::Native => "native",
            EngineChoice::Docker => "docker",
            EngineChoice::Auto if address.is_some() && !self.jobs[job].native => "docker",
            EngineChoice::Auto => "auto",
        });
        word("--compression");
        word(match args.compression {
            CompressionChoice::Gzip => "gzip",
            CompressionChoice::Zstd => "zstd",
        });
        for (flag, is_set) in [
            ("--no-cache", args.no_cache),
            ("--no-compile-cache", args.no_compile_cache),
            ("--gpu", args.gpu),
            ("--plain-http", args.plain_http),
            ("--index", args.index),
            ("--offline", common.offline),
        ] {
            if is_set {
                word(flag);
            }
        }
        for _ in 0..common.verbose {
            word("-v");
        }
        if let Some(jobs) = args.jobs {
            word("--jobs");
            word(&jobs.to_string());
        }
        if let Some(reference) = &args.push {
            word("--push");
            word(&reference.to_string());
        }
        for output in &args.outputs {
            word("--output");
            word(&output.to_string());
        }
        for (flag, path) in [("--store", &common.store), ("--catalog", &common.catalog)] {
            if let Some(path) = path {
                words.push(flag.into());
                words.push(path.into());
            }
        }
        let mut command = Command::new(stackforge_types::system::program());
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(address) = address {
            command.env("DOCKER_HOST", address);
        }
        command
    }
}

/// Returns the load of an engine: its running containers divided by its processors.
pub async fn load(place: &Place) -> Result<f64, String> {
    let Some(address) = &place.address else {
        return Ok(0.0);
    };
    let ask = async {
        let info = Docker::connect(Some(address)).await?.info().await?;
        Ok::<_, EngineError>(info)
    };
    let info = match tokio::time::timeout(PATIENCE, ask).await {
        Ok(info) => info.map_err(|e| e.to_string())?,
        Err(_) => {
            return Err(format!(
                "it does not answer within {} s",
                PATIENCE.as_secs()
            ));
        }
    };
    let own = |p: &Platform| [p.machine(), p.arch()].contains(&info.architecture.as_str());
    if let Some(other) = place.platforms.iter().find(|p| !own(p)) {
        return Err(format!("it runs on {}, not on {other}", info.architecture));
    }
    Ok(f64::from(info.running) / f64::from(info.cpus.max(1)))
}

/// Returns the jobs whose image an engine has; none if it does not answer.
pub async fn images(place: &Place, jobs: &[Job<'_>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let Some(address) = &place.address else {
        return found;
    };
    let ask = async {
        let docker = Docker::connect(Some(address)).await?;
        for (number, job) in jobs.iter().enumerate() {
            if let Some(id) = &job.image
                && docker.image(id).await?.is_some()
            {
                found.insert(number);
            }
        }
        Ok::<_, EngineError>(())
    };
    // Ignore an error: the engine is checked again before it gets a job.
    let _ = tokio::time::timeout(PATIENCE, ask).await;
    found
}

/// Waits until an engine has not answered for a while. Returns a message that says so.
async fn silent(place: &Place) -> String {
    let Some(address) = &place.address else {
        return std::future::pending().await;
    };
    let mut missed = 0;
    loop {
        tokio::time::sleep(ASKED).await;
        let asked = tokio::time::timeout(PATIENCE, Docker::connect(Some(address))).await;
        missed = match asked {
            Ok(Ok(_)) => 0,
            _ => missed + 1,
        };
        if missed == MISSES {
            return "it does not answer any more".to_owned();
        }
    }
}

/// Sends SIGTERM to a build, and kills it if it does not end in time.
async fn stop(child: &mut Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.start_kill();
    }
}

/// Returns the first error in a build's document.
pub fn first(document: &Value) -> Option<(&str, &str)> {
    let diagnostics = document["diagnostics"].as_array()?;
    let error = diagnostics.iter().find(|d| d["severity"] == "error")?;
    Some((error["code"].as_str()?, error["message"].as_str()?))
}

/// Returns the error if only the engine is at fault, so that another engine can build the variant.
fn engine_fault(document: &Value) -> Option<String> {
    let (_, message) = first(document)?;
    (document[ENGINE_FAULT] == true).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_the_engines_fault_goes_elsewhere() {
        let mut document = json!({ "ok": false, "diagnostics": [
            { "code": "SF0205", "severity": "warning", "message": "a doubt" },
            { "code": "SF0302", "severity": "error", "message": "what" },
        ]});
        assert_eq!(engine_fault(&document), None);
        document[ENGINE_FAULT] = true.into();
        assert_eq!(engine_fault(&document).as_deref(), Some("what"));
        assert_eq!(engine_fault(&Value::Null), None);
    }
}
