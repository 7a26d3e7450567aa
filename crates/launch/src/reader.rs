//! The output of a process as a stream that is sure to end, and that shows no secret. Made by `process`, read by
//! `lines::pump`. Never drops a byte that the process wrote before it ended.
//!
//! A pipe reports its end only when every holder has closed it. Should a leftover survive both guard and sweep (it cannot
//! be killed, or it wiped its environment and lost its guard to `kill -9`), the job must end all the same.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use crate::process::Stopper;
use crate::redact::{Redactor, Secrets};

/// What the dead wrote is in the pipe already; this is for the runtime to notice it.
const LINGER: Duration = Duration::from_secs(1);

/// As much as a pipe holds.
const READ_SIZE: usize = 64 * 1024;

pub struct OutputReader<R> {
    inner: R,
    over: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    /// Only for a process that has secrets.
    redaction: Option<Redaction>,
}

struct Redaction {
    redactor: Redactor,
    buffer: Box<[u8]>,
    ended: bool,
}

impl<R> OutputReader<R> {
    pub(crate) fn new(inner: R, stopper: Stopper, secrets: &Secrets) -> Self {
        let over = async move {
            stopper.ended().await;
            tokio::time::sleep(LINGER).await;
        };
        let redaction = secrets.redactor().map(|redactor| Redaction {
            redactor,
            buffer: vec![0; READ_SIZE].into_boxed_slice(),
            ended: false,
        });
        OutputReader { inner, over: Some(Box::pin(over)), redaction }
    }
}

impl<R: AsyncRead + Unpin> OutputReader<R> {
    fn poll_plain(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            return Poll::Ready(result);
        }
        if let Some(over) = self.over.as_mut() {
            ready!(over.as_mut().poll(cx));
            self.over = None;
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
    /// Reads until something can be shown, or the stream has ended.
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
        self.redactor.take(n_bytes);
        Poll::Ready(Ok(()))
    }
}

impl<R> fmt::Debug for OutputReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputReader").finish_non_exhaustive()
    }
}
