//! Answers in DynamoDB's form, as the port's errors. Throttling, conflicts and failures are tested only here, because
//! no local server gives them.

use crate::DynamoTable;
use crate::fake_http::{FakeDynamoHttp, Silence, table};
use serde_json::{Value as Json, json};
use std::error::Error;
use std::time::Duration;
use tenon_domain::id::ClusterName;
use tenon_table::{
    Commit, CommitError, CommitToken, Consistency, Expect, Item, Key, Query, SkRange, Table, TableError,
    Value, Write, WriteCondition,
};

fn error(code: &str, message: &str) -> Json {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message})
}

fn canceled(reasons: &[(&str, &str)]) -> Json {
    let mut body =
        error("TransactionCanceledException", "Transaction cancelled, please refer cancellation reasons");
    let reason = |(code, message): &(&str, &str)| match *code {
        "None" => json!({"Code": "None"}),
        code => json!({"Code": code, "Message": message}),
    };
    body["CancellationReasons"] = reasons.iter().map(reason).collect();
    body
}

fn key(sk: &str) -> Key {
    Key::new("CLUSTER#prod", sk)
}

fn put(sk: &str) -> Write {
    Write::Put { key: key(sk), item: Item::from([("x".to_owned(), Value::Null)]) }
}

fn commit(conditions: Vec<WriteCondition>, writes: Vec<Write>) -> Commit {
    Commit { token: CommitToken::parse("token").unwrap(), conditions, writes }
}

fn single() -> Commit {
    commit(vec![WriteCondition::Item { key: key("A"), expect: Expect::Absent }], vec![put("A")])
}

/// Three actions: the cluster's revision, a claim's, and a put without a condition.
fn transaction() -> Commit {
    let cluster = WriteCondition::Cluster { cluster: ClusterName::parse("prod").unwrap(), revision: 4 };
    let claim = WriteCondition::Item { key: key("A"), expect: Expect::Revision(2) };
    commit(vec![cluster, claim], vec![put("B")])
}

async fn committed(commit: &Commit, status: u16, body: Json) -> CommitError {
    table(FakeDynamoHttp::new([(status, body)])).commit(commit).await.unwrap_err()
}

async fn check_commit(commit: &Commit, status: u16, body: Json, expected: &str) {
    let found = committed(commit, status, body.clone()).await;
    assert_eq!(found.to_string(), expected, "{body}");
}

const UNAVAILABLE: &str = "the table is unavailable: the commit may have gone through";

#[tokio::test]
async fn a_single_writes_errors_say_what_to_do() {
    let lost = "lost the race for `CLUSTER#prod/A absent`: observe again";
    let throttled = "writes to `CLUSTER#prod` are throttled: send the commit again later";
    let conflict = "another transaction is changing `CLUSTER#prod/A`: send the same commit again";
    let large = "`CLUSTER#prod/A` would be too large: an item holds at most 409600 bytes, split it";
    let table: [(u16, &str, &str, &str); 14] = [
        (400, "ConditionalCheckFailedException", "The conditional request failed", lost),
        (400, "TransactionConflictException", "Transaction is ongoing for the item", conflict),
        (400, "ProvisionedThroughputExceededException", "The level of configured", throttled),
        (400, "ThrottlingException", "Throughput exceeds the current capacity of your table", throttled),
        (400, "RequestLimitExceeded", "Throughput exceeds the current throughput limit", throttled),
        (429, "SomethingNew", "slow down", throttled),
        (400, "ItemCollectionSizeLimitExceededException", "Collection size exceeded", large),
        (400, "ValidationException", "Item size to update has exceeded the maximum allowed size", large),
        (400, "ValidationException", "Item size has exceeded the maximum allowed size", large),
        (
            400,
            "ValidationException",
            "An operand in the update expression has an incorrect data type",
            "invalid commit: `CLUSTER#prod/A`: ValidationException: An operand in the update expression has an incorrect data type",
        ),
        (
            400,
            "AccessDeniedException",
            "User: x is not authorized to perform: dynamodb:PutItem",
            "invalid commit: `CLUSTER#prod/A`: access denied: AccessDeniedException: User: x is not authorized to perform: dynamodb:PutItem; allow the action for these credentials, or renew them",
        ),
        (
            400,
            "ResourceNotFoundException",
            "Requested resource not found",
            "invalid commit: `CLUSTER#prod/A`: ResourceNotFoundException: Requested resource not found",
        ),
        (500, "InternalServerError", "Internal server error", UNAVAILABLE),
        (503, "SomethingNew", "try later", UNAVAILABLE),
    ];
    for (status, code, message, expected) in table {
        check_commit(&single(), status, error(code, message), expected).await;
    }
    check_commit(&single(), 500, json!("not an error's shape"), UNAVAILABLE).await;
}

