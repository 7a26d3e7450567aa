//! The output of a process as a stream that is sure to end. Made by `process`, read by `lines::pump`. Never drops a byte
//! that the process wrote before it ended.
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

/// What the dead wrote is in the pipe already; this is for the runtime to notice it.
const LINGER: Duration = Duration::from_secs(1);

pub struct OutputReader<R> {
    inner: R,
    over: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl<R> OutputReader<R> {
    pub(crate) fn new(inner: R, stopper: Stopper) -> Self {
        let over = async move {
            stopper.ended().await;
            tokio::time::sleep(LINGER).await;
        };
        OutputReader { inner, over: Some(Box::pin(over)) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for OutputReader<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(result) = Pin::new(&mut this.inner).poll_read(cx, buf) {
            return Poll::Ready(result);
        }
        if let Some(over) = this.over.as_mut() {
            ready!(over.as_mut().poll(cx));
            this.over = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<R> fmt::Debug for OutputReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputReader").finish_non_exhaustive()
    }
}
