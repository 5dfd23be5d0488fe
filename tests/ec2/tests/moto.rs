//! The port's tests on moto, through the adapter.

use tenon_ec2_tests::{MotoServer, edges};

edges!(
    MotoServer::new().await,
    ignore = "needs moto: tests/servers/moto -- cargo test --workspace --test moto -- --ignored"
);
