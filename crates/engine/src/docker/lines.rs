//! Responses of many JSON lines, as the client library reads them.

use bollard::errors::Error as Client;
use futures_util::{Stream, StreamExt};

/// Returns the lines of a response up to its last one.
///
/// A line may arrive before its line break. The client library (bollard 0.21) then returns the line at
/// once and takes the break for the start of another line, which never comes, so a complete response
/// ends with an error. The lines before it have what a request needs. If they do not, the request fails
/// as it does for a response that ends early.
pub(super) fn whole<T>(
    answers: impl Stream<Item = Result<T, Client>>,
) -> impl Stream<Item = Result<T, Client>> {
    answers.take_while(|answer| std::future::ready(!is_rest(answer)))
}

/// Whether the response has ended with a rest that is not a line.
fn is_rest<T>(answer: &Result<T, Client>) -> bool {
    // The text is tokio's. Its decoder has no other error at the end of a stream.
    matches!(answer, Err(Client::IOError { err }) if err.to_string() == "bytes remaining on stream")
}
