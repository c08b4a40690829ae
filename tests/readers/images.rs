//! The documents of an image: what is understood is written so that it is understood again.

use stackforge_image::oci::parse;

pub fn manifest(bytes: &[u8]) {
    let _ = parse::layout(bytes);
    if let Ok(images) = parse::saved(bytes) {
        assert!(images.len() <= bytes.len());
    }
    if let Ok(index) = parse::index("x", bytes) {
        let written = index.to_string().expect("it was read");
        assert_eq!(parse::index("x", written.as_bytes()).ok(), Some(index));
        assert!(parse::manifest("x", bytes).is_err(), "it is one of both");
    }
    if let Ok(manifest) = parse::manifest("x", bytes) {
        for layer in manifest.layers() {
            let _ = parse::compression(layer);
        }
        let written = manifest.to_string().expect("it was read");
        assert_eq!(
            parse::manifest("x", written.as_bytes()).ok(),
            Some(manifest)
        );
    }
    if let Ok((config, diff_ids)) = parse::config("x", bytes) {
        assert_eq!(config.rootfs().diff_ids().len(), diff_ids.len());
    }
}
