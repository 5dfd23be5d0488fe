//! Reads: one item, a batch, a page.
//!
//! Decides the meaning of an incomplete batch. The port decides which reads are valid.

use crate::DynamoTable;
use crate::classify::{answer_error, read_error};
use crate::expression::Placeholders;
use crate::range::{SortKeyBounds, bounds_of};
use crate::value::{SdkAttributes, item_of, key_attributes, key_of};
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use std::collections::BTreeMap;
use tenon_table::port::check_batch;
use tenon_table::value::item_size;
use tenon_table::{Consistency, Item, Key, Query, QueryOrder, QueryPage, TableError, key, limits};

impl DynamoTable {
    pub(crate) async fn read_item(
        &self,
        key: &Key,
        consistency: Consistency,
    ) -> Result<Option<Item>, TableError> {
        key.check().map_err(|message| TableError::Invalid { message })?;
        let request = self.reads.get_item().table_name(&self.name).set_key(Some(key_attributes(key)));
        let answer = request
            .consistent_read(is_strong(consistency))
            .send()
            .await
            .map_err(|error| read_error(error, &key.pk))?;
        let found = answer.item.map(item_of).transpose();
        Ok(found.map_err(|error| answer_error(&error, &key.pk))?.map(|(_, item)| item))
    }

    pub(crate) async fn read_batch(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        check_batch(keys)?;
        let pk = keys.first().map_or("", |key| key.pk.as_str());
        let asked = KeysAndAttributes::builder()
            .set_keys(Some(keys.iter().map(key_attributes).collect()))
            .consistent_read(is_strong(consistency))
            .build()
            .map_err(|error| TableError::Invalid { message: error.to_string() })?;
        let request = self.reads.batch_get_item().request_items(&self.name, asked);
        let answer = request.send().await.map_err(|error| read_error(error, pk))?;
        let found = answer.responses.unwrap_or_default().into_values().flatten().map(item_of);
        let items: BTreeMap<Key, Item> =
            found.collect::<Result<_, _>>().map_err(|error| answer_error(&error, pk))?;
        let left = answer.unprocessed_keys.unwrap_or_default().into_values().flat_map(|left| left.keys);
        let left: Vec<SdkAttributes> = left.collect();
        if left.is_empty() { Ok(items) } else { Err(partial_error(keys, &items, &left)) }
    }

    pub(crate) async fn read_page(&self, query: &Query) -> Result<QueryPage, TableError> {
        query.check()?;
        let bounds = bounds_of(&query.range);
        if query.start_after.as_ref().is_some_and(|start| bounds.end_at(start, query.order)) {
            return Ok(QueryPage { items: Vec::new(), next: None });
        }
        let mut said = Placeholders::default();
        let pk = (said.name(key::PK), said.value(AttributeValue::S(query.pk.clone())));
        let mut condition = format!("{} = {}", pk.0, pk.1);
        match bounds {
            SortKeyBounds::All => {}
            SortKeyBounds::Empty => return Ok(QueryPage { items: Vec::new(), next: None }),
            SortKeyBounds::Prefix(prefix) => {
                let (sk, prefix) = (said.name(key::SK), said.value(AttributeValue::S(prefix)));
                condition.push_str(&format!(" AND begins_with({sk}, {prefix})"));
            }
            SortKeyBounds::Between(first, last) => {
                let sk = said.name(key::SK);
                let first = said.value(AttributeValue::S(first));
                let last = said.value(AttributeValue::S(last));
                condition.push_str(&format!(" AND {sk} BETWEEN {first} AND {last}"));
            }
        }
        let start = query.start_after.as_ref().map(|sk| key_attributes(&Key::new(query.pk.as_str(), sk)));
        let limit = query.limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
        let request = self.reads.query().table_name(&self.name).key_condition_expression(condition);
        let request = request
            .set_expression_attribute_names(said.names())
            .set_expression_attribute_values(said.into_values())
            .set_exclusive_start_key(start)
            .set_limit(limit)
            .scan_index_forward(query.order == QueryOrder::Ascending)
            .consistent_read(is_strong(query.consistency));
        let answer = request.send().await.map_err(|error| read_error(error, &query.pk))?;
        let wrong = |error| answer_error(&error, &query.pk);
        let items = answer.items.unwrap_or_default().into_iter().map(item_of);
        let items: Vec<(Key, Item)> = items.collect::<Result<_, _>>().map_err(wrong)?;
        let next = answer.last_evaluated_key.map(|last| key_of(&last)).transpose().map_err(wrong)?;
        Ok(QueryPage { next: next.map(|key| key.sk).or_else(|| full_page_end(query, &items)), items })
    }
}

fn is_strong(consistency: Consistency) -> bool {
    match consistency {
        Consistency::Strong => true,
        Consistency::Eventual => false,
    }
}

/// The end of a page that the limit filled. The port always returns it; DynamoDB Local doesn't if the range's bound
/// is the last item's key.
fn full_page_end(query: &Query, items: &[(Key, Item)]) -> Option<String> {
    let limit = usize::try_from(query.limit?).unwrap_or(usize::MAX);
    let (last, _) = items.last()?;
    (items.len() >= limit).then(|| last.sk.clone())
}

/// Why a batch is incomplete: the answer is full, so that no further item of any size fits, or the table is
/// throttled.
fn partial_error(keys: &[Key], items: &BTreeMap<Key, Item>, left: &[SdkAttributes]) -> TableError {
    let bytes: u64 = items.iter().map(|(key, item)| item_size(key, item)).sum();
    if bytes.saturating_add(limits::ITEM_BYTES) > limits::BATCH_BYTES {
        let what = format!("the batch of {} keys, of which {} came,", keys.len(), items.len());
        return TableError::AnswerTooLarge { what, limit: format!("{} bytes", limits::BATCH_BYTES) };
    }
    let pk = left.first().and_then(|key| key_of(key).ok()).map(|key| key.pk);
    TableError::Throttled { pk: pk.or_else(|| Some(keys.first()?.pk.clone())).unwrap_or_default() }
}
