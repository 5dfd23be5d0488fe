//! A replica: the binary as in its pod, with relays between it and its servers.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::account::{REGION, ReplicasAccount, named};
use crate::relay::Relay;
use tenon_cluster_tests::agent_binary;

/// Where the lease is.
pub(crate) const NAMESPACE: &str = "tenon-system";
/// The kubelet's timeout for a probe (`timeoutSeconds`).
const PROBE: Duration = Duration::from_secs(1);

/// A signal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    Terminate,
    Kill,
    Stop,
    Continue,
}

/// A running binary.
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    /// Between it and the API server.
    pub(crate) api: Relay,
    /// Between it and table, bus and queue.
    pub(crate) aws: Relay,
    child: Child,
    folder: PathBuf,
    address: String,
}

impl Replica {
    /// Starts a replica, and waits until it serves its health.
    pub(crate) async fn start(name: &'static str, account: &ReplicasAccount) -> Self {
        let folder = std::env::temp_dir().join(format!("{}-{name}", account.name));
        std::fs::create_dir_all(&folder).expect("a folder is made");
        let given = std::fs::read_to_string(named("TENON_AGENT_KUBECONFIG")).expect("it can be read");
        let servers = given.split_once("https://127.0.0.1:").expect("the server is on this machine").1;
        let api = Relay::to(port(servers)).await;
        let endpoint = named("AWS_ENDPOINT_URL");
        let aws = Relay::to(port(endpoint.rsplit(':').next().unwrap_or_default())).await;
        let server = |port: u16| format!("https://127.0.0.1:{port}");
        let kubeconfig = given.replace(&server(port(servers)), &server(api.port));
        std::fs::write(folder.join("kubeconfig"), kubeconfig).expect("it can be written");
        let log = File::create(folder.join("log")).expect("a log is made");
        let child = Command::new(agent_binary())
            .env_clear()
            .env("KUBECONFIG", folder.join("kubeconfig"))
            .envs([
                ("TENON_CLUSTER", account.name.as_str()),
                ("TENON_INSTALLATION", "tenon"),
                ("TENON_TABLE", &account.name),
                ("TENON_BUS", &account.name),
                ("TENON_QUEUE", &account.queue),
                ("TENON_LISTEN", "127.0.0.1:0"),
                ("AWS_REGION", REGION),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", aws.port)),
                ("POD_NAME", name),
                ("POD_NAMESPACE", NAMESPACE),
            ])
            .stdout(log)
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let mut replica = Self { name, api, aws, child, folder, address: String::new() };
        replica.address = replica.served().await;
        replica
    }

    async fn served(&self) -> String {
        let began = Instant::now();
        loop {
            let line = self.logged().into_iter().find_map(|line| line.get("address").cloned());
            if let Some(Value::String(address)) = line {
                return address;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "it serves no health: {:?}", self.logged());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its log.
    pub(crate) fn logged(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The `error_type`s that it logged.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let line = |line: &Value| Some(line.get("error_type")?.as_str()?.to_owned());
        self.logged().iter().filter_map(line).collect()
    }

    /// A path's answer to a probe: status and body; `None` after the timeout.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, String)> {
        let asked = async {
            let mut stream = TcpStream::connect(&self.address).await.ok()?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            let status = answer.split_whitespace().nth(1)?.parse().ok()?;
            Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
        };
        timeout(PROBE, asked).await.ok().flatten()
    }

    /// The value of a metric, with its labels as they are written.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics").await?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    pub(crate) async fn leads(&self) -> bool {
        self.metric("tenon_agent_leader").await == Some(1.0)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let name = match signal {
            Signal::Terminate => "-TERM",
            Signal::Kill => "-KILL",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a command `kill`").success(), "it takes the signal");
    }

    /// Its exit status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it is our child")
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _waited = self.child.wait();
        if std::thread::panicking() {
            println!("log of {}:", self.name);
            for line in self.logged() {
                println!("  {line}");
            }
        }
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

fn port(text: &str) -> u16 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}
