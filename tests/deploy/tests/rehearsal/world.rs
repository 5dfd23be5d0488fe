//! The one deployment that all tests share, and their turns.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, OnceCell};

use tenon_twin::{RegionTwin, TwinConfig};

use crate::account::{REGION, RehearsalAccount};
use crate::cluster::Cluster;
use crate::network::make_network;
use crate::tools::variable;
use crate::{catalog, deploy, doctor};

/// The deployment.
pub(crate) struct RehearsalWorld {
    pub(crate) account: RehearsalAccount,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) region: RegionTimes,
}

/// How long the region took.
pub(crate) struct RegionTimes {
    /// Its stack, by `sam deploy`.
    pub(crate) stack: Duration,
    /// The catalogue, one part after the other.
    pub(crate) catalogue: Duration,
}

/// Drives the clients' kept connections.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});
static WORLD: OnceCell<RehearsalWorld> = OnceCell::const_new();
/// Tests share the server and the functions, so one test's work must not delay another's.
static TURN: Mutex<()> = Mutex::const_new(());

/// Runs a test on the deployment, when it is its turn.
pub(crate) fn rehearse<F: Future<Output = ()>>(test: impl FnOnce(&'static RehearsalWorld) -> F) {
    RUNTIME.block_on(async {
        let _turn = TURN.lock().await;
        let world = WORLD.get_or_init(RehearsalWorld::deploy).await;
        test(world).await;
    });
}

impl RehearsalWorld {
    async fn deploy() -> Self {
        // A deployment that failed fails all tests; trying it again for each would only take its time.
        static BEGUN: AtomicBool = AtomicBool::new(false);
        assert!(!BEGUN.swap(true, Ordering::SeqCst), "the deployment failed: see the first test that did");
        serve_prices().await;
        let account = RehearsalAccount::new().await;
        make_network(&account.ec2).await;
        doctor::names_what_is_missing().await;
        deploy::make_cluster().await;
        let begun = Instant::now();
        let stack = deploy::both_stacks().await;
        println!("both stacks deployed in {:.1} s", begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        catalog::run_schedules(&account).await;
        let catalogue = begun.elapsed();
        println!("the catalogue filled in {:.1} s", catalogue.as_secs_f64());
        let cluster = Cluster::join(&account).await;
        Self { account, cluster: Mutex::new(cluster), region: RegionTimes { stack, catalogue } }
    }
}

/// Neither server has a price list: the twin's, on the port that the functions ask.
async fn serve_prices() {
    let address = variable("TENON_PRICING_ADDRESS");
    let listener = TcpListener::bind(&address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
    let config = TwinConfig::new(REGION.parse().unwrap(), 1, std::sync::Arc::new(jiff::Timestamp::now));
    let twin = RegionTwin::new(config).expect("there is data for the region");
    tokio::spawn(tenon_twin_wire::serve(twin, listener));
}
