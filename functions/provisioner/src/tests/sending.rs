//! The order of calls: what goes out at once, and what waits for what.

use serde_json::json;
use tenon_launching::build::BuiltLaunch;

use super::*;
use crate::execute::DueLaunch;
use crate::execute::ask::{CallQueue, DueCall, EndedCall, SendOutcome};

/// A plan of three launches: two of one template, and one of another architecture, whose template is another.
fn launches(cluster: &mut Cluster) -> (ClusterObservation, Vec<BuiltLaunch>) {
    let selecting = |name: &str, arch: &str, zone: &str| {
        let mut made = pod(name, "1500m", None);
        made["spec"]["nodeSelector"] =
            json!({"kubernetes.io/arch": arch, "topology.kubernetes.io/zone": zone});
        Arc::new(SeenPod::read(&made).unwrap())
    };
    cluster.objects.pods = vec![
        selecting("a", "amd64", "us-east-1a"),
        selecting("b", "amd64", "us-east-1b"),
        selecting("c", "arm64", "us-east-1a"),
    ];
    cluster.report().unwrap();
    let observed = block_on(observe(&cluster.world, &cluster.name, WANTS, &Caches::default())).unwrap();
    let (planned, _) = plan::plan(&cluster.name, &cluster.world.installation.region, &observed);
    (observed, planned.built.launches)
}

/// The calls that are due, by the template or the launch's zone and architecture.
fn calls<'a>(queue: &mut CallQueue<'a>) -> Vec<DueCall<'a>> {
    std::iter::from_fn(|| queue.next()).collect()
}

fn made<'a>(call: &DueCall<'a>) -> EndedCall<'a> {
    match call {
        DueCall::Make(template) => EndedCall::Made(template, Ok(())),
        DueCall::Wait | DueCall::Send(..) | DueCall::Find(_) => panic!("a launch instead of a template"),
    }
}

fn sent(calls: &[DueCall<'_>]) -> usize {
    calls.iter().filter(|call| matches!(call, DueCall::Send(..))).count()
}

#[test]
fn each_template_is_made_once_and_a_launch_waits_for_its_own_alone() {
    let mut cluster = cluster(0);
    let (observed, launches) = launches(&mut cluster);
    let due: Vec<DueLaunch<'_>> = launches.iter().map(DueLaunch::built).collect();
    assert_eq!(due.len(), 3);
    let now = cluster.world.clock.now();
    let mut queue = CallQueue::new(&cluster.name, &observed.view);
    for launch in &due {
        assert!(queue.add(launch, now).unwrap().is_none());
    }
    let templates = calls(&mut queue);
    assert_eq!((templates.len(), sent(&templates)), (2, 0), "both templates, side by side");
    assert!(queue.ended(made(&templates[0]), now).is_empty());
    let first = calls(&mut queue);
    let shared = due.iter().filter(|launch| launch.templates[0].name == due[0].templates[0].name).count();
    assert_eq!((first.len(), sent(&first)), (shared, shared), "those whose template is there");
    // The template isn't made again for a launch that comes later.
    assert!(queue.add(&due[0], now).unwrap().is_none());
    assert_eq!(sent(&calls(&mut queue)), 1);
    let DueCall::Make(template) = templates[1] else { panic!("a launch instead of a template") };
    let throttled = Ec2Error::Throttled { action: "CreateLaunchTemplate".to_owned() };
    let answered = queue.ended(EndedCall::Made(template, Err(throttled)), now);
    assert_eq!(answered.len(), 3 - shared);
    assert!(answered.iter().all(|answer| matches!(answer.outcome, SendOutcome::PutOff(at) if at > now)));
    // The next launch that names it tries again.
    let last = due.iter().find(|launch| launch.templates[0].name == template.name).unwrap();
    assert!(queue.add(last, now).unwrap().is_none());
    assert!(matches!(calls(&mut queue)[..], [DueCall::Make(_)]));
}
