//! What a look at launch templates reads: EC2's list, then the table.
//!
//! Decides the order of the reads. The cluster's revision was read first, so a launch that is committed after these
//! reads makes the look's commit lose. EC2's list comes before the table: an item is committed before EC2 has its
//! template, so a template without an item has lost it.

use std::collections::BTreeMap;

use tenon_domain::id::NodeClassName;
use tenon_domain::launch::{Launch, LaunchState};
use tenon_domain::{labels, tags};
use tenon_ec2::Ec2;
use tenon_ec2::port::{CreateFleetRequest, LaunchTemplate, LaunchTemplateFilter, TagFilter};
use tenon_runtime::{HandlerError, Ports};
use tenon_table::items::{LeavingTemplates, TemplateItem, keys};
use tenon_table::{Consistency, Query, SkRange, query_all};

use crate::input::LifecycleInput;
use crate::observe::{read, read_many};
use crate::templates::{LaunchUse, TemplatesView};
use crate::unneeded::UnneededTemplates;

/// Reads the cluster's launch templates, and the launches that name them.
///
/// # Errors
/// [`HandlerError`] if EC2 or the table fails.
pub async fn observe_templates<P: Ports>(
    ports: &P,
    input: &mut LifecycleInput,
    revision: u64,
) -> Result<(), HandlerError> {
    let mut view = TemplatesView { revision, ..TemplatesView::default() };
    let ours = LaunchTemplateFilter {
        names: Vec::new(),
        tags: vec![
            TagFilter::equals(tags::INSTALLATION, ports.installation().id.as_str()),
            TagFilter::equals(tags::CLUSTER, input.cluster.as_str()),
        ],
    };
    let mut page = None;
    loop {
        let found = ports.ec2().describe_launch_templates(&ours, page).await?;
        view.in_ec2.extend(found.items.into_iter().filter_map(named));
        page = found.next;
        if page.is_none() {
            break;
        }
    }
    let range = SkRange::Between(keys::TEMPLATE.to_owned(), keys::LEAVING_TEMPLATES.to_owned());
    let query = Query::new(keys::cluster_pk(&input.cluster), range, Consistency::Strong);
    for (key, item) in query_all(ports.table(), &query).await? {
        if key.sk == keys::LEAVING_TEMPLATES {
            view.leaving = read::<LeavingTemplates>(&key, &item)?;
        } else {
            let template: TemplateItem = read(&key, &item)?;
            view.items.insert(template.name.clone(), template);
        }
    }
    view.uses = observe_uses(ports, input).await?;
    let key = UnneededTemplates::key(&input.cluster);
    if let Some(item) = read_many(ports, vec![key.clone()], Consistency::Strong).await?.get(&key) {
        view.unneeded = read(&key, item)?;
    }
    input.templates = Some(view);
    Ok(())
}

/// A template of EC2 by its name. Every template of ours has its class's tag.
fn named(template: LaunchTemplate) -> Option<(String, NodeClassName)> {
    let class = NodeClassName::parse(template.tags.get(labels::EC2NODECLASS)?.as_str()).ok()?;
    Some((template.name, class))
}

/// How launches use templates. A launch is in the table until seven days after its last node.
async fn observe_uses<P: Ports>(
    ports: &P,
    input: &LifecycleInput,
) -> Result<BTreeMap<String, LaunchUse>, HandlerError> {
    let range = SkRange::Prefix(keys::LAUNCH.to_owned());
    let query = Query::new(keys::cluster_pk(&input.cluster), range, Consistency::Strong);
    let mut uses: BTreeMap<String, LaunchUse> = BTreeMap::new();
    for (key, item) in query_all(ports.table(), &query).await? {
        let launch: Launch = read(&key, &item)?;
        let request = CreateFleetRequest::from_stored(&launch.request)
            .map_err(|source| HandlerError::Item { key: key.to_string(), source: Box::new(source) })?;
        let used = used_by(&launch);
        for template in request.launch_templates {
            uses.entry(template.name).and_modify(|known| *known = used.max(*known)).or_insert(used);
        }
    }
    Ok(uses)
}

fn used_by(launch: &Launch) -> LaunchUse {
    match launch.state {
        LaunchState::Requested { .. } => LaunchUse::Open,
        LaunchState::Settled { .. } => LaunchUse::At(launch.created_at),
    }
}
