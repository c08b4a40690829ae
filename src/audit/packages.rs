//! The package that a file of an environment belongs to, by its path.

/// Returns the package of a path: the folder below site-packages, or the object itself if that folder is a
/// namespace package or there is none.
pub fn package(path: &str) -> &str {
    let below = below(path);
    match below.split_once('/') {
        Some((top, _)) if !["nvidia", "..", "lib", "usr", "opt"].contains(&top) => top,
        _ => path,
    }
}

/// Returns a path relative to site-packages or to the wheel.
pub fn below(path: &str) -> &str {
    let places = ["-packages/", ".whl/"].into_iter();
    let mut below = places.filter_map(|place| Some(path.rsplit_once(place)?.1));
    below.next().unwrap_or(path)
}

/// Whether a path is in the wheels of CUDA's own libraries.
pub fn of_nvidia(path: &str) -> bool {
    below(path).starts_with("nvidia/")
}
