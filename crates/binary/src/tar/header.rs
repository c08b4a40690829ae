//! What a stream says of a member before its content.

/// A member without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Relative path without empty parts, `.` and `..`. Empty for the root directory only.
    pub path: String,
    /// The member's kind of file.
    pub kind: MemberKind,
    /// Size in bytes of the content that follows. Zero for everything but a file.
    pub size: u64,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Number of the owner.
    pub uid: u64,
    /// Number of the group.
    pub gid: u64,
    /// Modification time in whole seconds since 1970, rounded down.
    pub mtime: i64,
    /// Target of a link: for a hard link, a path like the one above; for a symbolic link, the text in
    /// the stream.
    pub link: Option<String>,
    /// Extended attributes. Each name occurs once.
    pub xattrs: Vec<(String, Vec<u8>)>,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
}

/// Kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// A regular file.
    File,
    /// A second name of an earlier member.
    HardLink,
    /// A symbolic link.
    SymLink,
    /// A directory.
    Directory,
    /// A character device.
    Character,
    /// A block device.
    Block,
    /// A named pipe.
    Fifo,
}
