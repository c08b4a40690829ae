//! One variant's build, a process of its own: what it is told, what it tells, and when its engine is gone.

use super::super::args::{CompressionChoice, EngineChoice};
use super::super::output::ENGINE_FAULT;
use super::{Ended, Fleet, Job, Place};
use crate::build::Output;
use crate::build::fleet::End;
use crate::spec::Platform;
use serde_json::Value;
use stackforge_engine::EngineError;
use stackforge_engine::docker::Docker;
use stackforge_types::Cancel;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How often an engine is asked whether it is still there, and how often in a row it may not be.
const ASKED: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(20);
const MISSES: u32 = 3;
/// How long a build may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(15);
/// The exit of a build that was stopped.
const INTERRUPTED: i32 = 130;
/// Lines of a build that are kept for people, and bytes of its document.
const MOST_LINES: usize = 400;
const MOST_BYTES: u64 = 64 << 20;

impl Fleet<'_> {
    /// One variant's build, to its end or until its engine is gone.
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
        let told = async {
            let mut told = Vec::new();
            let Some(stderr) = stderr else { return told };
            let mut lines = BufReader::new(stderr).split(b'\n');
            while let Ok(Some(line)) = lines.next_segment().await {
                let line = String::from_utf8_lossy(&line).into_owned();
                match serde_json::from_str::<Value>(&line) {
                    Ok(event) if event.is_object() => self.show.event((name, on), &bar, event),
                    _ if told.len() < MOST_LINES => told.push(line),
                    _ => {}
                }
            }
            told
        };
        let ending = self.ended(&mut child, &self.places[place], cancel);
        let (document, told, ending) = tokio::join!(document, told, ending);
        bar.finish_and_clear();
        let exit = match ending {
            Ok(exit) => exit,
            Err(why) => return End::Lost(why),
        };
        let of_engine = self.places[place].address.is_some() && !cancel.is_cancelled();
        if let Some(why) = gone(&document).filter(|_| of_engine) {
            return End::Lost(why);
        }
        // Nothing is known of a build that did not say what it made.
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
        self.show.told(name, &told, exit != 0);
        End::Done(ended)
    }

    /// Waits for a build, which is stopped when the work is cancelled or its engine does not answer.
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
        for (flag, given) in [
            ("--no-cache", args.no_cache),
            ("--gpu", args.gpu),
            ("--plain-http", args.plain_http),
            ("--index", args.index),
            ("--offline", common.offline),
        ] {
            if given {
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
            let text = match output {
                Output::Index(reference) => format!("index:{reference}"),
                // Others were refused.
                _ => "docker".to_owned(),
            };
            word("--output");
            word(&text);
        }
        for (flag, path) in [("--store", &common.store), ("--catalog", &common.catalog)] {
            if let Some(path) = path {
                words.push(flag.into());
                words.push(path.into());
            }
        }
        // The one that runs now, even where a newer one has taken its path.
        let mut command = Command::new("/proc/self/exe");
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

/// How busy an engine is: containers that run for each of its processors.
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

/// Of the jobs, those whose image an engine has. One that does not answer has none.
pub async fn images(place: &Place, jobs: &[Job<'_>]) -> BTreeSet<usize> {
    let mut there = BTreeSet::new();
    let Some(address) = &place.address else {
        return there;
    };
    let ask = async {
        let docker = Docker::connect(Some(address)).await?;
        for (number, job) in jobs.iter().enumerate() {
            if let Some(id) = &job.image
                && docker.image(id).await?.is_some()
            {
                there.insert(number);
            }
        }
        Ok::<_, EngineError>(())
    };
    // Whether it is there at all is asked before it gets a job.
    let _ = tokio::time::timeout(PATIENCE, ask).await;
    there
}

/// Returns when an engine has not answered for a while, and says so.
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

/// Tells a build to end in order, and after a while at once.
async fn stop(child: &mut Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.start_kill();
    }
}

/// The first error that a build told.
pub fn first(document: &Value) -> Option<(&str, &str)> {
    let diagnostics = document["diagnostics"].as_array()?;
    let error = diagnostics.iter().find(|d| d["severity"] == "error")?;
    Some((error["code"].as_str()?, error["message"].as_str()?))
}

/// Why a build that ended is its engine's fault: others may build the variant.
fn gone(document: &Value) -> Option<String> {
    let (_, message) = first(document)?;
    (document[ENGINE_FAULT] == true).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_the_engines_fault_goes_elsewhere() {
        let mut told = json!({ "ok": false, "diagnostics": [
            { "code": "SF0205", "severity": "warning", "message": "a doubt" },
            { "code": "SF0302", "severity": "error", "message": "what" },
        ]});
        assert_eq!(gone(&told), None);
        told[ENGINE_FAULT] = true.into();
        assert_eq!(gone(&told).as_deref(), Some("what"));
        assert_eq!(gone(&Value::Null), None);
    }
}
