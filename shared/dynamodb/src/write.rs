//! Commits: a single write or a transaction, by the port's `form_of`.
//!
//! Invariant: a commit that the port refuses isn't sent.

use crate::DynamoTable;
use crate::classify::{transaction_error, write_error};
use crate::expression::Placeholders;
use crate::value::{item_attributes, key_attributes};
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem, Update};
use tenon_table::action::{CommitForm, WriteAction, WriteEffect, form_of};
use tenon_table::{Commit, CommitError, Item};

impl DynamoTable {
    pub(crate) async fn send(&self, commit: &Commit) -> Result<(), CommitError> {
        let actions = commit.actions()?;
        match (form_of(&actions), actions.as_slice()) {
            (CommitForm::Single, [action]) => self.send_single(commit, action).await,
            (CommitForm::Single | CommitForm::Transaction, _) => {
                self.send_transaction(commit, &actions).await
            }
        }
    }

    async fn send_single(&self, commit: &Commit, action: &WriteAction<'_>) -> Result<(), CommitError> {
        match action.effect {
            WriteEffect::Put(item) => self.send_put(commit, action, item).await,
            WriteEffect::Delete => self.send_delete(commit, action).await,
            WriteEffect::Set { .. } | WriteEffect::Add { .. } | WriteEffect::BumpRevision { .. } => {
                self.send_update(commit, action).await
            }
            WriteEffect::Check => self.send_transaction(commit, std::slice::from_ref(action)).await,
        }
    }

    async fn send_put(
        &self,
        commit: &Commit,
        action: &WriteAction<'_>,
        item: &Item,
    ) -> Result<(), CommitError> {
        let said = ActionExpressions::of(action);
        let item = item_attributes(&action.key, item);
        let request = self.client.put_item().table_name(&self.name).set_item(Some(item));
        let request = request
            .set_condition_expression(said.condition)
            .set_expression_attribute_names(said.placeholders.names())
            .set_expression_attribute_values(said.placeholders.into_values());
        request.send().await.map(drop).map_err(|error| write_error(error, commit, action))
    }

    async fn send_update(&self, commit: &Commit, action: &WriteAction<'_>) -> Result<(), CommitError> {
        let said = ActionExpressions::of(action);
        let request = self.client.update_item().table_name(&self.name);
        let request = request
            .set_key(Some(key_attributes(&action.key)))
            .set_update_expression(said.update)
            .set_condition_expression(said.condition)
            .set_expression_attribute_names(said.placeholders.names())
            .set_expression_attribute_values(said.placeholders.into_values());
        request.send().await.map(drop).map_err(|error| write_error(error, commit, action))
    }

    async fn send_delete(&self, commit: &Commit, action: &WriteAction<'_>) -> Result<(), CommitError> {
        let said = ActionExpressions::of(action);
        let request = self.client.delete_item().table_name(&self.name);
        let request = request
            .set_key(Some(key_attributes(&action.key)))
            .set_condition_expression(said.condition)
            .set_expression_attribute_names(said.placeholders.names())
            .set_expression_attribute_values(said.placeholders.into_values());
        request.send().await.map(drop).map_err(|error| write_error(error, commit, action))
    }

    async fn send_transaction(
        &self,
        commit: &Commit,
        actions: &[WriteAction<'_>],
    ) -> Result<(), CommitError> {
        let items: Result<Vec<_>, _> = actions.iter().map(|action| self.transaction_item(action)).collect();
        let items = items.map_err(|error| CommitError::Invalid { message: error.to_string() })?;
        let request = self.client.transact_write_items();
        let request = request.client_request_token(commit.token.as_str()).set_transact_items(Some(items));
        request.send().await.map(drop).map_err(|error| transaction_error(error, commit, actions))
    }

    fn transaction_item(&self, action: &WriteAction<'_>) -> Result<TransactWriteItem, BuildError> {
        let said = ActionExpressions::of(action);
        let item = TransactWriteItem::builder();
        let names = said.placeholders.names();
        let values = said.placeholders.into_values();
        let key = || Some(key_attributes(&action.key));
        Ok(match action.effect {
            WriteEffect::Check => item.condition_check(
                ConditionCheck::builder()
                    .table_name(&self.name)
                    .set_key(key())
                    .set_condition_expression(said.condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build()?,
            ),
            WriteEffect::Put(attributes) => item.put(
                Put::builder()
                    .table_name(&self.name)
                    .set_item(Some(item_attributes(&action.key, attributes)))
                    .set_condition_expression(said.condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build()?,
            ),
            WriteEffect::Delete => item.delete(
                Delete::builder()
                    .table_name(&self.name)
                    .set_key(key())
                    .set_condition_expression(said.condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .build()?,
            ),
            WriteEffect::Set { .. } | WriteEffect::Add { .. } | WriteEffect::BumpRevision { .. } => item
                .update(
                    Update::builder()
                        .table_name(&self.name)
                        .set_key(key())
                        .set_update_expression(said.update)
                        .set_condition_expression(said.condition)
                        .set_expression_attribute_names(names)
                        .set_expression_attribute_values(values)
                        .build()?,
                ),
        }
        .build())
    }
}

/// An action as expressions.
struct ActionExpressions {
    placeholders: Placeholders,
    condition: Option<String>,
    update: Option<String>,
}

impl ActionExpressions {
    fn of(action: &WriteAction<'_>) -> Self {
        let mut placeholders = Placeholders::default();
        let condition = action.condition.map(|condition| placeholders.condition(condition));
        let update = match action.effect {
            WriteEffect::Check | WriteEffect::Put(_) | WriteEffect::Delete => None,
            WriteEffect::BumpRevision { next } => Some(placeholders.bump(next)),
            WriteEffect::Set { set, remove } => Some(placeholders.update(set, remove)),
            WriteEffect::Add { attribute, amount } => Some(placeholders.add(attribute, amount)),
        };
        Self { placeholders, condition, update }
    }
}
