//! Bodies of answers that are read before they are handed on: which ones, how far, and how they reach
//! the caller whole all the same.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{HeaderMap, StatusCode, header};
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

use super::Profile;

/// Which bodies of answers are read before they are handed on, and how far.
///
/// Some providers say in the body that a call was refused, or for how long: GraphQL answers 200 with
/// an error inside. Read is the body of an answer where its profile looks for words at that status
/// ([`Profile::reads_body`]) and that is text, JSON or XML, not compressed and no stream of events.
/// All others stream as they come.
///
/// What was read is held until the answer is handed on, and then comes first; the rest streams. So the
/// caller has its answer when the body, or as much as may be read, has come, and not with the headers
/// already. A body that breaks off gives what had come, and then its error.
///
/// ```
/// use paceline::http::ReadBodies;
///
/// // And what a model says of the tokens it took.
/// let bodies = ReadBodies::up_to(64 * 1024).also(|status, _| status == 200);
/// ```
#[derive(Clone)]
#[must_use = "hand it to a layer or a middleware"]
pub struct ReadBodies {
    bytes_max: usize,
    also: Option<Arc<Also>>,
}

type Also = dyn Fn(StatusCode, &HeaderMap) -> bool + Send + Sync;

/// A body whose beginning may have been read ahead; it comes whole all the same: the data, in the same
/// frames, the trailers, and an error where there was one.
pub struct ReadAhead<B: Body> {
    /// What was read ahead and is not handed on yet.
    read: VecDeque<Frame<Bytes>>,
    rest: Rest<B, B::Error>,
}

/// What comes behind that.
enum Rest<B, E> {
    Streams(Pin<Box<B>>),
    Failed(E),
    Over,
}

impl ReadBodies {
    /// Up to so many bytes of each; 64 KiB is plenty, for words are looked for in the first and the
    /// last four. Of a longer body the beginning is looked at.
    pub fn up_to(bytes: usize) -> Self {
        Self { bytes_max: bytes, also: None }
    }

    /// Also those of answers that `also` chooses by status and headers, whatever their type: for what
    /// [`Pacer::settle`](super::Pacer::settle) looks for.
    pub fn also(
        mut self,
        also: impl Fn(StatusCode, &HeaderMap) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.also = Some(Arc::new(also));
        self
    }

    /// How far to read the body of this answer; `None` for not at all.
    pub(crate) fn of(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        profile: &Profile,
    ) -> Option<usize> {
        let reads = profile.reads_body(status.as_u16()) && may_hold_words(headers)
            || self.also.as_ref().is_some_and(|also| also(status, headers));
        reads.then_some(self.bytes_max)
    }
}

impl fmt::Debug for ReadBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBodies").field("bytes_max", &self.bytes_max).finish_non_exhaustive()
    }
}

/// Whether a body is text, JSON or XML as it stands. A stream of events may go on for ever.
fn may_hold_words(headers: &HeaderMap) -> bool {
    let is_plain = headers.get(header::CONTENT_ENCODING).is_none_or(|it| it == "identity");
    let kind = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = kind.and_then(|it| it.split(';').next()).unwrap_or_default();
    let kind = kind.trim_ascii().to_ascii_lowercase();
    let (family, name) = kind.split_once('/').unwrap_or_default();
    let is_stream = name.contains("stream");
    let is_words = family == "text"
        || ["json", "xml"].contains(&name)
        || name.ends_with("+json")
        || name.ends_with("+xml")
        || name.starts_with("x-amz-json");
    is_plain && is_words && !is_stream
}

impl<B: Body> ReadAhead<B> {
    /// A body of which nothing was read.
    pub(crate) fn none(body: B) -> Self {
        Self { read: VecDeque::new(), rest: Rest::Streams(Box::pin(body)) }
    }

    /// Reads until `bytes_max` have come, or the body is over or broke off; hands out what has come.
    pub(crate) async fn read(body: B, bytes_max: usize) -> (Self, Bytes) {
        let mut it = Self::none(body);
        let mut bytes = 0;
        while bytes < bytes_max
            && let Rest::Streams(body) = &mut it.rest
        {
            match std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
                Some(Ok(frame)) => {
                    let frame = in_bytes(frame);
                    let length = frame.data_ref().map(Bytes::len);
                    bytes += length.unwrap_or_default();
                    // Nothing is lost with empty ones, of which there may be no end.
                    if length != Some(0) {
                        it.read.push_back(frame);
                    }
                }
                Some(Err(error)) => it.rest = Rest::Failed(error),
                None => it.rest = Rest::Over,
            }
        }
        let seen = it.seen();
        (it, seen)
    }

    /// What was read, in one piece.
    fn seen(&self) -> Bytes {
        let mut data = self.read.iter().filter_map(Frame::data_ref);
        match (data.next(), data.next()) {
            (None, _) => Bytes::new(),
            // Mostly all of it comes at once, and need not be copied.
            (Some(one), None) => one.clone(),
            (Some(first), Some(second)) => {
                let mut whole = BytesMut::from(&first[..]);
                whole.extend_from_slice(second);
                data.for_each(|data| whole.extend_from_slice(data));
                whole.freeze()
            }
        }
    }
}

