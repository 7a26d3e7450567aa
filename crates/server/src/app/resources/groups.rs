//! Resource groups: create, update, get, list, and delete with all contents.

use corro_model::arm::{Group, GroupCreateParameters, GroupProperties, GroupUpdateParameters};
use corro_model::names::{NameKind, check_location, check_name, region};
use corro_model::validate::check_tags;
use corro_model::{ApiError, GroupKey, ids::arm};
use corro_store::{AccountRecord, GroupRecord, OperationGoal, Txn};

use crate::app::App;
use crate::app::resources::deletion::mark_workspace_deleting;
use crate::app::resources::lookup::{find_active_group, group_being_deleted};
use crate::app::resources::operations;

impl App {
    /// Returns `true` if the group was created, `false` if it existed and only its tags changed.
    pub async fn create_group(&self, name: String, body: GroupCreateParameters) -> Result<(Group, bool), ApiError> {
        check_name(NameKind::Group, &name)?;
        let location = check_location(&body.location)?;
        body.tags.as_ref().map_or(Ok(()), check_tags)?;
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit(move |txn| {
            let key = GroupKey::new(&name);
            let old = txn.get::<GroupRecord>(&key);
            let record = match &old {
                Some(old) if old.deleting => return Err(group_being_deleted(&name)),
                Some(old) if region(&old.location) != location => {
                    let message = format!(
                        "Invalid resource group location '{}'. The Resource group already exists in location '{}'.",
                        body.location, old.location
                    );
                    return Err(ApiError::conflict("InvalidResourceGroupLocation", message));
                }
                Some(old) => GroupRecord { tags: body.tags, ..(**old).clone() },
                None => GroupRecord { name, location, tags: body.tags, created: now, deleting: false },
            };
            let group = app.group_response(&record);
            txn.put(key, record);
            Ok((group, old.is_none()))
        });
        commit.await
    }

    pub async fn update_group(&self, name: String, body: GroupUpdateParameters) -> Result<Group, ApiError> {
        body.tags.as_ref().map_or(Ok(()), check_tags)?;
        let app = self.clone();
        let commit = self.store.commit(move |txn| {
            let (key, mut record) = find_active_group(txn, &name)?;
            if body.tags.is_some() {
                record.tags = body.tags;
                txn.put(key, record.clone());
            }
            Ok(app.group_response(&record))
        });
        commit.await
    }

    pub fn group(&self, name: &str) -> Result<Group, ApiError> {
        let snapshot = self.snapshot();
        let record = snapshot.groups.get(&GroupKey::new(name)).ok_or_else(|| ApiError::group_not_found(name))?;
        Ok(self.group_response(record))
    }

    /// Lists groups; `tag` filters by tag name and, if given, value.
    pub fn groups(&self, tag: Option<(&str, Option<&str>)>) -> Vec<Group> {
        let matches = |group: &GroupRecord| {
            let Some((name, value)) = tag else { return true };
            let found = group.tags.as_ref().and_then(|tags| tags.get(name));
            found.is_some_and(|found| value.is_none_or(|value| value == found))
        };
        self.snapshot().groups.values().filter(|g| matches(g)).map(|g| self.group_response(g)).collect()
    }

    /// Marks the group and its contents as being deleted and returns the operation's id. The garbage collector does the
    /// rest.
    pub async fn delete_group(&self, name: String) -> Result<String, ApiError> {
        let (app, now) = (self.clone(), self.now());
        let commit = self.store.commit_relief(move |txn| {
            let subscription = &app.installation.subscription;
            let key = GroupKey::new(&name);
            if txn.get::<GroupRecord>(&key).is_none() {
                return Err(ApiError::group_not_found(&name));
            }
            txn.update::<GroupRecord>(&key, |group| group.deleting = true);
            let workspaces: Vec<_> = txn.state().workspaces_of(&key).map(|(key, _)| key.clone()).collect();
            for workspace in workspaces {
                mark_workspace_deleting(txn, &workspace, now)?;
            }
            mark_accounts_deleting(txn, &key);
            Ok(operations::begin_operation(
                &app,
                txn,
                OperationGoal::GroupGone(key),
                format!("{subscription}${name}"),
                now,
            ))
        });
        commit.await
    }

    fn group_response(&self, record: &GroupRecord) -> Group {
        let state = if record.deleting { "Deleting" } else { "Succeeded" };
        Group {
            id: arm::group(&self.installation.subscription, &record.name),
            name: record.name.clone(),
            location: record.location.clone(),
            tags: record.tags.clone(),
            properties: GroupProperties { provisioning_state: state.to_owned() },
        }
    }
}

fn mark_accounts_deleting(txn: &mut Txn, group: &GroupKey) {
    let accounts: Vec<_> =
        txn.state().accounts.iter().filter(|(_, a)| a.group == *group).map(|(name, _)| name.clone()).collect();
    for account in accounts {
        txn.update::<AccountRecord>(&account, |account| account.deleting = true);
    }
}
