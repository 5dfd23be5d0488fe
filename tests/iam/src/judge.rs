//! IAM's decision about one request: a library evaluates statements, and AWS's reference gives the context.
//!
//! Decides the library: the crate `iam-rs`. It follows IAM's user guide for everything that our policies use, which
//! tests check: sets of values and missing keys, `Null`, wildcards, case. It lacks policy variables in sets of
//! values, which our policies don't use, and `*` as a request's resource, which is handled here. Rejected: the npm
//! package `@cloud-copilot/iam-simulate`, which has both and gives the same answers, for its licence (AGPL), which
//! our tests' code would have to adopt.

use std::collections::HashMap;

use iam_rs::{
    Arn, Context, ContextValue, Decision, IAMPolicy, IAMRequest, PolicyEvaluator, Principal, PrincipalId,
};
use serde_json::{Value, json};

use crate::reference;
use crate::request::{ACCOUNT, Request};
use crate::stack::list;

/// A resource that only `*` matches, for actions without resources.
const NOTHING: &str = "arn:aws:none:::none";

/// Statements that are evaluated together.
#[derive(Debug, Clone)]
pub struct Policy {
    statements: Vec<OneStatement>,
}

/// A statement, by itself: most say nothing about a request's action, and aren't evaluated for it.
#[derive(Debug, Clone)]
struct OneStatement {
    /// How the actions that it names begin, in lower case, up to a wildcard. A statement may name what it leaves out
    /// instead.
    beginnings: Option<Vec<String>>,
    evaluator: PolicyEvaluator,
}

impl OneStatement {
    fn new(statement: &Value) -> Result<Self, String> {
        let document = json!({ "Version": "2012-10-17", "Statement": [statement] });
        let policy: IAMPolicy = serde_json::from_value(document).map_err(|error| error.to_string())?;
        let beginnings = statement.get("Action").map(|actions| {
            let actions = list(Some(actions));
            let names = actions.iter().filter_map(Value::as_str);
            names.map(|name| name.split(['*', '?']).next().unwrap_or_default().to_lowercase()).collect()
        });
        Ok(Self { beginnings, evaluator: PolicyEvaluator::with_policies(vec![policy]) })
    }

    fn may_concern(&self, action: &str) -> bool {
        let action = action.to_lowercase();
        self.beginnings.as_ref().is_none_or(|all| all.iter().any(|beginning| action.starts_with(beginning)))
    }
}

impl Policy {
    /// The policy of these statements.
    ///
    /// # Errors A malformed statement.
    pub fn new(statements: &[Value]) -> Result<Self, String> {
        let mut statements = statements.to_vec();
        statements.iter_mut().for_each(texts);
        if json!(statements).to_string().contains("${") {
            return Err("a policy variable: the evaluation doesn't know them".to_owned());
        }
        Ok(Self { statements: statements.iter().map(OneStatement::new).collect::<Result<_, _>>()? })
    }

    /// Whether this policy allows one of our roles the request.
    ///
    /// # Errors A malformed ARN or statement.
    pub fn allows(&self, request: &Request) -> Result<bool, String> {
        let role = PrincipalId::String(format!("arn:aws:iam::{ACCOUNT}:role/one-of-ours"));
        self.allows_to(Principal::Aws(role), request)
    }

    /// The same for a role by its ARN, by another role's trust.
    ///
    /// # Errors A malformed ARN or statement.
    pub fn allows_role(&self, arn: &str, request: &Request) -> Result<bool, String> {
        self.allows_to(Principal::Aws(PrincipalId::String(arn.to_owned())), request)
    }

    /// The same for a service of AWS, by a resource's policy or a role's trust.
    ///
    /// # Errors A malformed ARN or statement.
    pub fn allows_service(&self, service: &str, request: &Request) -> Result<bool, String> {
        self.allows_to(Principal::Service(PrincipalId::String(service.to_owned())), request)
    }

    /// The same for the bearer of a token of an identity provider, by a role's trust.
    ///
    /// # Errors A malformed ARN or statement.
    pub fn allows_federated(&self, provider: &str, request: &Request) -> Result<bool, String> {
        self.allows_to(Principal::Federated(PrincipalId::String(provider.to_owned())), request)
    }

    fn allows_to(&self, principal: Principal, request: &Request) -> Result<bool, String> {
        let concerned = |one: &&OneStatement| one.may_concern(&request.action);
        let statements: Vec<&OneStatement> = self.statements.iter().filter(concerned).collect();
        if statements.is_empty() || !reference::fits(&request.action, &request.resource) {
            return Ok(false);
        }
        let asked = reference::as_asked(request);
        let resource = if asked.resource == "*" { NOTHING } else { &asked.resource };
        let resource = Arn::parse(resource).map_err(|error| format!("`{resource}`: {error:?}"))?;
        let data: HashMap<String, ContextValue> = asked
            .context
            .into_iter()
            .map(|(key, values)| (key, ContextValue::StringList(values.into_iter().collect())))
            .collect();
        let question = IAMRequest::new_with_context(principal, asked.action, resource, Context { data });
        let mut allowed = false;
        for one in statements {
            let decided = one.evaluator.evaluate(&question).map_err(|error| format!("{request}: {error}"))?;
            match decided.decision {
                Decision::Allow => allowed = true,
                Decision::Deny => return Ok(false),
                Decision::NotApplicable => {}
            }
        }
        Ok(allowed)
    }
}

