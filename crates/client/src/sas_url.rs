//! Reads a file by its SAS URL from an offset, to follow a job's output. Sends no login, and keeps no state but the
//! URL, so that a reader can resume where it stopped.

use bytes::Bytes;
use reqwest::{Method, Response, StatusCode};

use crate::files::read;
use crate::transport::Transport;
use crate::{ClientError, Trust};

#[derive(Debug)]
pub struct FileLink {
    transport: Transport,
    url: String,
}

/// Result of a read at an offset.
#[derive(Debug)]
pub enum Reading {
    Bytes(LinkBody),
    /// End of the file, for now.
    AtEnd,
}

#[derive(Debug)]
pub struct LinkBody {
    transport: Transport,
    response: Response,
    /// Bytes before the offset that a server without range support sends anyway.
    skip: u64,
}

impl FileLink {
    pub fn new(url: &str) -> Result<FileLink, ClientError> {
        let invalid = || ClientError::InvalidServer { value: url.split('?').next().unwrap_or_default().to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        Ok(FileLink { transport: Transport::new(&format!("{scheme}://{host}"), &Trust::System)?, url: url.to_owned() })
    }

    /// The same URL with other trusted certificates than the system's.
    pub fn trusting(self, trust: &Trust) -> Result<FileLink, ClientError> {
        Ok(FileLink { transport: Transport::new(self.transport.server(), trust)?, ..self })
    }

    pub async fn read_from(&self, offset: u64) -> Result<Reading, ClientError> {
        let range = format!("bytes={offset}-");
        let response = self.transport.send(Method::GET, &self.url, &[("range", &range)], Bytes::new()).await?;
        let skip = match response.status() {
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Reading::AtEnd),
            StatusCode::PARTIAL_CONTENT => 0,
            status if status.is_success() => offset,
            _ => {
                read(&self.transport, response).await?;
                return Ok(Reading::AtEnd);
            }
        };
        Ok(Reading::Bytes(LinkBody { transport: self.transport.clone(), response, skip }))
    }
}

impl LinkBody {
    /// Next bytes; `None` at the end of this response.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(mut chunk) = self.transport.chunk(&mut self.response).await? {
            let skipped = self.skip.min(chunk.len() as u64);
            self.skip -= skipped;
            let _ = chunk.split_to(skipped as usize);
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}
