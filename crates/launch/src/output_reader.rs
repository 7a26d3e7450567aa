//! The output of a process as a stream that ends with the process, with secrets redacted. Never drops a byte that the process wrote before it ended.
//!
//! A pipe reads end of file only when every writer has closed it. If a descendant survives guard and cleanup (it cannot
//! be killed, or it cleared its environment and its guard was killed), the stream must end all the same.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use crate::redact::{Redactor, Secrets};
use crate::stopper::Stopper;

/// Time after the guard's end to read what is in the pipe.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Capacity of a pipe.
const READ_SIZE: usize = 64 * 1024;

pub struct OutputReader<R> {
    inner: R,
    drained: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    /// `None` for a process without secrets.
    redaction: Option<Redaction>,
}

struct Redaction {
    redactor: Redactor,
    buffer: Box<[u8]>,
    ended: bool,
}

impl<R> OutputReader<R> {
    pub(crate) fn new(inner: R, stopper: Stopper, secrets: &Secrets) -> Self {
        let drained = async move {
            stopper.ended().await;
            tokio::time::sleep(DRAIN_TIME).await;
        };
        let redaction = secrets.redactor().map(|redactor| Redaction {
            redactor,
            buffer: vec![0; READ_SIZE].into_boxed_slice(),
            ended: false,
        });
        OutputReader { inner, drained: Some(Box::pin(drained)), redaction }
    }
}

impl<R: AsyncRead + Unpin> OutputReader<R> {
    fn poll_plain(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            return Poll::Ready(result);
        }
        if let Some(drained) = self.drained.as_mut() {
            ready!(drained.as_mut().poll(cx));
            self.drained = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for OutputReader<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(mut redaction) = this.redaction.take() else { return this.poll_plain(cx, buf) };
        let polled = redaction.poll(buf, |block| this.poll_plain(cx, block));
        this.redaction = Some(redaction);
        polled
    }
}

impl Redaction {
    /// Reads until redacted bytes are available, or the stream has ended.
    fn poll(
        &mut self,
        buf: &mut ReadBuf<'_>,
        mut read: impl FnMut(&mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        while self.redactor.ready().is_empty() && !self.ended {
            let mut block = ReadBuf::new(&mut self.buffer);
            ready!(read(&mut block))?;
            match block.filled() {
                [] => {
                    self.redactor.finish();
                    self.ended = true;
                }
                bytes => self.redactor.push(bytes),
            }
        }
        let ready = self.redactor.ready();
        let n_bytes = ready.len().min(buf.remaining());
        buf.put_slice(&ready[..n_bytes]);
        self.redactor.consume(n_bytes);
        Poll::Ready(Ok(()))
    }
}

impl<R> fmt::Debug for OutputReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputReader").finish_non_exhaustive()
    }
}
