use super::*;
use proptest::prelude::*;

fn read_all(bytes: &[u8]) -> Result<Vec<Vec<(String, String)>>, ControlError> {
    let mut reader = StanzaReader::new(bytes);
    let mut stanzas = Vec::new();
    while let Some(stanza) = reader.next_stanza()? {
        stanzas.push(
            stanza
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        );
    }
    Ok(stanzas)
}

#[test]
fn reads_stanzas_with_continuations() {
    let text = b"\n\nPackage: a\nDescription: short\n long\n .\n end\nEmpty:\n\n \t\nPackage:b\nFiles:\n 1 x\n 2 y";
    let stanzas = read_all(text).unwrap();
    assert_eq!(stanzas.len(), 2);
    assert_eq!(stanzas[0][1].1, "short\n long\n .\n end");
    assert_eq!(stanzas[0][2], ("Empty".into(), String::new()));
    assert_eq!(stanzas[1][0].1, "b");
    assert_eq!(
        stanzas[1][1].1.lines().map(str::trim).collect::<Vec<_>>(),
        ["", "1 x", "2 y"]
    );
    let mut reader = StanzaReader::new(&text[..]);
    assert_eq!(
        reader.next_stanza().unwrap().unwrap().get("package"),
        Some("a")
    );
}

#[test]
fn names_the_line_that_is_wrong() {
    let message = |bytes: &[u8]| read_all(bytes).unwrap_err().to_string();
    assert_eq!(
        message(b"A: 1\n\nB: 2\nnonsense\n"),
        "line 4 is neither a field nor a continuation: `nonsense`"
    );
    assert_eq!(
        message(b" first\n"),
        "line 1 is neither a field nor a continuation: ` first`"
    );
    assert_eq!(
        message(b"A: 1\na: 2\n"),
        "line 2: field `a` occurs twice in one stanza"
    );
    assert_eq!(message(b"A: 1\nB: \xff\n"), "line 2 is not UTF-8");
    let long = [b"A: ".as_slice(), &vec![b'x'; MAX_STANZA]].concat();
    assert!(matches!(
        read_all(&long),
        Err(ControlError::TooLong { line: 1 })
    ));
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in any::<String>()) {
        let _ = read_all(&bytes);
        let _ = read_all(text.as_bytes());
    }

    #[test]
    fn never_panics_near_the_grammar(
        stanza in "([A-C#]?:? ?[ab]?[\n ]){0,12}",
    ) {
        let _ = read_all(stanza.as_bytes());
    }

    #[test]
    fn gives_back_what_was_written(values in proptest::collection::vec("[a-z]{1,8}(\n [a-z]{1,8}){0,3}", 1..6)) {
        let text: String = values.iter().enumerate().map(|(i, value)| format!("F{i}: {value}\n")).collect();
        let stanzas = read_all(text.as_bytes()).unwrap();
        prop_assert_eq!(stanzas[0].iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(), values);
    }
}
