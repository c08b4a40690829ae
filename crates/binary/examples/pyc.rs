//! Writes the same code as the same bytes: `pyc FILE...` replaces each byte code file by its normal form.

use stackforge_binary::pyc::normalized;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args_os().skip(1) {
        match normalized(&std::fs::read(&path)?) {
            Ok(bytes) => std::fs::write(&path, bytes)?,
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
    Ok(())
}