/// YAML reads some values as numbers and truth values; in IAM all are texts.
fn texts(value: &mut Value) {
    match value {
        Value::Bool(_) | Value::Number(_) => *value = Value::String(value.to_string()),
        Value::Array(items) => items.iter_mut().for_each(texts),
        Value::Object(fields) => fields.values_mut().for_each(texts),
        Value::Null | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{LEADING_KEYS, arn};

    const MINE: &str = "AGENT#a";

    fn statement(condition: &Value) -> Value {
        json!({
            "Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:Query"],
            "Resource": arn("dynamodb", "table/tenon"), "Condition": condition,
        })
    }

    fn check(condition: &Value, keys: Option<&[&str]>, expected: bool) {
        let asked = Request::new("dynamodb:GetItem", arn("dynamodb", "table/tenon"));
        let asked = match keys {
            Some(keys) => asked.with(LEADING_KEYS, keys.iter().copied()),
            None => asked,
        };
        let policy = Policy::new(&[statement(condition)]).unwrap();
        assert_eq!(policy.allows(&asked).unwrap(), expected, "{condition} for {keys:?}");
    }

    /// IAM's user guide, "Set operators for multivalued context keys".
    #[test]
    fn all_of_nothing_holds_and_null_refuses_it() {
        let all = json!({ "ForAllValues:StringEquals": { LEADING_KEYS: [MINE] } });
        check(&all, Some(&[MINE]), true);
        check(&all, Some(&[MINE, "AGENT#b"]), false);
        check(&all, None, true);
        let guarded = json!({ "ForAllValues:StringEquals": { LEADING_KEYS: [MINE] }, "Null": { LEADING_KEYS: "false" } });
        check(&guarded, Some(&[MINE]), true);
        check(&guarded, None, false);
        let any = json!({ "ForAnyValue:StringEquals": { LEADING_KEYS: [MINE] } });
        check(&any, None, false);
        check(&any, Some(&[MINE, "AGENT#b"]), true);
    }

    #[test]
    fn wildcards_are_in_like_only() {
        let like = json!({ "ForAllValues:StringLike": { LEADING_KEYS: ["JOURNAL#a#*"] } });
        check(&like, Some(&["JOURNAL#a#pod#x"]), true);
        check(&like, Some(&["JOURNAL#ab#pod#x"]), false);
        let equals = json!({ "ForAllValues:StringEquals": { LEADING_KEYS: ["AGENT#*"] } });
        check(&equals, Some(&[MINE]), false);
    }

    #[test]
    fn conditions_hold_together_and_denials_come_first() {
        let both = json!({ "ForAllValues:StringEquals": { LEADING_KEYS: [MINE] }, "StringEquals": { "dynamodb:Select": "COUNT" } });
        check(&both, Some(&[MINE]), false);
        let asked =
            Request::new("dynamodb:GetItem", arn("dynamodb", "table/tenon")).with(LEADING_KEYS, [MINE]);
        let deny = json!({ "Effect": "Deny", "NotAction": "dynamodb:Query", "Resource": "*" });
        let allow = statement(&json!({}));
        assert!(Policy::new(std::slice::from_ref(&allow)).unwrap().allows(&asked).unwrap());
        assert!(!Policy::new(&[allow, deny]).unwrap().allows(&asked).unwrap());
    }

    #[test]
    fn what_knows_no_resource_needs_a_star() {
        let asked = Request::new("ec2:DescribeImages", "*");
        let on = |resource: &str| {
            let statement = json!({ "Effect": "Allow", "Action": "ec2:Describe*", "Resource": resource });
            Policy::new(&[statement]).unwrap().allows(&asked).unwrap()
        };
        assert!(on("*"));
        assert!(!on("arn:aws:ec2:us-east-1::image/*"));
    }

    /// AWS doesn't give it, so it is absent.
    #[test]
    fn a_key_that_isnt_given_never_holds() {
        let statement = json!({
            "Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "*",
            "Condition": { "StringEquals": { "aws:RequestTag/tenon.dev/installation": "tenon" } },
        });
        let asked = Request::new("ec2:TerminateInstances", arn("ec2", "instance/i-1"))
            .with("aws:RequestTag/tenon.dev/installation", ["tenon"]);
        assert!(!Policy::new(&[statement]).unwrap().allows(&asked).unwrap());
    }
}
