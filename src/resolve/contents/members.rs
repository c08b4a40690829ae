//! Reads members of a wheel where it lies: on disk, or at an address by ranges.
//!
//! Only the archive's directory and the members that are asked for are fetched, neighbours together. No digest vouches for
//! a range.

use stackforge_binary::source::{FileSource, Source, Sparse};
use stackforge_binary::zip::{Archive, Member};
use stackforge_transfer::fetch::{FetchError, Fetcher, PartialContent};
use std::ops::Range;
use std::path::PathBuf;

/// Bytes at the end of a wheel that are fetched first: the directory of most.
const TAIL: u64 = 64 << 10;
/// Longest directory that is fetched, in bytes. The largest known has 2 MB.
const LONGEST_DIRECTORY: u64 = 32 << 20;
/// Most bytes of one request for several members.
const CHUNK: u64 = 16 << 20;
/// Most bytes between two members that are fetched together.
const GAP: u64 = 64 << 10;

/// Where a wheel is.
pub(super) enum Place {
    Disk(PathBuf),
    /// A URL, which may have credentials.
    Address(String),
}

impl Place {
    /// Returns the place of a URL or of an absolute path.
    pub fn at(address: &str) -> Option<Self> {
        if address.starts_with("https://") || address.starts_with("http://") {
            return Some(Self::Address(address.to_owned()));
        }
        let url = reqwest::Url::parse(address).ok();
        let path = match url {
            Some(url) => url.to_file_path().ok()?,
            None => PathBuf::from(address),
        };
        path.is_absolute().then_some(Self::Disk(path))
    }
}

/// Reads the members that `choose` returns, in the order of the file, each with `take`.
pub(super) async fn read<T>(
    file: &str,
    place: Place,
    fetcher: &Fetcher,
    choose: impl for<'a> FnOnce(&'a Archive) -> (T, Vec<&'a Member>),
    mut take: impl FnMut(&mut T, &Archive, &Member, &mut dyn Source),
) -> Result<T, String> {
    match place {
        Place::Disk(path) => {
            let mut source = FileSource::open(&path).map_err(|e| e.to_string())?;
            let archive = Archive::read(file, &mut source).map_err(|e| e.to_string())?;
            let (mut out, wanted) = choose(&archive);
            for member in wanted {
                take(&mut out, &archive, member, &mut source);
            }
            Ok(out)
        }
        Place::Address(url) => {
            let archive = directory(file, &url, fetcher).await?;
            let (mut out, wanted) = choose(&archive);
            for (range, members) in chunks(&wanted) {
                let found = fetcher.range(&url, range).await;
                let mut source = sparse(found)?;
                for member in members {
                    take(&mut out, &archive, member, &mut source);
                }
            }
            Ok(out)
        }
    }
}

fn sparse(found: Result<Option<PartialContent>, FetchError>) -> Result<Sparse, String> {
    let found = found.map_err(|e| e.to_string())?;
    let found = found.ok_or("its server has no ranges")?;
    let mut source = Sparse::new(found.size);
    source.keep(found.offset, &found.bytes);
    Ok(source)
}

/// Fetches the end of a wheel until its directory is in it.
async fn directory(file: &str, url: &str, fetcher: &Fetcher) -> Result<Archive, String> {
    let mut length = TAIL;
    loop {
        let mut source = sparse(fetcher.suffix(url, length).await)?;
        match Archive::read(file, &mut source) {
            Ok(archive) => return Ok(archive),
            Err(_) if length < source.size() && length < LONGEST_DIRECTORY => length *= 8,
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Groups members into ranges.
fn chunks<'m>(members: &[&'m Member]) -> Vec<(Range<u64>, Vec<&'m Member>)> {
    let mut out: Vec<(Range<u64>, Vec<&Member>)> = Vec::new();
    for member in members {
        match out.last_mut() {
            Some((range, together))
                if member.offset <= range.end.saturating_add(GAP)
                    && member.end().saturating_sub(range.start) <= CHUNK =>
            {
                range.end = member.end();
                together.push(member);
            }
            _ => out.push((member.offset..member.end(), vec![member])),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_addresses_or_absolute_paths() {
        assert!(matches!(
            Place::at("https://i.test/x.whl"),
            Some(Place::Address(_))
        ));
        assert!(matches!(Place::at("file:///a/x.whl"), Some(Place::Disk(_))));
        assert!(matches!(Place::at("/a/x.whl"), Some(Place::Disk(_))));
        assert!(Place::at("x.whl").is_none());
    }
}
