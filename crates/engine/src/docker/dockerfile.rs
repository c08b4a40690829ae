//! Finds the line of the Dockerfile for an engine's name of a step.
//!
//! BuildKit numbers the steps of a stage (`[build 2/5] RUN …`) and gives no line. This module repeats
//! its count: one for a FROM that names an image, one for each RUN, COPY, ADD and WORKDIR. Podman
//! counts every instruction, including those that it adds at the end for labels. If the count or the
//! instruction does not match, the answer is none rather than a wrong line.

struct Stage {
    name: Option<String>,
    /// Whether FROM is counted. It is not for `scratch` and earlier stages.
    counts_from: bool,
    from_line: u32,
    /// Keyword and line of each counted instruction.
    counted: Vec<(String, u32)>,
    /// Keyword and line of every instruction, starting with FROM.
    all: Vec<(String, u32)>,
}

impl Stage {
    fn total(&self) -> usize {
        self.counted.len() + usize::from(self.counts_from)
    }
}

/// Returns the line, counted from 1, at which the instruction of `step` begins.
pub(super) fn line_of(dockerfile: &str, step: &str) -> Option<u32> {
    let (bracket, instruction) = step.strip_prefix('[')?.split_once(']')?;
    let words: Vec<&str> = bracket.split_whitespace().collect();
    let (count, before) = words.split_last()?;
    let (number, total) = count.split_once('/')?;
    let (number, total): (usize, usize) = (number.parse().ok()?, total.parse().ok()?);
    let keyword = instruction.split_whitespace().next()?;

    let stages = stages(dockerfile);
    // In `[linux/arm64 build 2/5]`, the stage is the last word before the count.
    let stage = match before.last() {
        Some(name) => stages
            .iter()
            .find(|stage| stage.name.as_deref() == Some(name))
            .or_else(|| stages.get(name.strip_prefix("stage-")?.parse::<usize>().ok()?))?,
        None => stages.first()?,
    };
    let place = number.checked_sub(1)?;
    let (found, line) = if stage.total() != total {
        let (found, line) = stage.all.get(place).filter(|_| total >= stage.all.len())?;
        (found.as_str(), *line)
    } else if stage.counts_from && place == 0 {
        ("FROM", stage.from_line)
    } else {
        let (found, line) = stage.counted.get(place - usize::from(stage.counts_from))?;
        (found.as_str(), *line)
    };
    found.eq_ignore_ascii_case(keyword).then_some(line)
}

fn stages(dockerfile: &str) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for (line, words) in instructions(dockerfile) {
        let Some(keyword) = words.first().map(|word| word.to_ascii_uppercase()) else {
            continue;
        };
        match keyword.as_str() {
            "FROM" => {
                let mut rest = words[1..].iter().filter(|word| !word.starts_with("--"));
                let image = rest.next().map(String::as_str).unwrap_or_default();
                let name = match (rest.next(), rest.next()) {
                    (Some(word), Some(name)) if word.eq_ignore_ascii_case("as") => {
                        Some(name.to_ascii_lowercase())
                    }
                    _ => None,
                };
                let of_stage = stages
                    .iter()
                    .any(|stage| stage.name.as_deref() == Some(&image.to_ascii_lowercase()));
                stages.push(Stage {
                    name,
                    counts_from: image != "scratch" && !of_stage,
                    from_line: line,
                    counted: Vec::new(),
                    all: vec![(keyword, line)],
                });
            }
            _ => {
                if let Some(stage) = stages.last_mut() {
                    if ["RUN", "COPY", "ADD", "WORKDIR"].contains(&keyword.as_str()) {
                        stage.counted.push((keyword.clone(), line));
                    }
                    stage.all.push((keyword, line));
                }
            }
        }
    }
    stages
}

/// Returns the instructions with the line at which they begin. Comments are dropped and continued lines
/// joined.
fn instructions(dockerfile: &str) -> Vec<(u32, Vec<String>)> {
    let mut found = Vec::new();
    let mut open: Option<(u32, Vec<String>)> = None;
    for (number, text) in (1..).zip(dockerfile.lines()) {
        let text = text.trim();
        if text.starts_with('#') || text.is_empty() {
            continue;
        }
        let (part, continued) = match text.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (text, false),
        };
        let (_, words) = open.get_or_insert_with(|| (number, Vec::new()));
        words.extend(part.split_whitespace().map(str::to_owned));
        if !continued {
            found.extend(open.take());
        }
    }
    found.extend(open);
    found
}

#[cfg(test)]
mod tests {
    use super::line_of;

    const DOCKERFILE: &str = "# a comment
ARG BASE=debian
FROM --platform=linux/arm64 $BASE AS Build
ENV A=b
RUN --mount=type=cache,target=/c \\
    # not the end
    echo a && \\

    echo RUN fake
WORKDIR /w
copy a b

FROM scratch
COPY --from=build /a /a
FROM build AS last
RUN echo last
";

    #[test]
    fn steps_are_found_in_their_stage() {
        for (step, line) in [
            ("[build 1/4] FROM docker.io/library/debian", Some(3)),
            ("[build 2/4] RUN --mount=type=cache,target=/c echo", Some(5)),
            ("[build 3/4] WORKDIR /w", Some(10)),
            ("[linux/arm64 build 4/4] COPY a b", Some(11)),
            ("[stage-1 1/1] COPY --from=build /a /a", Some(14)),
            ("[last 1/1] RUN echo last", Some(16)),
        ] {
            assert_eq!(line_of(DOCKERFILE, step), line, "{step}");
        }
    }

    #[test]
    fn a_lone_stage_has_no_name_and_counts_may_be_padded() {
        let mut text = String::from("FROM a\n");
        text.extend((0..10).map(|n| format!("RUN {n}\n")));
        assert_eq!(line_of(&text, "[ 2/11] RUN 0"), Some(2));
        assert_eq!(line_of(&text, "[11/11] RUN 9"), Some(11));
    }

    #[test]
    fn podman_counts_every_instruction() {
        for (step, line) in [
            ("[build 1/5] FROM 0123 AS Build", Some(3)),
            ("[build 3/5] RUN echo", Some(5)),
            ("[stage-1 2/2] COPY --from=build /a /a", Some(14)),
            // Two labels of the request follow this instruction.
            ("[last 2/4] RUN echo last", Some(16)),
            ("[last 3/4] LABEL a=b", None),
        ] {
            assert_eq!(line_of(DOCKERFILE, step), line, "{step}");
        }
    }

    #[test]
    fn what_does_not_agree_has_no_line() {
        for step in [
            "[build 2/3] RUN x",
            "[build 2/4] COPY x",
            "[build 0/4] RUN x",
            "[build 9/4] RUN x",
            "[other 1/1] RUN x",
            "[internal] load build context",
            "exporting to image",
            "[] RUN x",
            "[stage-99999999999999999999 1/1] RUN",
        ] {
            assert_eq!(line_of(DOCKERFILE, step), None, "{step}");
        }
    }
}
