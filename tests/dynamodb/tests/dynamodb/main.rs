//! The table's adapter for DynamoDB against a real server, DynamoDB Local as `tests/servers/dynamodb-local` starts it.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

mod commands;
mod conformance;
mod property;
mod server;
