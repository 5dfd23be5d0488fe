use serde_json::Value;

use super::*;
use crate::manifest;

/// The class of the peer's test, and the certificate authority there.
const PEERS: &str = "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiFamily: Custom
  amiSelectorTerms: [{id: ami-0a}]
  subnetSelectorTerms: [{id: subnet-0a}]
  securityGroupSelectorTerms: [{id: sg-0a}]
  role: role-1
  tags: {keyTag-1: valueTag-1, keyTag-2: valueTag-2}
  context: fake-context
  detailedMonitoring: false
  associatePublicIPAddress: false
  metadataOptions: {httpEndpoint: disabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: optional}
  blockDeviceMappings:
    - deviceName: map-device-1
      rootVolume: false
      ebs:
        deleteOnTermination: false
        encrypted: false
        iops: 0
        kmsKeyID: fakeKMSKeyID
        snapshotID: fakeSnapshot
        throughput: 0
        volumeSize: 2G
        volumeType: standard
    - deviceName: map-device-2
  userData: userdata-test-1
";
const PEERS_AUTHORITY: &str = "test-ca-bundle";
const PEERS_HASH: u64 = 11_148_166_120_438_674_859;

/// The least class.
const LEAST: &str = "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-0a}]
  securityGroupSelectorTerms: [{id: sg-0a}]
  role: nodes
";
const AUTHORITY: &str = "Q0E=";
const LEAST_HASH: u64 = 16_252_625_489_442_106_632;

fn hash(manifest: &str, authority: &str) -> ClassHash {
    let [object]: [Value; 1] = manifest::objects("class.yaml", manifest).try_into().unwrap();
    let class = manifest::node_class_from_value(&object).unwrap();
    class.spec_hash.in_cluster(authority)
}

/// Checks the peer's class after a text is replaced.
fn check(from: &str, to: &str, expected: u64) {
    assert!(PEERS.contains(from), "{from}");
    assert_eq!(hash(&PEERS.replacen(from, to, 1), PEERS_AUTHORITY), ClassHash(expected), "{to}");
}

/// Checks the least class with more fields.
fn check_more(more: &str, expected: u64) {
    assert_eq!(hash(&format!("{LEAST}{more}"), AUTHORITY), ClassHash(expected), "{more}");
}

/// Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass_hash_test.go` (v1.15.1): "should match static hash".
#[test]
fn the_peers_golden_hashes() {
    for (from, to, expected) in [
        ("", "", PEERS_HASH),
        ("userdata-test-1", "userdata-test-2", 11_774_429_238_106_843_388),
        ("tags: {", "tags: {keyTag-test-3: valueTag-test-3, ", 9_327_338_697_296_909_506),
        ("fake-context", "context-2", 2_279_761_750_428_738_028),
        ("detailedMonitoring: false", "detailedMonitoring: true", 1_936_848_126_751_988_570),
        ("role: role-1", "role: role-1\n  instanceStorePolicy: RAID0", 16_697_988_646_989_909_967),
        ("associatePublicIPAddress: false", "associatePublicIPAddress: true", 16_141_801_171_825_097_963),
        ("httpEndpoint: disabled", "httpEndpoint: enabled", 14_969_742_554_812_447_671),
        ("httpProtocolIPv6: disabled", "httpProtocolIPv6: enabled", 1_581_716_956_216_772_561),
        ("httpPutResponseHopLimit: 1", "httpPutResponseHopLimit: 10", 14_046_948_658_064_232_764),
        ("httpTokens: optional", "httpTokens: required", 1_346_719_102_507_290_084),
        ("deviceName: map-device-1", "deviceName: map-device-test-3", 8_979_166_653_850_509_463),
        ("rootVolume: false", "rootVolume: true", 8_875_796_205_856_543_692),
        ("deleteOnTermination: false", "deleteOnTermination: true", 1_470_935_115_846_151_531),
        ("encrypted: false", "encrypted: true", 5_252_376_125_396_833_097),
        ("iops: 0", "iops: 10", 11_651_419_893_470_054_855),
        ("fakeKMSKeyID", "test", 1_488_385_067_008_138_755),
        ("fakeSnapshot", "test", 12_786_013_539_168_652_330),
        ("throughput: 0", "throughput: 10", 1_873_429_003_468_556_999),
        ("volumeType: standard", "volumeType: io1", 6_743_466_905_516_550_702),
        ("volumeSize: 2G", "volumeSize: 10G", 10_372_902_467_896_351_912),
        ("role: role-1", "instanceProfile: test-instance-profile", 10_323_991_363_677_716_244),
        (
            "role: role-1",
            "role: role-1\n  connectionTracking: {tcpEstablishedTimeout: 300}",
            1_619_669_030_802_245_540,
        ),
        (
            "role: role-1",
            "role: role-1\n  connectionTracking: {udpStreamTimeout: 120}",
            13_743_705_849_402_595_405,
        ),
        ("role: role-1", "role: role-1\n  connectionTracking: {udpTimeout: 45}", 17_941_926_745_862_994_490),
        (
            "role: role-1",
            "role: role-1\n  cpuOptions: {nestedVirtualization: enabled}",
            6_157_846_767_212_910_604,
        ),
    ] {
        check(from, to, expected);
    }
}

