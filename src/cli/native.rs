//! What a native build takes from the command line and the environment besides the stack.

use super::args::CompressionChoice;
use super::output::Failure;
use stackforge_build::native::{EPOCH, native};
use stackforge_image::pack::Compression;
use stackforge_plan::Native;
use stackforge_stack::diag::{Diagnostic, codes};

/// Returns what native layers depend on besides the stack.
pub(super) fn of_native(compression: CompressionChoice) -> Result<Native, Failure> {
    let compression = match compression {
        CompressionChoice::Gzip => Compression::GZIP,
        CompressionChoice::Zstd => Compression::ZSTD,
    };
    Ok(native(compression, epoch()?))
}

/// Returns the time of files and documents in an image, in seconds since 1970.
///
/// # Errors
/// SOURCE_DATE_EPOCH is not such a number. It is not ignored, since another time gives another image.
pub(super) fn epoch() -> Result<u32, Failure> {
    let Some(asked) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else {
        return Ok(EPOCH);
    };
    let text = asked.to_string_lossy();
    text.parse().map_err(|_| {
        let short: String = text.chars().take(40).collect();
        let what = format!("SOURCE_DATE_EPOCH is `{short}`, which is not a time");
        let help = format!("it is a number of seconds since 1970, at most {}", u32::MAX);
        Failure::of(Diagnostic::error(codes::BAD_VALUE, what).help(help))
    })
}
