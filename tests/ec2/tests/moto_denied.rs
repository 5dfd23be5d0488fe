//! A denied call on moto, through the adapter. moto looks at everybody's rights from then on, so the other tests on the
//! same server come before this one.

use tenon_ec2::port::DryRunOutcome;
use tenon_ec2::{Denial, Ec2, Ec2Error};
use tenon_ec2_tests::{MotoServer, Server, run, run_instances_probe};

#[test]
#[ignore = "needs moto: tests/servers/moto -- cargo test --workspace --test moto --test moto_denied -- --ignored"]
fn a_dry_run_of_a_user_without_the_right_is_denied() {
    run(async {
        let server = MotoServer::new().await;
        server.ec2().create_launch_template(&server.world().template()).await.unwrap();
        let probe = run_instances_probe(server.world());
        let allowed = server.ec2().dry_run_run_instances(&probe).await.unwrap();
        assert_eq!(allowed, DryRunOutcome::WouldSucceed);

        let denied = server.denied("ec2:RunInstances").await;
        // EC2's code is `UnauthorizedOperation`, which is an outcome of the dry run. moto's is IAM's own, `AccessDenied`.
        let error = denied.dry_run_run_instances(&probe).await.unwrap_err();
        let Ec2Error::Unauthorized { action, message, .. } = error else { panic!("{error:?}") };
        assert_eq!(action, "RunInstances");
        let told = Denial::read("ec2:RunInstances", &message).to_string();
        assert!(told.contains("ec2:RunInstances") && !told.contains("user/"), "{told}");
    });
}
