//! The port's tests on the region twin, in this process.

use tenon_ec2_tests::{TwinServer, edges};

edges!(TwinServer::new());