#[tokio::test]
async fn a_transactions_errors_say_what_to_do() {
    let first = "`CLUSTER#prod/REVISION`";
    let table = [
        ("IdempotentParameterMismatchException", "", "the token `token` was used for another commit within ten minutes: derive it from the content".to_owned()),
        ("TransactionInProgressException", "in progress", format!("another transaction is changing {first}: send the same commit again")),
        ("ProvisionedThroughputExceededException", "x", "writes to `CLUSTER#prod` are throttled: send the commit again later".to_owned()),
        ("ThrottlingException", "x", "writes to `CLUSTER#prod` are throttled: send the commit again later".to_owned()),
        ("ValidationException", "bad", format!("invalid commit: {first}: ValidationException: bad")),
        ("ValidationException", "Transaction payload size cannot exceed 4MB. Payload Size: 4505479", "the commit has 3 actions and 84 bytes: a transaction holds at most 100 and 4194304, cut it into slices".to_owned()),
    ];
    for (code, message, expected) in table {
        check_commit(&transaction(), 400, error(code, message), &expected).await;
    }
    check_commit(&transaction(), 500, error("InternalServerError", "x"), UNAVAILABLE).await;
}

#[tokio::test]
async fn a_canceled_transaction_is_judged_by_its_reasons() {
    const LOST: (&str, &str) = ("ConditionalCheckFailed", "The conditional request failed");
    const CONFLICT: (&str, &str) = ("TransactionConflict", "Transaction is ongoing for the item");
    const BUSY: (&str, &str) = ("ProvisionedThroughputExceeded", "The level of configured");
    const SLOW: (&str, &str) = ("ThrottlingError", "Throughput exceeds the current capacity");
    const LARGE: (&str, &str) =
        ("ValidationError", "Item size to update has exceeded the maximum allowed size");
    const WRONG: (&str, &str) = ("ValidationError", "An operand has an incorrect data type");
    const FULL: (&str, &str) = ("ItemCollectionSizeLimitExceeded", "Collection size exceeded");
    const NONE: (&str, &str) = ("None", "");
    let both =
        "lost the race for `cluster prod at revision 4`, `CLUSTER#prod/A at revision 2`: observe again";
    let claim = "lost the race for `CLUSTER#prod/A at revision 2`: observe again";
    let throttled = "writes to `CLUSTER#prod` are throttled: send the commit again later";
    let large = "`CLUSTER#prod/B` would be too large: an item holds at most 409600 bytes, split it";
    let table: [([(&str, &str); 3], &str); 10] = [
        ([LOST, LOST, NONE], both),
        ([NONE, LOST, NONE], claim),
        // A lost race wins over other reasons.
        ([CONFLICT, LOST, LARGE], claim),
        (
            [NONE, CONFLICT, NONE],
            "another transaction is changing `CLUSTER#prod/A`: send the same commit again",
        ),
        ([NONE, NONE, BUSY], throttled),
        ([CONFLICT, NONE, SLOW], throttled),
        ([NONE, CONFLICT, LARGE], large),
        ([NONE, NONE, FULL], large),
        (
            [SLOW, WRONG, NONE],
            "invalid commit: `CLUSTER#prod/A`: ValidationError: An operand has an incorrect data type",
        ),
        ([NONE, NONE, NONE], UNAVAILABLE),
    ];
    for (reasons, expected) in table {
        check_commit(&transaction(), 400, canceled(&reasons), expected).await;
    }
    check_commit(&transaction(), 400, canceled(&[]), UNAVAILABLE).await;
    let error = committed(&transaction(), 400, canceled(&[LOST, NONE, NONE])).await;
    let CommitError::LostRace { lost } = error else { panic!("{error:?}") };
    assert_eq!(lost, transaction().conditions[..1]);
}

async fn check_read(status: u16, body: Json, expected: &str) {
    let says = |found: TableError| assert_eq!(found.to_string(), expected, "{body}");
    let fresh = || table(FakeDynamoHttp::new([(status, body.clone())]));
    says(fresh().get(&key("A"), Consistency::Strong).await.unwrap_err());
    says(fresh().batch_get(&[key("A")], Consistency::Strong).await.unwrap_err());
    let query = Query::new("CLUSTER#prod", SkRange::All, Consistency::Eventual);
    says(fresh().query(&query).await.unwrap_err());
}

#[tokio::test]
async fn a_reads_errors_say_what_to_do() {
    let throttled = "reads of `CLUSTER#prod` are throttled: ask again later";
    let unavailable = "the table is unavailable";
    let table: [(u16, &str, &str, &str); 8] = [
        (400, "ProvisionedThroughputExceededException", "x", throttled),
        (400, "ThrottlingException", "x", throttled),
        (400, "RequestLimitExceeded", "x", throttled),
        (400, "ValidationException", "bad", "invalid read: ValidationException: bad"),
        (
            400,
            "AccessDeniedException",
            "no",
            "invalid read: access denied: AccessDeniedException: no; allow the action for these credentials, or renew them",
        ),
        (400, "ResourceNotFoundException", "x", "invalid read: ResourceNotFoundException: x"),
        (500, "InternalServerError", "x", unavailable),
        (503, "ServiceUnavailable", "x", unavailable),
    ];
    for (status, code, message, expected) in table {
        check_read(status, error(code, message), expected).await;
    }
}

