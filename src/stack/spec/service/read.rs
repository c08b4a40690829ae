//! Checks the values of `app`, `image` and `validate`.

use super::raw::{RawApp, RawHealth, RawImage, RawNamedUser, RawSmokeTest, RawUserBody};
use super::{APP_HOME, App, AppChecks, Health, ImageConfig, SmokeTest, User, requirements, secret};
use crate::diag::{Diagnostic, Span, codes};
use crate::spec::At;
use crate::spec::raw::Positioned;
use crate::spec::read::{Checker, clip};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time of a health check or a smoke test.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const SMOKE_TEST: Duration = Duration::from_secs(60);
/// Directories of an image that files cannot be put into: they are mounted over, or stackforge's own.
const RESERVED: [&str; 5] = [
    "/proc",
    "/sys",
    "/dev",
    "/opt/venv",
    "/usr/share/stackforge",
];
/// Labels whose names begin so are stackforge's own.
const OWN_LABELS: &str = "io.stackforge.";
const SIGNALS: [&str; 28] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO",
];

impl Checker<'_> {
    pub(in crate::spec) fn app(&mut self, raw: Option<RawApp>) -> Option<App> {
        let raw = raw?;
        let to = match raw.to {
            Some(to) => self.image_path(&to.0)?,
            None => APP_HOME.to_owned(),
        };
        let source = raw.source.0;
        if source.value.is_empty() {
            self.bad(
                source.span,
                "`source` is empty",
                "`source: .` is the stack file's own folder",
            );
        }
        for file in raw.requirements.0.iter().map(|file| &file.0) {
            if !requirements::is_known(&file.value) {
                let text = format!("`{}` is not a file of requirements", clip(&file.value));
                let help = "name a `requirements.txt`, a `pyproject.toml` or a `uv.lock`";
                self.bad(file.span, &text, help);
            }
        }
        let of_project = |name: &str| name.ends_with(".toml") || name.ends_with(".lock");
        let has_project = raw
            .requirements
            .0
            .iter()
            .any(|file| of_project(&file.0.value));
        for (key, values) in [("groups", &raw.groups), ("extras", &raw.extras)] {
            if let Some(first) = values.first().filter(|_| !has_project) {
                let text = format!("`{key}` are those of a project, and `requirements` names none");
                let help = "add the `pyproject.toml` or `uv.lock` to `requirements`";
                self.bad(first.0.span, &text, help);
            }
        }
        let groups = raw.groups.into_iter().map(|g| g.0.value).collect();
        Some(App {
            source,
            to,
            requirements: raw.requirements.0.into_iter().map(|file| file.0).collect(),
            groups,
            extras: self.extras(raw.extras),
            install: raw.install.map(|install| install.0),
            project: None,
            asked: Vec::new(),
            files: Vec::new(),
        })
    }

    pub(in crate::spec) fn image(&mut self, raw: Option<RawImage>) -> Option<ImageConfig> {
        let raw = raw?;
        self.variables(raw.env.keys());
        let (env, env_spans) = self.env(raw.env);
        let ports = raw.ports.into_iter();
        let ports: Vec<_> = ports
            .filter_map(|port| self.parse_or(port, "ports are `8000` or `\"9000/udp\"`"))
            .collect();
        Some(ImageConfig {
            entrypoint: self.command(raw.entrypoint),
            cmd: self.command(raw.cmd),
            env,
            env_spans,
            user: raw.user.and_then(|user| self.user(user.0.0)),
            workdir: raw.workdir.and_then(|dir| self.image_path(&dir.0)),
            ports,
            volumes: self.paths(raw.volumes),
            labels: self.labels(raw.labels),
            stop_signal: raw.stop_signal.and_then(|signal| self.signal(signal.0)),
            health: raw.health.and_then(|health| self.health(health)),
            files: self.files(raw.files),
        })
    }

    pub(in crate::spec) fn checks(
        &mut self,
        imports: Vec<Positioned<String>>,
        run: Vec<RawSmokeTest>,
    ) -> AppChecks {
        let mut checks = AppChecks::default();
        for Positioned(At { value, span }) in imports {
            if is_module(&value) {
                checks.imports.push(value);
            } else {
                let text = format!("`{}` is not the name of a module", clip(&value));
                self.bad(span, &text, "write it as in `import`: `service.models`");
            }
        }
        for test in run {
            let cmd = self.program(test.cmd.0);
            let timeout = match test.timeout {
                Some(time) => self.duration(time.0),
                None => Some(SMOKE_TEST),
            };
            if let (Some(cmd), Some(timeout)) = (cmd, timeout) {
                checks.run.push(SmokeTest {
                    cmd,
                    timeout,
                    gpu: test.gpu,
                });
            }
        }
        checks
    }

    fn bad(&mut self, span: Span, text: &str, help: &str) {
        self.push(
            span,
            Diagnostic::error(codes::BAD_VALUE, text.to_owned()).help(help),
        );
    }

    fn parse_or<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        text: Positioned<String>,
        help: &str,
    ) -> Option<T> {
        let At { value, span } = text.0;
        match value.parse() {
            Ok(value) => Some(value),
            Err(e) => {
                self.bad(span, &e.to_string(), help);
                None
            }
        }
    }

    /// Returns an absolute path in the image, without `.`, `..` and repeated slashes.
    fn image_path(&mut self, path: &At<String>) -> Option<String> {
        let text = path.value.trim_end_matches('/');
        let parts = || text.split('/').skip(1);
        let why = if !path.value.starts_with('/') {
            Some("it does not begin with `/`")
        } else if parts().next().is_none() {
            Some("it is the root itself")
        } else if parts().any(|part| ["", ".", ".."].contains(&part)) {
            Some("one of its parts is empty, `.` or `..`")
        } else if text.chars().any(char::is_control) {
            Some("it has a control character")
        } else if RESERVED.iter().any(|own| {
            let below = text.strip_prefix(own);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }) {
            Some("the image has other things there")
        } else {
            None
        };
        if let Some(why) = why {
            let text = format!("`{}` is not a place for files: {why}", clip(&path.value));
            let help = format!(
                "write an absolute path such as `{APP_HOME}`, not below {}",
                RESERVED.join(", ")
            );
            self.bad(path.span, &text, &help);
            return None;
        }
        Some(text.to_owned())
    }

    fn paths(&mut self, all: Vec<Positioned<String>>) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for path in all {
            if let Some(path) = self
                .image_path(&path.0)
                .filter(|path| !paths.contains(path))
            {
                paths.push(path);
            }
        }
        paths
    }

    fn command(&mut self, words: Option<Vec<Positioned<String>>>) -> Option<Vec<String>> {
        let words = words?;
        if let Some(first) = words.first().filter(|word| word.0.value.is_empty()) {
            self.bad(
                first.0.span,
                "the program's name is empty",
                "name the program first",
            );
        }
        if let Some(word) = words.iter().find(|word| word.0.value.contains('\0')) {
            self.bad(
                word.0.span,
                "an argument has a NUL byte",
                "no program can get one",
            );
        }
        Some(words.into_iter().map(|word| word.0.value).collect())
    }

    /// As [`Self::command`], of a program that has to be there.
    fn program(&mut self, words: At<Vec<Positioned<String>>>) -> Option<Vec<String>> {
        if words.value.is_empty() {
            self.bad(
                words.span,
                "`cmd` is empty",
                "name a program: `[python, -m, service]`",
            );
            return None;
        }
        self.command(Some(words.value))
    }

    fn env(
        &mut self,
        raw: BTreeMap<Positioned<String>, Positioned<String>>,
    ) -> (BTreeMap<String, String>, BTreeMap<String, Span>) {
        let (mut env, mut spans) = (BTreeMap::new(), BTreeMap::new());
        for (Positioned(name), Positioned(value)) in raw {
            if value.value.chars().any(char::is_control) {
                let text = format!(
                    "the value of `{}` has a control character",
                    clip(&name.value)
                );
                self.bad(
                    value.span,
                    &text,
                    "put it into a file, and name that in `image.files`",
                );
            } else if name.value == "PATH"
                && !value.value.split(':').any(|dir| dir == "/opt/venv/bin")
            {
                let help = "add `/opt/venv/bin`, where Python and the libraries' programs are";
                self.bad(value.span, "`PATH` leaves the image's Python out", help);
            } else if let Some(why) = secret::why(&name.value, &value.value) {
                let text = format!("`{}` seems to be a secret: {why}", clip(&name.value));
                let secret = Diagnostic::error(codes::SECRET_IN_IMAGE, text).help(format!(
                    "leave it out, and give it to the container: `docker run -e {}`",
                    clip(&name.value)
                ));
                self.push(value.span, secret);
            }
            spans.insert(name.value.clone(), value.span);
            env.insert(name.value, value.value);
        }
        (env, spans)
    }

    fn user(&mut self, user: At<RawUserBody>) -> Option<User> {
        let help = "write a name such as `app`, `1000`, `1000:1000`, or `{ name: app, uid: 1000 }`";
        let (named, span) = match user.value {
            RawUserBody::Nothing => return None,
            RawUserBody::Mapping(named) => (named, user.span),
            RawUserBody::Text(text) => {
                if text.starts_with(|c: char| c.is_ascii_digit()) {
                    let (uid, gid) = text.split_once(':').unwrap_or((&text, &text));
                    let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse()) else {
                        let text = format!("`{}` is not a user", clip(&text));
                        self.bad(user.span, &text, help);
                        return None;
                    };
                    return self.ids(uid, gid, user.span);
                }
                let name = text;
                (
                    RawNamedUser {
                        name,
                        ..RawNamedUser::default()
                    },
                    user.span,
                )
            }
        };
        if !is_user(&named.name) {
            let text = format!("`{}` is not the name of a user", clip(&named.name));
            self.bad(span, &text, help);
            return None;
        }
        self.ids(named.uid.unwrap_or(0), named.gid.unwrap_or(0), span)?;
        Some(User::Named {
            name: named.name,
            uid: named.uid,
            gid: named.gid,
        })
    }

    /// Refuses numbers that Docker does not take, above 2^31 - 1.
    fn ids(&mut self, uid: u32, gid: u32, span: Span) -> Option<User> {
        if uid.max(gid) > i32::MAX as u32 {
            let text = "the number of a user or group is too large";
            self.bad(span, text, "the largest is 2147483647");
            return None;
        }
        Some(User::Ids { uid, gid })
    }

    fn labels(
        &mut self,
        raw: BTreeMap<Positioned<String>, Positioned<String>>,
    ) -> BTreeMap<String, String> {
        for Positioned(key) in raw.keys() {
            if key.value.is_empty() || key.value.chars().any(char::is_control) {
                let text = format!("`{}` is not the key of a label", clip(&key.value));
                self.bad(
                    key.span,
                    &text,
                    "use a key such as `org.opencontainers.image.source`",
                );
            } else if key.value.starts_with(OWN_LABELS) {
                let text = format!("labels that begin with `{OWN_LABELS}` are stackforge's own");
                self.bad(key.span, &text, "choose another key");
            }
        }
        raw.into_iter()
            .map(|(key, value)| (key.0.value, value.0.value))
            .collect()
    }

    fn signal(&mut self, signal: At<String>) -> Option<String> {
        let name = signal.value.strip_prefix("SIG").unwrap_or(&signal.value);
        let number = name.parse::<u8>().is_ok_and(|n| (1..=64).contains(&n));
        let real_time = name.strip_prefix("RTMIN+").or(name.strip_prefix("RTMAX-"));
        let real_time = real_time.is_some_and(|n| n.parse::<u8>().is_ok_and(|n| n <= 15));
        if SIGNALS.contains(&name) || real_time {
            return Some(format!("SIG{name}"));
        }
        if number {
            return Some(name.to_owned());
        }
        let text = format!("`{}` is not a signal", clip(&signal.value));
        let fault = Diagnostic::error(codes::BAD_VALUE, text);
        let names = SIGNALS
            .iter()
            .map(|name| format!("SIG{name}"))
            .collect::<Vec<_>>();
        let meant = fault.suggest(&signal.value, signal.span, names.iter().map(String::as_str));
        self.push(
            signal.span,
            meant.or_help(|| "`SIGTERM` is the usual one".to_owned()),
        );
        None
    }

    fn health(&mut self, raw: RawHealth) -> Option<Health> {
        let mut time = |text: Option<Positioned<String>>| text.and_then(|t| self.duration(t.0));
        let (interval, timeout) = (time(raw.interval), time(raw.timeout));
        let start_period = time(raw.start_period);
        if let Some(Positioned(At { value: 0, span })) = raw.retries {
            self.bad(span, "`retries` is 0", "use 1 or more");
        }
        Some(Health {
            cmd: self.program(raw.cmd.0)?,
            interval,
            timeout,
            start_period,
            retries: raw.retries.map(|n| n.0.value),
        })
    }

    fn duration(&mut self, text: At<String>) -> Option<Duration> {
        let parsed = humantime::parse_duration(&text.value).ok();
        let fits = parsed.filter(|time| (Duration::from_millis(1)..=LONGEST).contains(time));
        if fits.is_none() {
            let what = format!("`{}` is not a time", clip(&text.value));
            self.bad(
                text.span,
                &what,
                "write `500ms`, `30s`, `2m` or `1h`; at most a day",
            );
        }
        fits
    }

    fn files(
        &mut self,
        raw: BTreeMap<Positioned<String>, Positioned<String>>,
    ) -> BTreeMap<String, At<String>> {
        let mut files = BTreeMap::new();
        for (Positioned(to), Positioned(from)) in raw {
            if let Some(to) = self.image_path(&to) {
                files.insert(to, from);
            }
        }
        files
    }
}

/// Whether `useradd` takes a name, and other tools too.
fn is_user(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b);
    first && name.len() <= 32 && name.bytes().all(rest)
}

/// Whether a text is a dotted name of Python.
pub(super) fn is_module(name: &str) -> bool {
    let part = |part: &str| {
        let first = part.starts_with(|c: char| c.is_alphabetic() || c == '_');
        first && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    name.split('.').all(part)
}
