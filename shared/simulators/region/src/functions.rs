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
use tenon_runtime::batch::{Message, MessageFailure, Shares, handle_batch};

use crate::ports::LocalPorts;

/// A function and the shares of its process's time.
type Warm<F> = (Arc<F>, Arc<Shares>);

/// All functions.
#[derive(Clone, Default)]
pub struct Functions {
    catalog: Warm<CatalogFunction>,
    images: Warm<Images>,
    node_classes: Warm<NodeClasses>,
    provisioner: Warm<Provisioner>,
    lifecycle: Warm<Lifecycle>,
    interruption: Warm<Interruption>,
    disruption: Warm<Disruption>,
}

/// A running invocation.
pub type Invocation = Pin<Box<dyn Future<Output = Vec<MessageFailure>> + Send>>;

impl Functions {
    /// Invokes a function with a batch; the future owns all that it needs.
    #[must_use]
    pub fn invoke(&self, function: FunctionName, ports: LocalPorts, batch: Vec<Message>) -> Invocation {
        macro_rules! run {
            ($handler:ident) => {{
                let (handler, shares) = self.$handler.clone();
                Box::pin(async move { handle_batch(handler.as_ref(), &shares, &ports, &batch).await })
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
