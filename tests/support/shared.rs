//! What the processes of a test run share: files below the target directory, made by the first that needs them.

use std::fs::File;

/// Waits until no other process holds `name`, and holds it as long as the file is open.
pub fn alone(name: &str) -> File {
    let file = open(name);
    file.lock().unwrap();
    file
}

/// A file of the target directory, with what an earlier process wrote.
pub fn open(name: &str) -> File {
    let place = super::target_tmp().join(format!("{name}.lock"));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(place).unwrap()
}