/// What is in `Bytes` already is not copied.
fn in_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

/// The body is in a box of its own, and the error is never pinned.
impl<B: Body> Unpin for ReadAhead<B> {}

impl<B: Body> Body for ReadAhead<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let it = self.get_mut();
        if let Some(frame) = it.read.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Rest::Streams(body) = &mut it.rest {
            let frame = ready!(body.as_mut().poll_frame(context));
            return Poll::Ready(frame.map(|frame| frame.map(in_bytes)));
        }
        match std::mem::replace(&mut it.rest, Rest::Over) {
            Rest::Failed(error) => Poll::Ready(Some(Err(error))),
            _ => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.rest {
            Rest::Streams(body) => body.is_end_stream(),
            Rest::Failed(_) => false,
            Rest::Over => true,
        };
        is_over && self.read.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.rest {
            Rest::Streams(body) => body.size_hint(),
            Rest::Failed(_) => SizeHint::new(),
            Rest::Over => SizeHint::with_exact(0),
        };
        let read: usize = self.read.iter().filter_map(|it| it.data_ref().map(Bytes::len)).sum();
        let read = read as u64;
        let mut whole = SizeHint::new();
        whole.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            whole.set_upper(upper.saturating_add(read));
        }
        whole
    }
}

impl<B: Body> fmt::Debug for ReadAhead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead").field("frames_read", &self.read.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    /// Yields its frames and waits in between, is over or breaks off.
    struct Frames {
        frames: VecDeque<Result<Frame<Bytes>, &'static str>>,
        waits: bool,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            self.waits = !self.waits;
            if self.waits {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.frames.pop_front())
        }
    }

    /// What stands for a frame in a test.
    fn frame(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
        match text {
            "broken" => Err("broken"),
            "trailers" => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-end", HeaderValue::from_static("1"));
                Ok(Frame::trailers(trailers))
            }
            data => Ok(Frame::data(Bytes::from_static(data.as_bytes()))),
        }
    }

    async fn all<B: Body<Data = Bytes, Error = &'static str> + Unpin>(mut body: B) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let frame =
                std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            all.push(match frame {
                None => return all,
                Some(Err(error)) => error.to_owned(),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => String::from_utf8_lossy(&data).into_owned(),
                    Err(_) => "trailers".to_owned(),
                },
            });
        }
    }

    #[tokio::test]
    async fn however_far_it_was_read_a_body_comes_whole() {
        for texts in [
            &[][..],
            &["one"],
            &["one", "two", "three", "trailers"],
            &["one", "two", "broken"],
            &["broken"],
        ] {
            for bytes_max in 0..14 {
                let frames = texts.iter().copied().map(frame).collect();
                let frames = Frames { frames, waits: false };
                let (body, seen) = ReadAhead::read(frames, bytes_max).await;
                let data: String = texts
                    .iter()
                    .filter(|it| !["broken", "trailers"].contains(it))
                    .copied()
                    .collect();
                let seen = std::str::from_utf8(&seen).unwrap();
                assert!(data.starts_with(seen), "{texts:?} {bytes_max} {seen}");
                assert!(seen.len() >= bytes_max.min(data.len()), "{texts:?} {bytes_max} {seen}");
                assert!(seen.len() < bytes_max + 5, "{texts:?} {bytes_max} {seen}");
                let hint = body.size_hint();
                assert!(hint.lower() >= seen.len() as u64);
                assert!(hint.upper().is_none_or(|upper| upper == data.len() as u64));
                assert!(!body.is_end_stream() || data.is_empty());
                assert_eq!(all(body).await, texts, "{bytes_max}");
            }
        }
    }

    #[tokio::test]
    async fn empty_frames_are_not_kept() {
        let mut frames: VecDeque<_> = (0..1_000).map(|_| frame("")).collect();
        frames.push_back(frame("end"));
        let (body, seen) = ReadAhead::read(Frames { frames, waits: false }, 10).await;
        assert_eq!((body.read.len(), &seen[..]), (1, &b"end"[..]));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
    }

    #[test]
    fn words_are_looked_for_in_words() {
        for (kind, encoding, may) in [
            ("application/json; charset=utf-8", None, true),
            ("application/graphql-response+json", None, true),
            ("application/x-amz-json-1.1", None, true),
            ("Text/Plain", Some("identity"), true),
            ("text/xml", None, true),
            ("application/json", Some("gzip"), false),
            ("text/event-stream", None, false),
            ("application/stream+json", None, false),
            ("application/x-ndjson", None, false),
            ("application/octet-stream", None, false),
            ("image/png", None, false),
            ("", None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            if let Some(encoding) = encoding {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            }
            assert_eq!(may_hold_words(&headers), may, "{kind} {encoding:?}");
        }
    }
}
