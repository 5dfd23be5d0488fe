//! Timed starts of one binary.
//!
//! Decides when the clock starts (before the process is created) and stops (after the poll's request line and
//! headers). The first start doesn't count: it reads the binary from the disk, which Lambda doesn't.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A function that hasn't polled by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first bytes of Lambda's client.
const POLL: &str = "GET /2018-06-01/runtime/invocation/next ";
/// A request of the runtime has some 200 bytes.
const REQUEST_MAX: usize = 8 * 1024;

/// A function's measurements.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// The function.
    pub(crate) function: String,
    /// The size of its binary.
    pub(crate) bytes: u64,
    /// From exec to the first poll, ascending; at least one.
    pub(crate) starts: Vec<Duration>,
}

impl Measured {
    /// The shortest start.
    pub(crate) fn min(&self) -> Duration {
        self.starts.first().copied().unwrap_or_default()
    }

    /// The upper median.
    pub(crate) fn median(&self) -> Duration {
        self.starts.get(self.starts.len() / 2).copied().unwrap_or_default()
    }

    /// The longest start.
    pub(crate) fn max(&self) -> Duration {
        self.starts.last().copied().unwrap_or_default()
    }
}

/// Why a function couldn't be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no binary.
    #[error("`{path}`: {source}; build the functions with infra/build")]
    Binary {
        /// The expected path.
        path: PathBuf,
        /// Why it can't be used.
        source: std::io::Error,
    },
    /// The runtime API's stand-in couldn't listen or read.
    #[error("the runtime API's stand-in: {0}")]
    Io(#[from] std::io::Error),
    /// It ended, or sent something else, or nothing.
    #[error("`{function}` didn't poll: {what}")]
    NoPoll {
        /// The function.
        function: String,
        /// The actual event.
        what: String,
    },
}

/// Starts a function's binary this often, one after the other.
pub(crate) fn measure(directory: &Path, function: &str, starts: usize) -> Result<Measured, Failure> {
    let path = directory.join(function).join("bootstrap");
    let bytes =
        std::fs::metadata(&path).map_err(|source| Failure::Binary { path: path.clone(), source })?.len();
    start(&path, function)?;
    let mut starts = (0..starts).map(|_| start(&path, function)).collect::<Result<Vec<_>, _>>()?;
    starts.sort();
    Ok(Measured { function: function.to_owned(), bytes, starts })
}

/// A process that ends with the measurement.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(path: &Path, function: &str) -> Result<Duration, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut command = command(path, function, listener.local_addr()?);
    let begun = Instant::now();
    let child = command.spawn().map_err(|source| Failure::Binary { path: path.to_owned(), source })?;
    let mut started = Started(child);
    let connection = accept(&listener, function, &mut started, begun)?;
    let request = read_request(connection)?;
    let took = begun.elapsed();
    if request.starts_with(POLL) {
        Ok(took)
    } else {
        let line = request.lines().next().unwrap_or_default().to_owned();
        Err(Failure::NoPoll { function: function.to_owned(), what: format!("it sent `{line}`") })
    }
}

/// The environment is Lambda's, with the stack's variables, and nothing of this process's.
fn command(path: &Path, function: &str, at: SocketAddr) -> Command {
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null());
    command.env("AWS_LAMBDA_RUNTIME_API", at.to_string());
    command.env("AWS_LAMBDA_FUNCTION_NAME", format!("tenon-{function}"));
    command.envs([
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512"),
        ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
        ("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand"),
        ("AWS_LAMBDA_LOG_FORMAT", "JSON"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_SESSION_TOKEN", "token"),
        ("TENON_INSTALLATION", "tenon"),
        ("TENON_ACCOUNT", "123456789012"),
        ("TENON_TABLE", "tenon"),
        ("TENON_BUS", "tenon"),
        ("TENON_QUEUES", "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-"),
    ]);
    command
}

/// Waits for the function's connection without missing that it ended.
fn accept(
    listener: &TcpListener,
    function: &str,
    started: &mut Started,
    begun: Instant,
) -> Result<TcpStream, Failure> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false)?;
                connection.set_read_timeout(Some(PATIENCE))?;
                return Ok(connection);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = started.0.try_wait()? {
            return Err(Failure::NoPoll {
                function: function.to_owned(),
                what: format!("it ended with {status}"),
            });
        }
        if begun.elapsed() > PATIENCE {
            let what = format!("nothing came for {} s", PATIENCE.as_secs());
            return Err(Failure::NoPoll { function: function.to_owned(), what });
        }
        // Not measurable beside the limit, and it leaves the processor to the function.
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A request's line and headers; it has no body.
fn read_request(mut connection: TcpStream) -> Result<String, Failure> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while request.len() < REQUEST_MAX && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = connection.read(&mut part)?;
        if count == 0 {
            break;
        }
        request.extend(part.iter().take(count));
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_upper_one() {
        let measured = |milliseconds: &[u64]| Measured {
            function: "images".to_owned(),
            bytes: 1,
            starts: milliseconds.iter().copied().map(Duration::from_millis).collect(),
        };
        assert_eq!(measured(&[1, 2, 9]).median(), Duration::from_millis(2));
        assert_eq!(measured(&[1, 2, 3, 9]).median(), Duration::from_millis(3));
        assert_eq!(measured(&[1, 2, 3, 9]).max(), Duration::from_millis(9));
    }

    #[test]
    fn what_is_no_function_says_so() {
        let failure = measure(Path::new("no/such/folder"), "images", 1).unwrap_err();
        assert!(failure.to_string().ends_with("build the functions with infra/build"), "{failure}");
        let failure = start(Path::new("/bin/true"), "images").unwrap_err();
        assert_eq!(failure.to_string(), "`images` didn't poll: it ended with exit status: 0");
    }
}
