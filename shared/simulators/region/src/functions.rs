//! The functions of the region, warm: one handler each, kept between wakes as Lambda keeps an environment.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tenon_catalog::CatalogFunction;
use tenon_disruption::Disruption;
use tenon_domain::wake::FunctionName;
use tenon_images::Images;
use tenon_interruption::Interruption;
use tenon_lifecycle::Lifecycle;
use tenon_node_classes::NodeClasses;
use tenon_provisioner::Provisioner;
use tenon_runtime::batch::{Message, MessageFailure, handle_batch};

use crate::ports::LocalPorts;

/// All functions.
#[derive(Clone, Default)]
pub struct Functions {
    catalog: Arc<CatalogFunction>,
    images: Arc<Images>,
    node_classes: Arc<NodeClasses>,
    provisioner: Arc<Provisioner>,
    lifecycle: Arc<Lifecycle>,
    interruption: Arc<Interruption>,
    disruption: Arc<Disruption>,
}

/// A running invocation.
pub type Invocation = Pin<Box<dyn Future<Output = Vec<MessageFailure>> + Send>>;

impl Functions {
    /// Invokes a function with a batch; the future owns all that it needs.
    #[must_use]
    pub fn invoke(&self, function: FunctionName, ports: LocalPorts, batch: Vec<Message>) -> Invocation {
        macro_rules! run {
            ($handler:ident) => {{
                let handler = Arc::clone(&self.$handler);
                Box::pin(async move { handle_batch(handler.as_ref(), &ports, &batch).await })
            }};
        }
        match function {
            FunctionName::Catalog => run!(catalog),
            FunctionName::Images => run!(images),
            FunctionName::NodeClasses => run!(node_classes),
            FunctionName::Provisioner => run!(provisioner),
            FunctionName::Lifecycle => run!(lifecycle),
            FunctionName::Interruption => run!(interruption),
            FunctionName::Disruption => run!(disruption),
        }
    }
}