/// Source: as above. A field that only the hash knows.
#[test]
fn enclave_options_are_hashed_as_the_peer_does() {
    let [object]: [Value; 1] = manifest::objects("class.yaml", PEERS).try_into().unwrap();
    for (enabled, expected) in [(true, 7_236_976_372_141_148_292), (false, 12_655_667_132_181_172_925)] {
        let mut spec: Value = object["spec"].clone();
        spec["enclaveOptions"] = serde_json::json!({"enabled": enabled});
        let found = SpecHash::of(&spec, AmiFamily::Custom).in_cluster(PEERS_AUTHORITY);
        assert_eq!(found, ClassHash(expected), "{enabled}");
    }
}

#[test]
fn selectors_and_the_order_of_items_do_not_matter() {
    let unordered = "tags: {keyTag-2: valueTag-2, keyTag-1: valueTag-1}";
    for (from, to) in [
        ("id: ami-0a", "tags: {ami: value}"),
        ("id: subnet-0a", "tags: {subnet-test-key: subnet-test-value}"),
        ("id: sg-0a", "tags: {security-group-test-key: security-group-test-value}"),
        ("role: role-1", "role: role-1\n  capacityReservationSelectorTerms: [{id: cr-0a}]"),
        ("role: role-1", "role: role-1\n  ipPrefixCount: 2"),
        ("role: role-1", "role: role-1\n  kubelet: {}"),
        ("amiSelectorTerms: [{id: ami-0a}]", "amiSelectorTerms: [{alias: al2023@latest}]"),
        ("tags: {keyTag-1: valueTag-1, keyTag-2: valueTag-2}", unordered),
        ("blockDeviceMappings:", "blockDeviceMappings:\n    - deviceName: map-device-2"),
    ] {
        let manifest = PEERS.replacen(from, to, 1);
        // The last edit moves an item: it is there twice until its old place is left out.
        let manifest = if from == "blockDeviceMappings:" {
            manifest.replace("    - deviceName: map-device-2\n  userData", "  userData")
        } else {
            manifest
        };
        assert_ne!(manifest, PEERS, "{from}");
        assert_eq!(hash(&manifest, PEERS_AUTHORITY), ClassHash(PEERS_HASH), "{to}");
    }
}

