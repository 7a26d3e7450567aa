//! Audit log of the file service. `corro-file-service` reports accounts and shares; this module adds the account's
//! resource group and writes the lines to the history in the background.

use corro_file_service::{AuditEvent, AuditSink};
use corro_model::ApiError;
use futures_util::FutureExt;

use crate::app::App;
use crate::app::history::audit::{AuditLog, AuditedRequest};

pub struct FileAuditLog {
    pub app: App,
    pub audit: AuditLog,
}

impl AuditSink for FileAuditLog {
    fn record(&self, event: AuditEvent) {
        let snapshot = self.app.snapshot();
        let Some(account) = snapshot.accounts.get(&event.account) else { return };
        let resource = format!("{}/{}/{}", account.group, event.account, event.share);
        let store = self.app.store.acting_from(&event.actor, &event.address);
        let mut noted = Box::pin(async move {
            let noted = store.commit(move |txn| {
                txn.add_history(event.action, &resource, event.detail);
                Ok::<_, ApiError>(())
            });
            // The store logs a full disk once itself.
            if let Err(error) = noted.await
                && error.status != ApiError::INSUFFICIENT_STORAGE
            {
                tracing::error!(%error, "cannot write an audit line of the file service");
            }
        });
        // Polled once, so that the store has the line at once: lines reported while the server stops must not be lost
        // with its tasks.
        if noted.as_mut().now_or_never().is_none() {
            tokio::spawn(noted);
        }
    }

    fn on_tail_read(&self, actor: &str, address: &str, path: &str) {
        self.app.telemetry.log_followers.record_read(actor, address, path, self.app.now());
    }

    fn record_refusal(&self, actor: Option<&str>, address: &str, method: &str, path: &str, status: u16, code: &str) {
        let request = AuditedRequest { caller: actor, address, method, path, status, code, tried: None };
        self.audit.record(&self.app.store, &request);
    }
}
