//! Every statement is needed as it is: a narrower one denies a real request, a wider one allows a forbidden one.

use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::mutation::{Mutant, narrower, wider};

use crate::{Known, WORLD};

/// Mutants that nothing notices.
fn survivors(
    mutants: impl Fn(&[serde_json::Value]) -> Vec<Mutant>,
    noticed: impl Fn(&str, &Policy) -> bool,
) -> (usize, Vec<String>) {
    let (mut all, mut survived) = (0, Vec::new());
    for (name, role) in &WORLD.account.roles {
        for mutant in mutants(&role.statements) {
            all += 1;
            if !noticed(name, &Policy::new(&mutant.statements).unwrap()) {
                survived.push(format!("{name}: {}", mutant.change));
            }
        }
    }
    (all, survived)
}

#[test]
fn a_narrower_policy_denies_what_is_asked() {
    let (all, mut survived) = survivors(narrower, |name, policy| {
        WORLD.asked[name].iter().any(|request| !policy.allows(request).unwrap())
    });
    // IAM knows no `self`: the value comes with the parameter's list, where the registry reads it.
    survived.retain(|change| !change.ends_with("without ec2:Owner \"self\""));
    assert!(all > 200, "{all} mutants");
    assert!(survived.is_empty(), "{} of {all} aren't needed: {survived:#?}", survived.len());
}

#[test]
fn a_wider_policy_allows_what_nobody_may() {
    let (all, survived) = survivors(wider, |name, policy| {
        let role = &WORLD.account.roles[name];
        let known = Known::of(role, &WORLD.asked[name]);
        let mut strangers = WORLD.asked.values().flatten().chain(&WORLD.forged);
        strangers.any(|request| policy.allows(request).unwrap() && !known.covers(role, request))
    });
    assert!(all > 100, "{all} mutants");
    assert!(survived.is_empty(), "{} of {all} aren't missed: {survived:#?}", survived.len());
}
