//! The ports' tests on moto, through the adapters.
use tenon_ec2::Parameters;
use tenon_ec2_tests::{MotoServer, Server, edges, run};

edges!(
    MotoServer::new().await,
    ignore = "needs moto: tests/servers/moto -- cargo test --workspace --test moto -- --ignored"
);

/// moto has some of AWS's own parameters, as AWS told them once.
#[test]
#[ignore = "needs moto: tests/servers/moto -- cargo test --workspace --test moto -- --ignored"]
fn a_public_parameter_names_an_image() {
    run(async {
        let server = MotoServer::new().await;
        let name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64".to_owned();
        let found = server.beside().parameters(std::slice::from_ref(&name)).await.unwrap();
        assert_eq!(found.first().unwrap().name, name);
        assert!(found.first().unwrap().value.starts_with("ami-"), "{found:?}");
    });
}
