//! Splits a stream of bytes into lines, unchanged and in bounded memory.

/// Longest piece in bytes; a longer line is split into pieces of this size.
pub(crate) const LONGEST: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// Passes each line that `bytes` completes to `line`, without its line end.
    pub(crate) fn push(&mut self, bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ended) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            let mut text = text;
            while self.pending.len() + text.len() > LONGEST {
                let (now, later) = text.split_at(LONGEST - self.pending.len());
                self.pending.extend(now);
                line(&self.pending);
                self.pending.clear();
                text = later;
            }
            self.pending.extend(text);
            if ended {
                line(&self.pending);
                self.pending.clear();
            }
        }
    }

    /// Passes the last line to `line` if it has no line end.
    pub(crate) fn end(&mut self, line: &mut dyn FnMut(&[u8])) {
        if !self.pending.is_empty() {
            line(&self.pending);
            self.pending.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for part in parts {
            lines.push(part, &mut |l| out.push(l.to_vec()));
        }
        lines.end(&mut |l| out.push(l.to_vec()));
        out
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        let long = vec![b'x'; 2 * LONGEST + 5];
        let sizes: Vec<usize> = lines(&[&long, b"\ny"]).iter().map(Vec::len).collect();
        assert_eq!(sizes, [LONGEST, LONGEST, 5, 1]);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200), at in 0usize..200) {
            let at = at.min(bytes.len());
            let whole = lines(&[&bytes]);
            prop_assert_eq!(&lines(&[&bytes[..at], &bytes[at..]]), &whole);
            let mut joined = whole.join(&b'\n');
            if bytes.last() == Some(&b'\n') { joined.push(b'\n'); }
            prop_assert_eq!(joined, bytes);
        }
    }
}
