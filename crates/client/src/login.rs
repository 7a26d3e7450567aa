//! OAuth client-credentials login with a token cache for the life of the process. Never writes a token or the secret
//! anywhere.

use std::time::{Duration, Instant};

use bytes::Bytes;
use corro_model::Secret;
use corro_model::arm::{TOKEN_PATH, TokenError, TokenResponse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use tokio::sync::Mutex;

use crate::response::{HttpResponse, MAX_RETRY_LATER, check_status, retry_delay};
use crate::transport::Transport;
use crate::{ClientError, Profile};

/// Remaining lifetime below which a token is renewed.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Login {
    client_id: String,
    client_secret: Secret,
    /// Held while a token is fetched, so that parallel requests fetch one together.
    cached: Mutex<Option<Token>>,
}

#[derive(Debug)]
struct Token {
    value: Secret,
    usable_until: Instant,
}

impl Login {
    pub fn new(profile: &Profile) -> Login {
        Login {
            client_id: profile.client_id.clone(),
            client_secret: profile.client_secret.clone(),
            cached: Mutex::new(None),
        }
    }

    /// Token to use now. `refused` is a token that the server rejected, for instance after a restart.
    pub async fn token(&self, transport: &Transport, refused: Option<&Secret>) -> Result<Secret, ClientError> {
        let mut cached = self.cached.lock().await;
        if let Some(token) = cached.as_ref()
            && token.usable_until > Instant::now()
            && refused != Some(&token.value)
        {
            return Ok(token.value.clone());
        }
        let answer = self.fetch(transport).await?;
        let token = parse(transport.server(), answer)?;
        let value = token.value.clone();
        *cached = Some(token);
        Ok(value)
    }

    async fn fetch(&self, transport: &Transport) -> Result<HttpResponse, ClientError> {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let form = format!(
            "grant_type=client_credentials&client_id={}&resource={}&client_secret={}",
            encode(&self.client_id),
            encode(transport.server()),
            encode(self.client_secret.expose()),
        );
        let url = format!("{}{TOKEN_PATH}", transport.server());
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let form = Bytes::from(form);
        for _ in 0..MAX_RETRY_LATER {
            let answer = transport.exchange(Method::POST, &url, &headers, form.clone()).await?;
            if answer.status != StatusCode::TOO_MANY_REQUESTS {
                return Ok(answer);
            }
            tokio::time::sleep(retry_delay(&answer)).await;
        }
        transport.exchange(Method::POST, &url, &headers, form).await
    }
}

fn parse(server: &str, answer: HttpResponse) -> Result<Token, ClientError> {
    if let Ok(error) = serde_json::from_slice::<TokenError>(&answer.body) {
        // Only the first line is for users; the rest is for the server's operator.
        let reason = error.error_description.lines().next().unwrap_or_default().to_owned();
        return Err(ClientError::LoginRefused { server: server.to_owned(), reason });
    }
    // Other errors are not about the credentials.
    let answer = check_status(answer)?;
    let token: TokenResponse = serde_json::from_slice(&answer.body)
        .map_err(|source| ClientError::UnexpectedAnswer { operation: "login", source })?;
    let life = Duration::from_secs(token.expires_in.parse().unwrap_or(0));
    Ok(Token { value: token.access_token, usable_until: Instant::now() + life.saturating_sub(EXPIRY_MARGIN) })
}
