use super::*;
use proptest::prelude::*;

/// The header of a file of CPython 3.11.
const HEAD: [u8; HEADER] = *b"\xa7\x0d\r\n\x01\0\0\0SOURCEHS";

/// A file whose code has these constants, none of which has a reference number, each as marshal writes it.
fn file(constants: &[&[u8]]) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    out.push(b'c' | 0x80);
    out.extend([0; 20]);
    out.extend(b"s\x02\0\0\0\x97\0");
    out.extend([b')', constants.len() as u8]);
    out.extend(constants.concat());
    // No names, no variables, no kinds of variables.
    out.extend(b")\0)\0s\0\0\0\0");
    // File, name and qualified name.
    out.extend(b"\xfa\x06/opt/f\xda\x08<module>r\x02\0\0\0");
    out.extend(1u32.to_le_bytes());
    out.extend(b"s\0\0\0\0s\0\0\0\0");
    out
}

/// The bytes of the constants of a normal file.
fn constants(file: &[u8]) -> Vec<u8> {
    let start = HEADER + 1 + 20 + 7;
    let end = file.len() - (9 + 8 + 10 + 5 + 4 + 10);
    file[start..end].to_vec()
}

fn normal(parts: &[&[u8]]) -> Vec<u8> {
    let made = file(parts);
    let made = normalized(&made).unwrap_or_else(|e| panic!("{e}: {made:x?}"));
    assert_eq!(normalized(&made).unwrap(), made, "it stays as it is");
    constants(&made)
}

fn problem(parts: &[&[u8]]) -> Problem {
    normalized(&file(parts)).unwrap_err().problem
}

#[test]
fn an_object_is_marked_if_the_file_refers_to_it() {
    assert_eq!(normal(&[b"N", b"i\x07\0\0\0"]), b")\x02Ni\x07\0\0\0");
    // The mark of the first number of references is that of the code, which nothing refers to.
    let long = b"z\x05a b c";
    assert_eq!(normal(&[long]), b")\x01z\x05a b c");
    let twice = b")\x02\xfa\x05a b cr\0\0\0\0";
    assert_eq!(normal(&[long, long]), twice);
}

#[test]
fn equal_objects_are_one_and_texts_are_interned_if_one_of_them_is() {
    let made = normal(&[b"z\x05a.b.c", b"Z\x05a.b.c"]);
    assert_eq!(made, b")\x02\xda\x05a.b.cr\0\0\0\0");
    let pair = b")\x02i\x01\0\0\0i\x02\0\0\0";
    assert_eq!(
        normal(&[pair, pair])[2..14],
        *b"\xa9\x02i\x01\0\0\0i\x02\0\0\0"
    );
    // What is no longer than a reference is written again.
    assert_eq!(normal(&[b")\0", b")\0"]), b")\x02)\0)\0");
}

#[test]
fn a_text_of_one_character_is_interned() {
    assert_eq!(normal(&[b"z\x01{"]), b")\x01Z\x01{");
    assert_eq!(
        normal(&[b"u\x02\0\0\0\xc3\xa4"]),
        b")\x01t\x02\0\0\0\xc3\xa4"
    );
    let above = b"u\x02\0\0\0\xc4\x80";
    assert_eq!(normal(&[above])[2..], above[..]);
}

#[test]
fn the_elements_of_a_set_are_sorted() {
    let set = |elements: &[&[u8]]| {
        let count = (elements.len() as u32).to_le_bytes();
        [b">", &count[..], &elements.concat()].concat()
    };
    let one = set(&[b"z\x02ab", b"i\x01\0\0\0", b"N"]);
    let other = set(&[b"N", b"Z\x02ab", b"i\x01\0\0\0"]);
    assert_eq!(normal(&[&one])[2..7], *b">\x03\0\0\0");
    assert_eq!(
        normal(&[&one]).to_ascii_lowercase(),
        normal(&[&other]).to_ascii_lowercase()
    );
    // Sets in a set, whose own order is not that of the hash table either.
    let nested = |first: &[u8], second: &[u8]| set(&[&set(&[first, second]), b"N"]);
    let (a, b) = (b"i\x01\0\0\0", b"i\x02\0\0\0");
    assert_eq!(normal(&[&nested(a, b)]), normal(&[&nested(b, a)]));
}

