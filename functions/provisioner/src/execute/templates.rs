//! Launch templates: made in EC2 before the first launch that names them.
//!
//! Decides which of a launch's templates aren't known to exist. An item that is gone doesn't hold a launch up: the
//! template may exist, and CreateFleet's answer shows it.

use tenon_domain::id::ClusterName;
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
