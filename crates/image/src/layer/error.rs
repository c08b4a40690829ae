//! Why a layer could not be written.

use std::io;

use stackforge_binary::source::ReadError;
use stackforge_binary::zip::ZipError;
use stackforge_types::wheel::NotAWheel;

/// Four times the depth of the deepest wheel seen.
pub(super) const MAX_DEPTH: usize = 64;

/// Why a layer could not be made of these wheels.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A file is not named as a wheel.
    #[error(transparent)]
    Name(#[from] NotAWheel),
    /// A wheel is not a sound archive.
    #[error(transparent)]
    Zip(#[from] ZipError),
    /// A wheel is not what the wheel format asks for.
    #[error("wheel `{wheel}`: {fault}")]
    Wheel {
        /// The wheel's file name.
        wheel: String,
        /// What is wrong with it.
        #[source]
        fault: WheelFault,
    },
    /// A file of a wheel is damaged.
    #[error("wheel `{wheel}`, file `{file}`: {source}; fetch the wheel again")]
    Content {
        /// The wheel's file name.
        wheel: String,
        /// The file in it.
        file: String,
        /// What is wrong with it.
        source: ReadError,
    },
    /// Two wheels install one file with different content.
    #[error(
        "wheels `{first}` and `{second}` bring different files as `/{path}`: drop it from one of them, or keep one wheel only"
    )]
    Collision {
        /// The first wheel.
        first: String,
        /// The second wheel.
        second: String,
        /// The file in the image.
        path: String,
    },
    /// One wheel installs a file where another needs a folder.
    #[error(
        "`/{path}` of wheel `{wheel}` has to be a folder for `/{below}` of wheel `{other}`: drop one of them"
    )]
    FileAndFolder {
        /// The wheel with the file.
        wheel: String,
        /// The file in the image.
        path: String,
        /// The wheel with the folder.
        other: String,
        /// What lies in the folder.
        below: String,
    },
    /// A folder of the [`Scheme`](super::Scheme) is not a plain absolute path.
    #[error(
        "`{0}` is not a folder to install to: give an absolute path without `.`, `..` or empty parts"
    )]
    Folder(String),
    /// The interpreter is not a plain absolute path that a script can name.
    #[error(
        "`{0}` cannot stand in a script's first line: give an absolute path of up to 120 bytes without blanks"
    )]
    Python(String),
    /// A pattern of [`Install::drop`](super::Install::drop) does not parse.
    #[error("`{pattern}` is not a pattern for files to drop: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// The output failed.
    #[error("the layer cannot be written")]
    Write(#[source] io::Error),
    /// A thread ended without its work, which is a fault of this program.
    #[error("a thread that compresses the layer ended early")]
    Thread,
}

/// Why a wheel cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelFault {
    /// How many there are.
    #[error("it has {0} `.dist-info` folders in place of one")]
    DistInfo(usize),
    /// The name that the metadata have.
    #[error("its metadata are those of `{0}`, so it was renamed or damaged")]
    OtherName(String),
    /// A file that every wheel has.
    #[error("it lacks `{0}`")]
    Missing(String),
    /// A file of the metadata exceeds the bound.
    #[error("its `{file}` is longer than {limit} bytes")]
    TooLong {
        /// The file.
        file: String,
        /// The bound in bytes.
        limit: u64,
    },
    /// A file of the metadata.
    #[error("its `{0}` is not UTF-8")]
    NotText(String),
    /// `Wheel-Version`, as written.
    #[error("its format is version `{0}`, where 1 is what is known")]
    Version(String),
    /// The file.
    #[error("its `{0}` lies more than {MAX_DEPTH} folders deep")]
    Deep(String),
    /// RECORD has a digest weaker than SHA-256.
    #[error(
        "its RECORD gives `{file}` the digest `{stated}`, which is not SHA-256, SHA-384 or SHA-512"
    )]
    Weak {
        /// The file.
        file: String,
        /// The digest, as written.
        stated: String,
    },
    /// RECORD is not CSV of paths, digests and sizes.
    #[error("line {line} of its RECORD is {why}")]
    Record {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// RECORD states another digest than the file has.
    #[error(
        "its RECORD states `{stated}` for `{file}`, which is `{found}`: it is damaged or was altered"
    )]
    Lies {
        /// The file.
        file: String,
        /// The digest in RECORD.
        stated: String,
        /// The digest of the file.
        found: String,
    },
    /// The entry point as written, and what is wrong with it.
    #[error("its entry point `{0}` is {1}")]
    EntryPoint(String, &'static str),
    /// A folder below `.data` that the wheel format does not know.
    #[error("`{0}` is in no part of an installation that is known")]
    Part(String),
    /// A file system that ignores case would lose one.
    #[error("its files `{0}` and `{1}` differ in case only")]
    Case(String, String),
    /// Both names, and the one path.
    #[error("its files `{0}` and `{1}` are both to be `/{2}`")]
    Twice(String, String, String),
    /// A whiteout, or a file of the layer's own format.
    #[error("it would install `/{0}`, a name with a meaning of its own in a layer")]
    Reserved(String),
    /// The interpreter's path, without its first slash.
    #[error("it would replace the interpreter or a folder of its environment by `/{0}`")]
    Interpreter(String),
    /// The path of a file in another distribution's `.dist-info`.
    #[error("it would install `/{0}`, metadata of another distribution")]
    Foreign(String),
}

impl WheelFault {
    pub(super) fn in_wheel(self, wheel: &str) -> LayerError {
        LayerError::Wheel {
            wheel: wheel.to_owned(),
            fault: self,
        }
    }
}