#[test]
fn what_the_compiler_does_not_write_is_refused() {
    for kind in *b"0S<[{If xRf" {
        assert_eq!(problem(&[&[kind]]), Problem::Type(kind & 0x7f));
    }
    assert_eq!(problem(&[b"\xce"]), Problem::Type(0xce), "a numbered None");
    assert_eq!(
        problem(&[b":NNN"]),
        Problem::Type(b':'),
        "slices are of 3.14"
    );
    assert_eq!(problem(&[b"r\x09\0\0\0"]), Problem::Reference(9));
    assert_eq!(problem(&[b"r\0\0\0\0"]), Problem::Reference(0));
    assert_eq!(problem(&[b"\xa9\x01r\x01\0\0\0"]), Problem::Reference(1));
    assert_eq!(problem(&[b"l\x01\0\0\0\0\0"]), Problem::Number(1));
    assert_eq!(problem(&[b"l\x02\0\0\0\0\x80\x01\0"]), Problem::Number(2));
    assert_eq!(problem(&[b"s\xff\xff\xff\xff"]), Problem::Number(-1));
    assert_eq!(problem(&[b"(\xff\xff\xff\x7f"]), Problem::Short);
    assert_eq!(problem(&[&b")\x01".repeat(1000)]), Problem::Deep);
}

#[test]
fn the_file_has_to_be_whole_and_of_a_known_python() {
    let good = file(&[b"N"]);
    for end in 0..good.len() {
        assert!(normalized(&good[..end]).is_err(), "{end}");
    }
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        normalized(&bad).map(drop).unwrap_err().problem
    };
    assert_eq!(with(0, 0xa6), Problem::Magic);
    assert_eq!(with(4, 0), Problem::Flags);
    assert_eq!(with(4, 2), Problem::Flags);
    assert_eq!(with(HEADER, b'N'), Problem::Type(b'N'));
    let more = [&good[..], b"N"].concat();
    assert_eq!(normalized(&more).unwrap_err().problem, Problem::Rest);
}

/// Shared parts of parts, in sets: without references they would take 2^64 bytes.
#[test]
fn a_bomb_of_references_ends() {
    let mut constants = vec![b"\xa9\x01i\x07\0\0\0".to_vec()];
    for number in 1..64u32 {
        let to = [b"r", &number.to_le_bytes()[..]].concat();
        constants.push([b"\xa9\x02", &to[..], &to].concat());
    }
    let set = [b">\x01\0\0\0r", &64u32.to_le_bytes()[..]].concat();
    constants.push(set);
    let parts: Vec<&[u8]> = constants.iter().map(Vec::as_slice).collect();
    assert_eq!(problem(&parts), Problem::Many);
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_become_normal(bytes in proptest::collection::vec(any::<u8>(), 0..200), parts in 0u8..8) {
        let mut made = file(&[]);
        made.splice(HEADER + 28.., [&[b')', parts][..], &bytes].concat());
        if let Ok(normal) = normalized(&made) {
            prop_assert_eq!(normalized(&normal).unwrap(), normal);
        }
    }

    /// The order of a set's elements and which texts are interned change nothing.
    #[test]
    fn equal_sets_give_equal_bytes(mut texts in proptest::collection::hash_set("[a-z.]{0,6}", 0..12), flags in any::<u16>()) {
        let set = |texts: &[&String], flags: u16| {
            let mut out = [b">", &(texts.len() as u32).to_le_bytes()[..]].concat();
            for text in texts {
                let own = if flags & 1 << (text.len() % 16) == 0 { b'z' } else { b'Z' };
                out.extend([own, text.len() as u8]);
                out.extend(text.as_bytes());
            }
            out
        };
        texts.insert("x".into());
        let forward: Vec<&String> = texts.iter().collect();
        let backward: Vec<&String> = forward.iter().rev().copied().collect();
        let (one, other) = (set(&forward, flags), set(&backward, flags));
        prop_assert_eq!(normal(&[&one]), normal(&[&other]));
    }
}
