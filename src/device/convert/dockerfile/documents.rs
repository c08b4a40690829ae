//! Here-documents behind a command: `cat <<EOF > FILE`.

/// Empties the lines of here-documents that a command in front of `<<NAME` reads, which the parser takes for
/// instructions. Documents that are a whole `RUN` or `COPY` stay: the parser has them.
pub(super) fn without(text: &str) -> String {
    let escape = if text
        .lines()
        .next()
        .is_some_and(|l| l.replace(' ', "") == "#escape=`")
    {
        '`'
    } else {
        '\\'
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < lines.len() {
        let first = at;
        while at + 1 < lines.len() && goes_on(lines[at], escape) {
            at += 1;
        }
        at += 1;
        lines[first..at].iter().for_each(|line| out.push_str(line));
        for name in documents(&lines[first..at]) {
            let end = |l: &&str| l.trim_start_matches('\t').trim_end_matches(['\r', '\n']) == name;
            let Some(length) = lines[at..].iter().position(end) else {
                break;
            };
            (0..=length).for_each(|_| out.push('\n'));
            at += length + 1;
        }
    }
    out
}

/// Whether an instruction goes on in the next line.
fn goes_on(line: &str, escape: char) -> bool {
    let line = line.trim();
    line.ends_with(escape) && !line.starts_with('#')
}

/// Returns the names of documents that a `RUN` reads behind a command.
fn documents(lines: &[&str]) -> Vec<String> {
    let mut words = lines.iter().flat_map(|l| l.split_whitespace());
    let run = words
        .next()
        .is_some_and(|word| word.eq_ignore_ascii_case("RUN"));
    let mut words = words.skip_while(|w| w.starts_with("--"));
    let whole = words.next().is_none_or(|word| word.starts_with("<<"));
    if !run || whole {
        return Vec::new();
    }
    let name = |word: &str| {
        let word = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let name = word.strip_prefix("<<")?;
        let name = name
            .strip_prefix('-')
            .unwrap_or(name)
            .trim_matches(['"', '\'']);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
    };
    words.filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_programs_are_emptied_and_others_stay() {
        let text = "FROM x\nRUN cat <<A > /a \\\n && sh <<'B'\nIMPORT a\nA\nFROM b\nB\nRUN <<C\nls\nC\nRUN echo $((1<<2))\n";
        let same = "FROM x\nRUN cat <<A > /a \\\n && sh <<'B'\n\n\n\n\nRUN <<C\nls\nC\nRUN echo $((1<<2))\n";
        assert_eq!(without(text), same);
        assert_eq!(
            without("RUN cat <<A\nx\n"),
            "RUN cat <<A\nx\n",
            "without an end"
        );
    }

    proptest::proptest! {
        #[test]
        fn lines_keep_their_numbers(text in "(RUN |FROM |cat |<<A|A|\n|\\\\|<<-'B'|B|x){0,30}") {
            let lines = |text: &str| text.matches('\n').count();
            let out = without(&text);
            proptest::prop_assert!(lines(&out) >= lines(&text) && lines(&out) <= lines(&text) + 1);
        }
    }
}