#[tokio::test]
async fn a_batch_that_came_in_part_is_an_error() {
    let attributes = |sk: &str| json!({"pk": {"S": "CLUSTER#prod"}, "sk": {"S": sk}});
    let left = json!({"state": {"Keys": [attributes("B")]}});
    let keys = [key("A"), key("B")];
    let batch = async |items: Json| {
        let body = json!({"Responses": {"state": items}, "UnprocessedKeys": left.clone()});
        table(FakeDynamoHttp::new([(200, body)])).batch_get(&keys, Consistency::Strong).await.unwrap_err()
    };
    let busy = batch(json!([attributes("A")])).await;
    assert_eq!(busy.to_string(), "reads of `CLUSTER#prod` are throttled: ask again later");
    let full: Vec<Json> = (0..42)
        .map(|n| {
            let mut item = attributes(&n.to_string());
            item["data"] = json!({"S": "x".repeat(400_000)});
            item
        })
        .collect();
    let full = batch(full.into()).await;
    assert!(matches!(full, TableError::AnswerTooLarge { .. }), "{full:?}");
}

#[tokio::test]
async fn a_commit_is_tried_once_and_a_read_again() {
    for (status, body) in [(500, error("InternalServerError", "x")), (400, error("ThrottlingException", "x"))]
    {
        let fresh = || FakeDynamoHttp::new([(status, body.clone()), (200, json!({}))]);
        let http = fresh();
        table(http.clone()).commit(&single()).await.unwrap_err();
        assert_eq!(http.requests().len(), 1, "{status}");
        let http = fresh();
        assert!(table(http.clone()).get(&key("A"), Consistency::Strong).await.unwrap().is_none());
        assert_eq!(http.requests().len(), 2, "{status}");
    }
}

#[tokio::test]
async fn silence_ends_with_the_call_timeout() {
    let table = DynamoTable::with_call_timeout(&table(Silence).client, "state", Duration::from_millis(20));
    let found = table.commit(&single()).await.unwrap_err();
    assert_eq!(found.to_string(), UNAVAILABLE);
    let (mut chain, mut next) = (Vec::new(), found.source());
    while let Some(source) = next {
        chain.push(source.to_string());
        next = source.source();
    }
    assert!(chain.iter().any(|cause| cause.contains("timeout") || cause.contains("timed out")), "{chain:?}");
    let read = table.get(&key("A"), Consistency::Strong).await.unwrap_err();
    assert!(matches!(read, TableError::Unavailable(_)), "{read:?}");
}

/// The request of a commit: the operation and the body.
async fn sent(commit: &Commit) -> (String, Json) {
    let http = FakeDynamoHttp::new([(200, json!({}))]);
    table(http.clone()).commit(commit).await.unwrap();
    http.requests().remove(0)
}

#[tokio::test]
async fn one_write_goes_alone_and_everything_else_as_a_transaction() {
    let at = |sk: &str| json!({"pk": {"S": "CLUSTER#prod"}, "sk": {"S": sk}});
    let revision = |sk: &str| WriteCondition::Item { key: key(sk), expect: Expect::Revision(2) };
    let set = Write::Set { key: key("A"), set: Item::new(), remove: vec!["name".to_owned()] };
    let mut item = at("A");
    item["x"] = json!({"NULL": true});
    let check = async |commit: Commit, operation: &str, body: Json| {
        assert_eq!(sent(&commit).await, (format!("DynamoDB_20120810.{operation}"), body));
    };
    check(commit(vec![], vec![put("A")]), "PutItem", json!({"TableName": "state", "Item": item})).await;
    check(
        single(),
        "PutItem",
        json!({
            "TableName": "state", "Item": item, "ConditionExpression": "attribute_not_exists(#0)",
            "ExpressionAttributeNames": {"#0": "pk"},
        }),
    )
    .await;
    check(
        commit(vec![revision("A")], vec![set]),
        "UpdateItem",
        json!({
            "TableName": "state", "Key": at("A"), "ConditionExpression": "#0 = :0", "UpdateExpression": "REMOVE #1",
            "ExpressionAttributeNames": {"#0": "revision", "#1": "name"},
            "ExpressionAttributeValues": {":0": {"N": "2"}},
        }),
    )
    .await;
    check(
        commit(vec![], vec![Write::Delete { key: key("A") }]),
        "DeleteItem",
        json!({"TableName": "state", "Key": at("A")}),
    )
    .await;
    let add = Write::Add { key: key("A"), attribute: "count".to_owned(), amount: -1 };
    check(
        commit(vec![], vec![add]),
        "TransactWriteItems",
        json!({"ClientRequestToken": "token", "TransactItems": [{"Update": {
            "TableName": "state", "Key": at("A"), "UpdateExpression": "ADD #0 :0",
            "ExpressionAttributeNames": {"#0": "count"}, "ExpressionAttributeValues": {":0": {"N": "-1"}},
        }}]}),
    )
    .await;
}
