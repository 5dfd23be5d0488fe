//! Instances, their tags and their end.

use tenon_domain::id::InstanceId;
use tenon_ec2::port::{InstanceFilter, InstanceState, TagFilter, Tags, TargetCapacityType};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};

use super::{instances, launch};
use crate::difference::Difference;
use crate::server::Server;

const UNKNOWN: &str = "i-0000000000000dead";

/// Longer than an instance of the twin takes from one state to the next.
const A_WHILE: i64 = 120;

async fn one<S: Server>(server: &S) -> InstanceId {
    let world = server.world();
    let request = world.fleet(TargetCapacityType::OnDemand, 1, vec![world.launch("m5.large", 0)]);
    launch(server, &request).await.unwrap().instance_ids().remove(0)
}

fn by_id(ids: &[InstanceId]) -> InstanceFilter {
    InstanceFilter { ids: ids.to_vec(), ..InstanceFilter::default() }
}

/// From running to terminated, and terminating twice does no harm.
pub async fn an_instance_lives_and_is_terminated<S: Server>(server: &S) {
    let (ec2, id) = (server.ec2(), one(server).await);
    server.pass(A_WHILE);
    let ids = [id.clone()];
    let running = ec2.describe_instances(&by_id(&ids), None).await.unwrap().items.remove(0);
    assert_eq!(running.state, InstanceState::Running);
    assert_eq!(running.provider_id().to_string(), format!("aws:///us-east-1a/{id}"));
    assert!(running.node_name().is_ok());
    let change = ec2.terminate_instances(&ids).await.unwrap().remove(0);
    assert_eq!(change.id, id);
    assert_eq!((change.previous, change.current), (InstanceState::Running, InstanceState::ShuttingDown));
    server.pass(A_WHILE);
    let gone = instances(server).await.remove(0);
    assert_eq!(gone.state, InstanceState::Terminated);
    assert_eq!(gone.state_reason.unwrap().code, "Client.UserInitiatedShutdown");
    assert_eq!(gone.tags.get("example.com/world"), Some(&server.world().name));
    let kept = (gone.subnet.is_some(), !gone.private_ip.is_empty());
    let keeps = server.differs(Difference::AddressesOutliveInstances);
    assert_eq!(kept, (keeps, keeps));
    assert_eq!(ec2.terminate_instances(&ids).await.unwrap()[0].previous, InstanceState::Terminated);
}

/// No other instance is returned, terminated or tagged.
pub async fn one_unknown_instance_refuses_the_whole_call<S: Server>(server: &S) {
    let (ec2, id) = (server.ec2(), one(server).await);
    let ids = [id.clone(), UNKNOWN.parse().unwrap()];
    let error = ec2.describe_instances(&by_id(&ids), None).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
    let Ec2Error::NotFound { ids: missing, .. } = error else { panic!("{error:?}") };
    assert_eq!(missing, [UNKNOWN]);
    assert_eq!(ec2.terminate_instances(&ids).await.unwrap_err().class(), ErrorClass::NotFound);
    let tags = Tags::from([("k".to_owned(), "v".to_owned())]);
    let tagged = ec2.create_tags(&ids, &tags).await;
    let found = instances(server).await.remove(0);
    assert!(!found.state.is_going());
    if server.differs(Difference::UnknownInstancesAreTagged) {
        tagged.unwrap();
        assert_eq!(found.tags["k"], "v");
    } else {
        assert_eq!(tagged.unwrap_err().class(), ErrorClass::NotFound);
        assert_eq!(found.tags.get("k"), None);
    }
}

/// A tag replaces the one of its key, and is found by it.
pub async fn tags_are_set_on_instances<S: Server>(server: &S) {
    let (ec2, id) = (server.ec2(), one(server).await);
    let key = format!("tenon.dev/of-{}", server.world().name);
    for value in ["first", "second & <last>"] {
        let tags = Tags::from([(key.clone(), value.to_owned())]);
        ec2.create_tags(std::slice::from_ref(&id), &tags).await.unwrap();
    }
    for (tag, expected) in [
        (TagFilter::equals(&key, "second*"), 1),
        (TagFilter::exists(&key), 1),
        (TagFilter::equals(&key, "first"), 0),
    ] {
        let filter = InstanceFilter { tags: vec![tag], ..InstanceFilter::default() };
        let found = ec2.describe_instances(&filter, None).await.unwrap().items;
        assert_eq!(found.len(), expected, "{filter:?}");
        assert!(found.iter().all(|instance| instance.tags[&key] == "second & <last>"));
    }
    let filter = InstanceFilter {
        tags: vec![TagFilter::exists(&key)],
        states: vec![InstanceState::Terminated],
        ids: vec![],
    };
    assert_eq!(ec2.describe_instances(&filter, None).await.unwrap().items, []);
}
