//! What keeps a layer from being written.

use std::io;

use stackforge_binary::source::ReadError;
use stackforge_binary::zip::ZipError;
use stackforge_types::wheel::NotAWheel;

/// Of the deepest wheel seen, four times.
pub(super) const MAX_DEPTH: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error(transparent)]
    Name(#[from] NotAWheel),
    #[error(transparent)]
    Zip(#[from] ZipError),
    #[error("wheel `{wheel}`: {fault}")]
    Wheel {
        wheel: String,
        #[source]
        fault: WheelFault,
    },
    #[error("wheel `{wheel}`, file `{file}`: {source}; fetch the wheel again")]
    Content {
        wheel: String,
        file: String,
        source: ReadError,
    },
    #[error(
        "wheels `{first}` and `{second}` bring different files as `/{path}`: drop it from one of them, or keep one wheel only"
    )]
    Collision {
        first: String,
        second: String,
        path: String,
    },
    #[error(
        "`/{path}` of wheel `{wheel}` has to be a folder for `/{below}` of wheel `{other}`: drop one of them"
    )]
    FileAndFolder {
        wheel: String,
        path: String,
        other: String,
        below: String,
    },
    #[error(
        "`{0}` is no folder to install to: give an absolute path without `.`, `..` or empty parts"
    )]
    Folder(String),
    #[error(
        "`{0}` cannot stand in a script's first line: give an absolute path of up to 120 bytes without blanks"
    )]
    Python(String),
    #[error("`{pattern}` is no pattern for files to drop: {why}")]
    Pattern { pattern: String, why: String },
    #[error("the layer cannot be written")]
    Write(#[source] io::Error),
    #[error("a thread that compresses the layer ended early")]
    Thread,
}

/// Why a wheel cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelFault {
    #[error("it has {0} `.dist-info` folders in place of one")]
    DistInfo(usize),
    #[error("its metadata are those of `{0}`, so it was renamed or damaged")]
    OtherName(String),
    #[error("it lacks `{0}`")]
    Missing(String),
    #[error("its `{file}` is longer than {limit} bytes")]
    TooLong { file: String, limit: u64 },
    #[error("its `{0}` is not UTF-8")]
    NotText(String),
    #[error("its format is version `{0}`, where 1 is what is known")]
    Version(String),
    #[error("its `{0}` lies more than {MAX_DEPTH} folders deep")]
    Deep(String),
    #[error(
        "its RECORD gives `{file}` the digest `{stated}`, which is not SHA-256, SHA-384 or SHA-512"
    )]
    Weak { file: String, stated: String },
    #[error("line {line} of its RECORD is {why}")]
    Record { line: usize, why: &'static str },
    #[error(
        "its RECORD states `{stated}` for `{file}`, which is `{found}`: it is damaged or was altered"
    )]
    Lies {
        file: String,
        stated: String,
        found: String,
    },
    #[error("its entry point `{0}` is {1}")]
    EntryPoint(String, &'static str),
    #[error("`{0}` is in no part of an installation that is known")]
    Part(String),
    #[error("its files `{0}` and `{1}` differ in case only")]
    Case(String, String),
    #[error("its files `{0}` and `{1}` are both to be `/{2}`")]
    Twice(String, String, String),
    #[error("it would install `/{0}`, a name with a meaning of its own in a layer")]
    Reserved(String),
    #[error("it would replace the interpreter `/{0}`")]
    Interpreter(String),
}

impl WheelFault {
    pub(super) fn of(self, wheel: &str) -> LayerError {
        LayerError::Wheel {
            wheel: wheel.to_owned(),
            fault: self,
        }
    }
}
