//! The requirement algebra: its laws, and the tables of Karpenter's own tests (kubernetes-sigs/karpenter
//! `pkg/scheduling/requirement_test.go`, `requirements_test.go`).
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use proptest::prelude::*;
use tenon_domain::labels;
use tenon_domain::requirement::{
    Conflict, NodeSelectorRequirement, Operator, Requirement, RequirementError, Requirements, UndefinedKeys,
};

const KEY: &str = "key";

/// The intersection table; its first column and row are the operands. `*` is Exists, `∅` DoesNotExist, `≥n` and `≤n`
/// are inclusive bounds on a complement set.
const INTERSECTIONS: &str = include_str!("data/c001_intersections.txt");

/// The written forms of the 14 requirements, in the table's order.
const WRITTEN: [(Operator, &[&str]); 14] = [
    (Operator::Exists, &[]),
    (Operator::DoesNotExist, &[]),
    (Operator::In, &["A"]),
    (Operator::In, &["B"]),
    (Operator::In, &["A", "B"]),
    (Operator::NotIn, &["A"]),
    (Operator::In, &["1"]),
    (Operator::In, &["9"]),
    (Operator::In, &["1", "9"]),
    (Operator::NotIn, &["1", "2"]),
    (Operator::Gt, &["1"]),
    (Operator::Gt, &["9"]),
    (Operator::Lt, &["1"]),
    (Operator::Lt, &["9"]),
];

fn parse(key: &str, operator: Operator, values: &[&str]) -> Result<Requirement, RequirementError> {
    Requirement::parse(&written(key, operator, values, None))
}

fn written(
    key: &str,
    operator: Operator,
    values: &[&str],
    min_values: Option<u32>,
) -> NodeSelectorRequirement {
    let values = values.iter().map(|v| (*v).to_owned()).collect();
    NodeSelectorRequirement { key: key.to_owned(), operator, values, min_values }
}

fn base(key: &str) -> Vec<Requirement> {
    WRITTEN.iter().map(|(operator, values)| parse(key, *operator, values).unwrap()).collect()
}

fn rows() -> Vec<Vec<&'static str>> {
    INTERSECTIONS.lines().map(|line| line.split_whitespace().collect()).collect()
}

/// A cell of the table: complement flag, values, bounds.
fn shape(cell: &str) -> (bool, Vec<String>, Option<i64>, Option<i64>) {
    let bound = |sign: char| {
        let (_, rest) = cell.split_once(sign)?;
        Some(rest.split('≤').next().unwrap().parse().unwrap())
    };
    let mut values: Vec<String> = cell
        .split_once('[')
        .map(|(_, rest)| rest.split(']').next().unwrap().split(',').map(str::to_owned).collect())
        .unwrap_or_default();
    values.sort();
    (!(cell == "∅" || cell.starts_with("In[")), values, bound('≥'), bound('≤'))
}

fn shape_of(requirement: &Requirement) -> (bool, Vec<String>, Option<i64>, Option<i64>) {
    let values = requirement.values().iter().cloned().collect();
    (requirement.is_complement(), values, requirement.gte(), requirement.lte())
}

#[test]
fn c001_intersection_table() {
    let rows = rows();
    let base = base(KEY);
    let mut pairs = 0;
    for (row, left) in rows[1..].iter().zip(&base) {
        assert_eq!(shape_of(left), shape(row[0]), "operand {}", row[0]);
        for (cell, right) in row[1..].iter().zip(&base) {
            for (of_left, of_right, expected) in [
                (None, None, None),
                (Some(1), None, Some(1)),
                (None, Some(2), Some(2)),
                (Some(3), Some(2), Some(3)),
            ] {
                let (left, right) =
                    (left.clone().with_min_values(of_left), right.clone().with_min_values(of_right));
                let both = left.intersection(&right);
                assert_eq!(shape_of(&both), shape(cell), "{left} ∩ {right}");
                assert_eq!(both.min_values(), expected, "{left} ∩ {right}");
                assert_eq!(left.intersects(&right), !both.is_empty(), "{left} ∩ {right}");
                pairs += 1;
            }
        }
    }
    assert_eq!(pairs, 14 * 14 * 4);
}

