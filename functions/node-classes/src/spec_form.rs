//! The identity of a class's spec: a digest of the object and its generation, and one of its policy on images.
//!
//! Decides what identifies a spec, and whether a stored status belongs to one. Kubernetes raises the generation with
//! each change of a spec, so no field of the spec is read. It doesn't decide the effect of a changed spec.
//!
//! Invariants: a class that is deleted and made anew has another digest, because it has another UID; absent
//! attributes aren't part of the form, so a new one changes only digests of classes that have it; a digest of another
//! form can't be compared, and the generation decides instead.

use std::borrow::Cow;

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::image_policy;
use tenon_table::form_digest;
use tenon_table::items::form::Attributes;

/// The version of the form.
const FORM: &str = "class-spec-2";
/// The prefix of this form's digests. The earliest digests have none; those of the form before have `v1-`.
const PREFIX: &str = "v2-";
/// Letters and digits after it.
const DIGITS: usize = 16;
/// The version of the form of a policy on images.
const POLICY_FORM: &str = "class-image-policy-1";
/// Letters and digits of its digest, which stands behind the spec's.
const POLICY_DIGITS: usize = 8;

/// The digest of the user's whole spec and policy. It also differs if the class was deleted and created again.
#[must_use]
pub fn digest(class: &Ec2NodeClass) -> String {
    let spec = without_policy(class);
    match image_policy::text_of(class) {
        Some(policy) => {
            let digest = form_digest(POLICY_FORM, |to| to.text("image_policy", policy));
            format!("{spec}-{}", digest.base36(POLICY_DIGITS))
        }
        None => spec,
    }
}

fn without_policy(class: &Ec2NodeClass) -> String {
    format!("{PREFIX}{}", form_digest(FORM, |to| write_class(class, to)).base36(DIGITS))
}

/// Whether a status of this form belongs to this spec, under whatever policy: a policy chooses between images that the
/// spec selects, so what the class resolved to stays one of its choices.
#[must_use]
pub fn is_of_spec(status: &ClassStatus, class: &Ec2NodeClass) -> bool {
    let rest = status.spec_digest.strip_prefix(&without_policy(class));
    rest.is_some_and(|policy| policy.is_empty() || policy.starts_with('-'))
}

/// Whether a status belongs to this spec. With a digest of another form, the generation decides.
#[must_use]
pub fn is_of(status: &ClassStatus, class: &Ec2NodeClass) -> bool {
    if status.spec_digest.starts_with(PREFIX) {
        status.spec_digest == digest(class)
    } else {
        status.is_of(&class.meta)
    }
}

/// A stored status with the digest of this form and the class's UID, where it is of this spec.
#[must_use]
pub fn in_this_form<'a>(stored: &'a ClassStatus, class: &Ec2NodeClass) -> Cow<'a, ClassStatus> {
    let is_in_form = stored.spec_digest.starts_with(PREFIX) && stored.uid.is_some();
    if is_in_form || !is_of(stored, class) {
        return Cow::Borrowed(stored);
    }
    let uid = class.meta.uid.clone();
    Cow::Owned(ClassStatus { spec_digest: digest(class), uid, ..stored.clone() })
}

/// The class and its generation. An annotation doesn't raise the generation, so the one that changes what the class
/// resolves to has its own digest.
fn write_class(class: &Ec2NodeClass, to: &mut Attributes) {
    let Ec2NodeClass { meta, name, .. } = class;
    to.text_if("uid", meta.uid.as_ref().map(|uid| uid.as_str()));
    to.text("name", name);
    to.number("generation", meta.generation);
}

#[cfg(test)]
mod tests;
