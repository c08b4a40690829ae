//! Podman's build output, turned into BuildKit's status messages.
//!
//! Podman answers `/build` with the text that `podman build` prints: `STEP 2/4: RUN …`, what the
//! step printed, `--> Using cache …`, `--> 0123abcd` or `COMMIT …`. In comes that text, out go the same
//! [`StatusResponse`]s that BuildKit would send, so that one fold serves both. The text cannot be
//! told from a step's own output for certain: a step that prints such a line is believed.

use bollard_buildkit_proto::google::protobuf::Timestamp;
use bollard_buildkit_proto::moby::buildkit::v1::{StatusResponse, Vertex, VertexLog};

use super::build_log::Lines;

#[derive(Default)]
pub(super) struct Classic {
    lines: Lines,
    step: Option<Vertex>,
}

impl Classic {
    /// What `text` tells, arriving at `now`.
    pub(super) fn feed(&mut self, text: &str, now: Timestamp) -> StatusResponse {
        let mut status = StatusResponse::default();
        for line in self.lines.push(text.as_bytes()) {
            self.line(&line, now, &mut status);
        }
        status
    }

    /// The build is over: the step that ran last is done, or failed with `error`.
    pub(super) fn close(&mut self, error: Option<&str>, now: Timestamp) -> StatusResponse {
        let mut status = StatusResponse::default();
        if let Some(line) = self.lines.rest() {
            self.line(&line, now, &mut status);
        }
        self.end(now, false, error, &mut status);
        status
    }

    fn line(&mut self, line: &str, now: Timestamp, status: &mut StatusResponse) {
        if let Some(name) = step_name(line) {
            self.end(now, false, None, status);
            let vertex = Vertex {
                digest: name.clone(),
                name,
                started: Some(now),
                ..Vertex::default()
            };
            status.vertexes.push(vertex.clone());
            self.step = Some(vertex);
        } else if line.starts_with("--> ") {
            self.end(now, line.starts_with("--> Using cache"), None, status);
        } else if line.starts_with("COMMIT ") {
            self.end(now, false, None, status);
        } else if let Some(step) = &self.step {
            status.logs.push(VertexLog {
                vertex: step.digest.clone(),
                timestamp: Some(now),
                stream: 1,
                msg: format!("{line}\n").into_bytes(),
            });
        }
    }

    fn end(
        &mut self,
        now: Timestamp,
        cached: bool,
        error: Option<&str>,
        status: &mut StatusResponse,
    ) {
        if let Some(step) = self.step.take() {
            status.vertexes.push(Vertex {
                completed: Some(now),
                cached,
                error: error.unwrap_or_default().to_owned(),
                ..step
            });
        }
    }
}

/// `STEP 2/4: RUN x` → `[2/4] RUN x`; `[1/2] STEP 2/4: RUN x` → `[stage-0 2/4] RUN x`.
fn step_name(line: &str) -> Option<String> {
    let (stage, rest) = match line.strip_prefix('[') {
        Some(rest) => {
            let (stage, rest) = rest.split_once("] ")?;
            let number: u32 = stage.split_once('/')?.0.parse().ok()?;
            (format!("stage-{} ", number.checked_sub(1)?), rest)
        }
        None => (String::new(), line),
    };
    let (count, instruction) = rest.strip_prefix("STEP ")?.split_once(": ")?;
    let (number, total) = count.split_once('/')?;
    (number.parse::<u32>().is_ok() && total.parse::<u32>().is_ok())
        .then(|| format!("[{stage}{count}] {instruction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // What Podman 4.3.1 printed.
    const TEXT: &str = "[1/2] STEP 1/2: FROM localhost/a AS build
[1/2] STEP 2/2: RUN echo one
one
--> 0a1b2c3d4e5
[2/2] STEP 1/2: FROM localhost/a
[2/2] STEP 2/2: COPY --from=build /f /g
--> Using cache 8899aabb
COMMIT localhost/out:1
--> 8899aabbccd
Successfully tagged localhost/out:1
8899aabbccdd
";

    #[test]
    fn text_becomes_vertices_and_logs() {
        for size in [1, 7, TEXT.len()] {
            let mut classic = Classic::default();
            let now = Timestamp::default();
            let mut vertices = Vec::new();
            let mut logs = Vec::new();
            for chunk in TEXT.as_bytes().chunks(size) {
                let status = classic.feed(std::str::from_utf8(chunk).unwrap(), now);
                vertices.extend(status.vertexes);
                logs.extend(status.logs);
            }
            let ended: Vec<(&str, bool)> = vertices
                .iter()
                .filter(|vertex| vertex.completed.is_some())
                .map(|vertex| (vertex.name.as_str(), vertex.cached))
                .collect();
            assert_eq!(
                ended,
                [
                    ("[stage-0 1/2] FROM localhost/a AS build", false),
                    ("[stage-0 2/2] RUN echo one", false),
                    ("[stage-1 1/2] FROM localhost/a", false),
                    ("[stage-1 2/2] COPY --from=build /f /g", true),
                ]
            );
            assert_eq!(logs.len(), 1);
            assert_eq!(logs[0].msg, b"one\n");
        }
    }

    #[test]
    fn the_last_step_takes_the_error() {
        let mut classic = Classic::default();
        let now = Timestamp::default();
        classic.feed("STEP 1/2: FROM a\nSTEP 2/2: RUN exit 3\n", now);
        let error = "building at STEP \"RUN exit 3\": while running runtime: exit status 3";
        let status = classic.close(Some(error), now);
        assert_eq!(status.vertexes.len(), 1);
        assert_eq!(status.vertexes[0].name, "[2/2] RUN exit 3");
        assert_eq!(status.vertexes[0].error, error);
    }
}
