//! An engine's answer of many JSON lines, as the client library reads it.

use bollard::errors::Error as Client;
use futures_util::{Stream, StreamExt};

/// Returns the lines of an answer up to its last one.
///
/// A line may arrive before its line break. The client library (bollard 0.21) gives the line at once and
/// takes the break for the start of another, which never comes: an error at the end of a whole answer.
/// What a request needs of its answer is in the lines before; without them the request fails as it does
/// where an answer ends early.
pub(super) fn whole<T>(
    answers: impl Stream<Item = Result<T, Client>>,
) -> impl Stream<Item = Result<T, Client>> {
    answers.take_while(|answer| std::future::ready(!is_rest(answer)))
}

/// Whether the answer ended, and what is left of it is not a line.
fn is_rest<T>(answer: &Result<T, Client>) -> bool {
    // The words are tokio's, of whose decoder this is the only error at an end.
    matches!(answer, Err(Client::IOError { err }) if err.to_string() == "bytes remaining on stream")
}