/// The expected hashes were made with mitchellh/hashstructure v2.0.2, from the peer's types (v1.15.1).
#[test]
fn other_fields_are_hashed_as_go_does() {
    for (more, expected) in [
        ("", LEAST_HASH),
        ("  placementGroupSelector: {name: tight}", 6_278_174_202_905_181_486),
        ("  placementGroupSelector: {id: pg-0a}", 18_214_561_988_849_403_332),
        (
            "  networkInterfaces:
    - {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}
    - {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}",
            7_246_864_600_692_793_121,
        ),
        (
            "  blockDeviceMappings:
    - deviceName: /dev/xvda
      rootVolume: true
      ebs: {snapshotID: snap-0a, volumeInitializationRate: 200, volumeSize: 1Ti}",
            18_116_289_351_426_541_744,
        ),
        ("  tags: {}", 5_349_233_955_707_816_948),
        ("  blockDeviceMappings: []", 12_919_217_073_266_296_522),
        ("  userData: ''", 17_064_622_297_666_004_285),
        ("  detailedMonitoring: false", 469_970_369_115_659_773),
        (
            "  kubelet:
    maxPods: 'min(vcpus * 10, 110) > 8 && vcpus < 4 ? 8 : 110'
    kubeReserved: {memory: 1Gi, cpu: 100m}
    clusterDNS: [10.0.0.10]
    memoryThrottlingFactor: 0.9
    evictionHard: {}",
            5_013_882_831_624_118_562,
        ),
    ] {
        check_more(more, expected);
    }
    let path = LEAST.replace("role: nodes", "role: a/path/nodes");
    assert_eq!(hash(&path, AUTHORITY), ClassHash(4_662_422_388_396_465_177));
    let bottlerocket = LEAST.replace("al2023@", "bottlerocket@");
    assert_eq!(hash(&bottlerocket, AUTHORITY), ClassHash(11_663_654_718_069_346_532));
    assert_eq!(hash(LEAST, ""), ClassHash(13_426_946_136_719_322_017));
}

#[test]
fn defaults_and_the_form_of_a_quantity_do_not_matter() {
    for more in [
        "  metadataOptions: {}",
        "  metadataOptions: {httpEndpoint: enabled, httpTokens: required}",
        "  amiFamily: AL2023",
        "  userData: null",
    ] {
        check_more(more, LEAST_HASH);
    }
    let device = |size| format!("  blockDeviceMappings: [{{ebs: {{volumeSize: {size}}}}}]");
    assert_eq!(
        hash(&format!("{LEAST}{}", device("1024Gi")), AUTHORITY),
        hash(&format!("{LEAST}{}", device("1Ti")), AUTHORITY)
    );
}

#[test]
fn a_hash_reads_back_from_its_annotation() {
    let [(_, text), version] = ClassHash(LEAST_HASH).annotations();
    assert_eq!((text.as_str(), text.parse()), ("16252625489442106632", Ok(ClassHash(LEAST_HASH))));
    assert_eq!(version, ("karpenter.k8s.aws/ec2nodeclass-hash-version", "v6".to_owned()));
}

#[test]
fn an_edit_of_a_class_is_named_by_its_fields() {
    let fields = |manifest: &str| {
        let [object]: [Value; 1] = manifest::objects("class.yaml", manifest).try_into().unwrap();
        manifest::node_class_from_value(&object).unwrap().spec_hash.fields()
    };
    let check = |from: &str, to: &str, expected: &[&str]| {
        let edited = fields(&PEERS.replacen(from, to, 1));
        assert_eq!(fields(PEERS).changed_in_class(&edited), expected, "{to}");
    };
    check("subnet-0a", "subnet-0b", &[]);
    check("tags: {", "tags: {team: a, ", &["tags"]);
    check("httpTokens: optional", "httpTokens: required", &["metadataOptions"]);
    check("role: role-1", "instanceProfile: nodes", &["role", "instanceProfile"]);
    check("role: role-1", "role: role-1\n  kubelet: {maxPods: 20}", &["kubelet"]);
    check("amiFamily: Custom", "amiFamily: AL2023", &["amiFamily"]);
}
