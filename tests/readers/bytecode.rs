//! A byte code file's normal form, which is its own normal form.

use stackforge_binary::pyc::normalized;

pub fn pyc(bytes: &[u8]) {
    let Ok(normal) = normalized(bytes) else {
        return;
    };
    assert_eq!(normal[..16], bytes[..16], "the header stays");
    let again = normalized(&normal).expect("a normal form can be read");
    assert!(again == normal, "a normal form stays");
}
