//! Changes the note, tags and pin of a job.

use corro_model::ApiError;
use corro_model::batchai::{AnnotationChanges, JobAnnotations};
use corro_store::JobRecord;
use serde_json::json;

use crate::app::App;
use crate::app::resources::lookup::{JobPath, ensure_not_deleting, find_job};

impl App {
    /// Changes the given annotations of a job; the others stay. The history names the fields, not the text.
    pub async fn annotate_job(&self, path: JobPath, changes: AnnotationChanges) -> Result<JobAnnotations, ApiError> {
        let changes = changes.normalized()?;
        let commit = self.store.commit(move |txn| {
            let (key, record) = find_job(txn.state(), &path)?;
            ensure_not_deleting(&record.provisioning, "job", &path.job)?;
            let mut annotations = record.annotations.clone();
            let changed = changes.apply(&mut annotations);
            if !changed.is_empty() {
                let stored = annotations.clone();
                txn.update::<JobRecord>(&key, |job| job.annotations = stored);
                txn.add_history("job.annotated", key.as_str(), json!({ "fields": changed }));
            }
            Ok(annotations)
        });
        commit.await
    }
}
