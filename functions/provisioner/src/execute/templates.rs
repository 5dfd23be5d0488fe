//! Launch templates: made in EC2 before the first launch that names them.
//!
//! Decides which of a launch's templates aren't known to exist. An item that is gone doesn't hold a launch up: the
//! template may exist, and CreateFleet's answer shows it. Decides what a denial of a template means that EC2 doesn't find:
//! a launch role may use templates by their tags, so a missing one is denied instead of reported.

use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_domain::launch::EC2_CONSISTENCY;
use tenon_ec2::Ec2Error;
use tenon_launching::template::from_stored;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::view::ClusterView;
use tenon_table::items::{TemplateItem, keys, set};
use tenon_table::{Table, content_commit};

use crate::launcher::Launcher;

/// The item of a template that isn't known to exist. The template was observed, or it was written since, so it isn't
/// read again.
pub(crate) fn unmade<'a>(
    view: &'a ClusterView,
    written: &'a [TemplateItem],
    name: &str,
) -> Option<&'a TemplateItem> {
    let written = || written.iter().find(|template| template.name == name);
    view.templates.get(name).or_else(written).filter(|template| template.made_at.is_none())
}

/// What it means that EC2 doesn't find a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TemplateSight {
    /// It is new, so EC2 may not show it yet.
    NotYet,
    /// EC2 had the time to show it before the request was made, so it is gone.
    Gone,
    /// The request is as old as the template, and EC2 had the time to show it: the denial is one.
    Denied,
}

/// Judges a request of that time by its newest template; `None` where none is known.
pub(crate) fn sight(newest: Option<Timestamp>, requested_at: Timestamp, now: Timestamp) -> TemplateSight {
    let Some(made_at) = newest else { return TemplateSight::Gone };
    if now.duration_since(made_at) < EC2_CONSISTENCY {
        TemplateSight::NotYet
    } else if requested_at.duration_since(made_at) < EC2_CONSISTENCY {
        TemplateSight::Denied
    } else {
        TemplateSight::Gone
    }
}

/// When the newest of these templates was made. One that wasn't made when the pass began was made by the pass.
pub(crate) fn newest<'a>(
    view: &ClusterView,
    written: &[TemplateItem],
    names: impl IntoIterator<Item = &'a str>,
    now: Timestamp,
) -> Option<Timestamp> {
    let made_at = |name: &str| match view.templates.get(name) {
        Some(known) => Some(known.made_at.unwrap_or(now)),
        None => written.iter().any(|template| template.name == name).then_some(now),
    };
    names.into_iter().filter_map(made_at).max()
}

/// Creates a template, and notes that EC2 has it. The inner error is EC2's.
///
/// # Errors
/// [`HandlerError`] for an unreadable item and for the table's failures.
pub(crate) async fn make<P: Ports>(
    ports: &P,
    launcher: &Launcher<'_, P::Ec2>,
    cluster: &ClusterName,
    template: &TemplateItem,
) -> Result<Result<(), Ec2Error>, HandlerError> {
    let key = keys::template(cluster, &template.name);
    let request = from_stored(&template.request)
        .map_err(|source| HandlerError::Item { key: key.to_string(), source: Box::new(source) })?;
    match launcher.create_launch_template(&request).await {
        Ok(_) | Err(Ec2Error::AlreadyExists { .. }) => {}
        Err(error) => return Ok(Err(error)),
    }
    let made = TemplateItem { made_at: Some(ports.now()), used_at: ports.now(), ..template.clone() };
    ports.table().commit(&content_commit(Vec::new(), vec![set(key, &made)])).await?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_unseen_while_it_is_new_and_gone_once_ec2_had_shown_it() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        let check = |made: Option<i64>, requested: i64, now: i64, expected: TemplateSight| {
            assert_eq!(sight(made.map(at), at(requested), at(now)), expected, "{made:?} {requested} {now}");
        };
        check(Some(1000), 1000, 1001, TemplateSight::NotYet);
        check(Some(1000), 1000, 1119, TemplateSight::NotYet);
        check(Some(1000), 1000, 1120, TemplateSight::Denied);
        check(Some(1000), 1120, 1120, TemplateSight::Gone);
        check(None, 1000, 1000, TemplateSight::Gone);
    }
}
