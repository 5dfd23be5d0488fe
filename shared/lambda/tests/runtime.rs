//! A function's process from end to end: Lambda's runtime API and AWS's services are one server of this test's, and the
//! function is this test's own binary once more, with a function's environment.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_lambda::{AwsPorts, FunctionConfiguration};
use tenon_runtime::{Handler, HandlerError, Ports, Signals, WakeScope};
use tenon_table::{Consistency, Key, Table};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Reads an item and rings a bell: one call of each kind of client. Panics for the cluster `broken`.
struct Rings;

impl Handler for Rings {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        _: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let WakeScope::Cluster(cluster) = scope else { return Ok(()) };
        if cluster.as_str() == "broken" {
            panic!("this cluster is broken");
        }
        let key = Key { pk: format!("CLUSTER#{cluster}"), sk: "REVISION".to_owned() };
        let item = ports.table().get(&key, Consistency::Strong).await?;
        if item.is_some() {
            return Err(HandlerError::Internal("the table of this test is empty".to_owned()));
        }
        ports.signals().wake(FunctionName::Provisioner, cluster, SignedDuration::ZERO).await;
        Ok(())
    }
}

/// Not a test: the function that the tests start, like a binary of the region.
#[test]
fn function_of_the_other_tests() {
    if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_none() {
        return;
    }
    let code = tenon_lambda::main(async {
        let configuration = FunctionConfiguration::from_environment()?;
        let ports = AwsPorts::connect(&configuration).await;
        tenon_lambda::run(&Rings, &ports).await
    });
    assert_eq!(code, ExitCode::SUCCESS, "the function ended");
}

/// The server's received requests.
#[derive(Clone)]
struct Server {
    events: Arc<Mutex<Vec<Value>>>,
    answers: mpsc::UnboundedSender<(String, Value)>,
    calls: Arc<Mutex<Vec<(String, Value)>>>,
}

async fn next(State(server): State<Server>) -> (HeaderMap, String) {
    let event = server.events.lock().expect("no test panics with the lock").pop();
    let Some(event) = event else { return std::future::pending().await };
    let mut headers = HeaderMap::new();
    let deadline = jiff::Timestamp::now().as_millisecond() + 60_000;
    let arn = "arn:aws:lambda:us-east-1:123456789012:function:tenon-lifecycle";
    for (name, value) in [
        ("lambda-runtime-aws-request-id", "r1".to_owned()),
        ("lambda-runtime-deadline-ms", deadline.to_string()),
        ("lambda-runtime-invoked-function-arn", arn.to_owned()),
    ] {
        headers.insert(name, value.parse().expect("a header's value"));
    }
    (headers, event.to_string())
}

async fn answered(State(server): State<Server>, Path((_, kind)): Path<(String, String)>, body: String) {
    let body = serde_json::from_str(&body).expect("an answer is JSON");
    server.answers.send((kind, body)).expect("the test listens");
}

async fn aws(State(server): State<Server>, headers: HeaderMap, body: String) -> &'static str {
    let operation = headers.get("x-amz-target").and_then(|name| name.to_str().ok()).unwrap_or_default();
    let body = serde_json::from_str(&body).expect("a call is JSON");
    server.calls.lock().expect("no test panics with the lock").push((operation.to_owned(), body));
    if operation == "AmazonSQS.SendMessage" { r#"{"MessageId": "m"}"# } else { "{}" }
}

/// Kills the process when the test is over, however it ends.
struct Function(Child);

impl Function {
    fn start(at: SocketAddr, variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("a test knows its binary");
        let mut command = Command::new(program);
        command.args(["function_of_the_other_tests", "--exact", "--nocapture"]).env_clear();
        command.env("AWS_LAMBDA_RUNTIME_API", at.to_string());
        command.env("AWS_ENDPOINT_URL", format!("http://{at}"));
        command.envs([
            ("AWS_LAMBDA_FUNCTION_NAME", "tenon-lifecycle"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_SESSION_TOKEN", "token"),
        ]);
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        Self(command.spawn().expect("the test's binary starts again"))
    }

    /// Ends it, and gives its output.
    fn end(mut self) -> String {
        let _ = self.0.kill();
        let mut output = String::new();
        let mut pipe = self.0.stdout.take().expect("the output is a pipe");
        pipe.read_to_string(&mut output).expect("logs are UTF-8");
        output
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const VARIABLES: [(&str, &str); 5] = [
    ("TENON_INSTALLATION", "tenon"),
    ("TENON_ACCOUNT", "123456789012"),
    ("TENON_TABLE", "tenon-state"),
    ("TENON_BUS", "tenon"),
    ("TENON_QUEUES", "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-"),
];

fn record(id: &str, body: &str) -> Value {
    json!({"messageId": id, "body": body, "eventSource": "aws:sqs"})
}

/// Serves one event to a function, and gives its answer, the calls that it made and its errors in the log.
async fn invoked(event: Value) -> ((String, Value), Vec<(String, Value)>, Vec<Value>) {
    let (answers, mut answer) = mpsc::unbounded_channel();
    let server = Server { events: Arc::new(Mutex::new(vec![event])), answers, calls: Arc::default() };
    let router = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answered))
        .fallback(aws)
        .with_state(server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = listener.local_addr().expect("a bound socket has an address");
    let served = tokio::spawn(async move { axum::serve(listener, router).await });
    let function = Function::start(at, &VARIABLES);
    let answer = answer.recv().await.expect("the function answers");
    served.abort();
    let calls = server.calls.lock().expect("no test panics with the lock").clone();
    let output = function.end();
    let lines = output.lines().filter_map(|line| serde_json::from_str(line).ok());
    (answer, calls, lines.filter(|line: &Value| line["level"] == "ERROR").collect())
}

fn wake(cluster: &str) -> Value {
    json!({"source": "tenon", "detail-type": "Wake", "detail": {"cluster": cluster}})
}

#[tokio::test]
async fn a_batch_goes_through_the_process_and_its_failures_come_back() {
    let event = json!({"Records": [record("good", &wake("prod").to_string()), record("bad", "{")]});
    let ((kind, answer), calls, errors) = invoked(event).await;
    assert_eq!(
        (kind.as_str(), answer),
        ("response", json!({"batchItemFailures": [{"itemIdentifier": "bad"}]}))
    );
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[0].0, "DynamoDB_20120810.GetItem");
    assert_eq!(calls[0].1["TableName"], "tenon-state");
    assert_eq!(calls[1].0, "AmazonSQS.SendMessage");
    let queue = "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-provisioner";
    assert_eq!(calls[1].1["QueueUrl"], queue);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0]["error_type"], "MessageForm");
    assert_eq!(errors[0]["messages"], "bad");
    assert_eq!(errors[0]["span"]["requestId"], "r1");
}

#[tokio::test]
async fn a_panic_is_told_and_is_the_invocations_error() {
    let ((kind, _), calls, errors) = invoked(wake("broken")).await;
    assert_eq!((kind.as_str(), calls.len()), ("error", 0));
    assert_eq!(errors[0]["error_type"], "Panic");
    let message = errors[0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("this cluster is broken"), "{message}");
}

#[tokio::test]
async fn a_function_without_its_configuration_ends_and_says_why() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let at = listener.local_addr().expect("a bound socket has an address");
    let mut function = Function::start(at, &VARIABLES[1..]);
    let status = function.0.wait().expect("the function ends");
    assert!(!status.success());
    let output = function.end();
    assert!(output.contains(r#""error_type":"Configuration""#), "{output}");
    assert!(output.contains("`TENON_INSTALLATION` isn't set: set it to the installation's id"), "{output}");
}