#[test]
fn c002_has_table() {
    let table = [
        ("A", [1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("B", [1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("1", [1, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1]),
        ("2", [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1]),
        ("9", [1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0]),
    ];
    for (value, expected) in table {
        for (requirement, expected) in base(KEY).iter().zip(expected) {
            assert_eq!(requirement.has(value), expected == 1, "{requirement} has {value}");
        }
    }
}

#[test]
fn c002_operator_len_and_text() {
    const ALL: u64 = i64::MAX as u64;
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let expected = [
        (Exists, ALL, "key Exists"),
        (DoesNotExist, 0, "key DoesNotExist"),
        (In, 1, "key In [A]"),
        (In, 1, "key In [B]"),
        (In, 2, "key In [A B]"),
        (NotIn, ALL - 1, "key NotIn [A]"),
        (In, 1, "key In [1]"),
        (In, 1, "key In [9]"),
        (In, 2, "key In [1 9]"),
        (NotIn, ALL - 2, "key NotIn [1 2]"),
        (Exists, ALL, "key Exists >=2"),
        (Exists, ALL, "key Exists >=10"),
        (Exists, ALL, "key Exists <=0"),
        (Exists, ALL, "key Exists <=8"),
    ];
    for (requirement, (operator, len, text)) in base(KEY).iter().zip(expected) {
        assert_eq!((requirement.operator(), requirement.len()), (operator, len), "{requirement}");
        assert_eq!(requirement.to_string(), text);
    }
    let both = Requirement::at_least(KEY, 2).intersection(&Requirement::at_most(KEY, 8));
    assert_eq!(both.to_string(), "key Exists >=2 <=8");
    let excluding = both.intersection(&Requirement::none_of(KEY, ["3"])).with_min_values(Some(2));
    assert_eq!(excluding.to_string(), "key NotIn [3] >=2 <=8 minValues 2");
    let many = Requirement::one_of(KEY, (1..=8).map(|n| n.to_string()));
    assert_eq!(many.to_string(), "key In [1 2 3 4 5] and 3 others");
}

#[test]
fn any_is_a_member_and_the_same_each_time() {
    let texts: Vec<_> = base(KEY).iter().map(Requirement::any).collect();
    let texts: Vec<_> = texts.iter().map(|t| t.as_deref().unwrap_or("none")).collect();
    assert_eq!(texts, ["0", "none", "A", "B", "A", "0", "1", "9", "1", "0", "2", "10", "0", "8"]);
    let narrow = Requirement::at_least(KEY, 2).intersection(&Requirement::at_most(KEY, 2));
    assert_eq!(narrow.any().as_deref(), Some("2"));
    assert_eq!(narrow.intersection(&Requirement::none_of(KEY, ["2"])).any(), None);
}

/// Both sides are the 14 requirements and "no requirement"; the key is well known.
#[test]
fn c004_compatibility_matrix() {
    let rows = rows();
    let side = |one: Option<&Requirement>| one.cloned().into_iter().collect::<Requirements>();
    let all = base(labels::ZONE);
    let sides: Vec<Option<&Requirement>> = std::iter::once(None).chain(all.iter().map(Some)).collect();
    let absence_is_fine = |cell: &str| cell == "∅" || cell.starts_with("NotIn[");
    for (row, node) in sides.iter().enumerate() {
        for (column, pod) in sides.iter().enumerate() {
            let (lenient, strict) = match (row, column) {
                (_, 0) => (true, true),
                (0, column) => (true, absence_is_fine(rows[column][0])),
                (row, column) => {
                    let both = absence_is_fine(rows[row][0]) && absence_is_fine(rows[column][0]);
                    let compatible = rows[row][column] != "∅" || both;
                    (compatible, compatible)
                }
            };
            let (node, pod) = (side(*node), side(*pod));
            for (mode, expected) in
                [(UndefinedKeys::WellKnownAreOpen, lenient), (UndefinedKeys::Absent, strict)]
            {
                assert_eq!(
                    node.compatible(&pod, mode).is_ok(),
                    expected,
                    "node [{node}], pod [{pod}], {mode:?}"
                );
                assert_eq!(node.is_compatible(&pod, mode), expected, "node [{node}], pod [{pod}], {mode:?}");
            }
        }
    }
}

#[test]
fn c004_a_custom_label_has_to_be_defined_in_both_modes() {
    for (requirement, cell) in base("example.com/team").into_iter().zip(&rows()[1..]) {
        let pod: Requirements = [requirement].into_iter().collect();
        let absence = cell[0] == "∅" || cell[0].starts_with("NotIn[");
        for mode in [UndefinedKeys::WellKnownAreOpen, UndefinedKeys::Absent] {
            assert_eq!(Requirements::new().is_compatible(&pod, mode), absence, "{pod}");
        }
    }
}

#[test]
fn c004_both_bounds_are_written_and_read_back() {
    let both = Requirement::at_least(KEY, 2).intersection(&Requirement::at_most(KEY, 8));
    let selectors = both.to_node_selector();
    assert_eq!(
        selectors,
        [written(KEY, Operator::Gte, &["2"], None), written(KEY, Operator::Lte, &["8"], None)]
    );
    assert_eq!(Requirements::parse(&selectors).unwrap().get(KEY), Some(&both));
}

#[test]
fn c005_aliases_and_typo_hints_reach_the_user() {
    let pod = Requirements::from_labels([("failure-domain.beta.kubernetes.io/zone", "us-east-1a")]);
    assert_eq!(pod.keys().collect::<Vec<_>>(), [labels::ZONE]);
    let node =
        Requirements::from_labels([("topology.ebs.csi.aws.com/zone", "us-east-1b"), ("arch", "arm64")]);
    let pod = pod.and(&Requirements::from_labels([("zone", "a"), ("deployment", "b")]));
    let error = node.compatible(&pod, UndefinedKeys::WellKnownAreOpen).unwrap_err();
    assert_eq!(
        error.to_string(),
        "incompatible requirements, label `deployment` does not have known values; \
         the pod requires `topology.kubernetes.io/zone In [us-east-1a]`, \
         nodes have `topology.kubernetes.io/zone In [us-east-1b]`; \
         label `zone` does not have known values (did you mean `topology.kubernetes.io/zone`?)"
    );
    assert!(matches!(&error.conflicts[1], Conflict::NoCommonValue { .. }));
    assert_eq!(node.intersects(&pod).unwrap_err().conflicts.len(), 1);
}

#[test]
fn labels_are_the_keys_with_one_value() {
    let requirements = Requirements::from_labels([("a", "1")])
        .and(&[Requirement::one_of("b", ["1", "2"]), Requirement::exists("c")].into_iter().collect());
    assert_eq!(requirements.labels().into_iter().collect::<Vec<_>>(), [("a".to_owned(), "1".to_owned())]);
    assert!(requirements.allows("b", "2") && !requirements.allows("b", "3") && requirements.allows("d", "x"));
}

#[test]
fn what_means_nothing_is_refused() {
    let integer = "takes exactly one integer, found";
    for (operator, values, message) in [
        (Operator::In, &[][..], "operator `In` of `key` needs at least one value".to_owned()),
        (Operator::NotIn, &[], "operator `NotIn` of `key` needs at least one value".to_owned()),
        (
            Operator::Exists,
            &["a", "b"],
            "operator `Exists` of `key` takes no values, found `a`, `b`; leave `values` out".to_owned(),
        ),
        (Operator::Gt, &["a"], format!("operator `Gt` of `key` {integer} `a`")),
        (Operator::Lte, &["1", "2"], format!("operator `Lte` of `key` {integer} `1`, `2`")),
    ] {
        assert_eq!(parse(KEY, operator, values).unwrap_err().to_string(), message);
    }
    let error = Requirement::parse(&written(KEY, Operator::In, &["a", "a"], Some(2))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`minValues` of `key` is `2`, but `values` lists only `1`; lower it or list more"
    );
    let both = [written(KEY, Operator::Gt, &["x"], None), written(KEY, Operator::In, &[], None)];
    let indexes: Vec<_> =
        Requirements::parse(&both).unwrap_err().into_iter().map(|(index, _)| index).collect();
    assert_eq!(indexes, [0, 1]);
}

#[test]
fn nothing_is_beyond_the_largest_and_smallest_integer() {
    let text = |operator, bound: i64| parse(KEY, operator, &[&bound.to_string()]).unwrap().to_string();
    assert_eq!(text(Operator::Gt, i64::MAX), "key DoesNotExist");
    assert_eq!(text(Operator::Lt, i64::MIN), "key DoesNotExist");
    assert_eq!(text(Operator::Gte, 5), "key Exists >=5");
}

/// Any requirement on one key: few values, so that they meet.
fn requirement() -> impl Strategy<Value = Requirement> {
    let values = || proptest::collection::btree_set("[A-C]|[0-9]|1[0-2]", 0..4);
    let set = prop_oneof![
        values().prop_map(|v| Requirement::one_of(KEY, v)),
        values().prop_map(|v| Requirement::none_of(KEY, v)),
        (0_i64..12).prop_map(|n| Requirement::at_least(KEY, n)),
        (0_i64..12).prop_map(|n| Requirement::at_most(KEY, n)),
    ];
    (set, proptest::option::of(1_u32..4)).prop_map(|(set, min_values)| set.with_min_values(min_values))
}

/// A requirement that was narrowed once, as in practice.
fn narrowed() -> impl Strategy<Value = Requirement> {
    (requirement(), requirement()).prop_map(|(a, b)| a.intersection(&b))
}

proptest! {
    #[test]
    fn intersection_is_commutative(a in narrowed(), b in narrowed()) {
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
    }

    #[test]
    fn intersection_is_associative(a in narrowed(), b in narrowed(), c in narrowed()) {
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
    }

    #[test]
    fn intersection_is_idempotent_and_exists_is_neutral(a in narrowed()) {
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert_eq!(a.intersection(&Requirement::exists(KEY)), a);
    }

    #[test]
    fn a_value_is_in_the_intersection_if_it_is_in_both(
        a in narrowed(), b in narrowed(), value in "[A-D]|[0-9]|1[0-3]",
    ) {
        prop_assert_eq!(a.intersection(&b).has(&value), a.has(&value) && b.has(&value));
        prop_assert_eq!(a.intersects(&b), !a.intersection(&b).is_empty());
    }

    #[test]
    fn any_is_a_member(a in narrowed()) {
        if let Some(value) = a.any() {
            prop_assert!(a.has(&value), "{} has {}", a, value);
        }
    }

    #[test]
    fn the_written_form_reads_back(a in narrowed()) {
        let a = a.with_min_values(None);
        let read = Requirements::parse(&a.to_node_selector()).unwrap();
        prop_assert_eq!(read.get(KEY), Some(&a));
    }

    #[test]
    fn compatible_sides_stay_compatible_when_the_pod_asks_less(a in narrowed(), b in narrowed(), c in narrowed()) {
        let set = |r: &Requirement| [r.clone()].into_iter().collect::<Requirements>();
        let narrow = set(&b.intersection(&c));
        let mode = UndefinedKeys::Absent;
        // If both agree on absence, a weaker requirement may require the label.
        prop_assume!(!b.intersection(&c).accepts_absence());
        if set(&a).is_compatible(&narrow, mode) {
            prop_assert!(set(&a).is_compatible(&set(&b), mode) && set(&a).is_compatible(&set(&c), mode));
        }
    }
}
