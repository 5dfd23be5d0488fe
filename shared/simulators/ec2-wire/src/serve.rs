//! The server: one request, one call of the twin, one answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body::Frame;
use tenon_ec2::port::{DryRunOutcome, Page};
use tenon_ec2::{Ec2, Ec2Error};
use tenon_twin::RegionTwin;
use tokio::net::TcpListener;

use crate::answer;
use crate::authorization_message;
use crate::error::{WireError, of_call, refused};
use crate::fleet;
use crate::form::FormFields;
use crate::instance_profile;
use crate::launch_role::{self, RoleSessions};
use crate::parameters;
use crate::pricing;
use crate::request::{RunMode, WireRequest};
use crate::types;
use crate::xml::Xml;
use crate::zonal_shift;

/// The API's version, the only one there is.
const VERSION: &str = "2016-11-15";

#[derive(Clone)]
struct Served {
    twin: RegionTwin,
    requests: Arc<AtomicU64>,
    sessions: RoleSessions,
}

impl Served {
    fn request_id(&self) -> String {
        format!("twin-{}", self.requests.fetch_add(1, Ordering::Relaxed))
    }
}

/// Serves a twin's EC2 and the services beside it at a listener, until the future is dropped.
///
/// # Errors
/// When the listener fails.
pub async fn serve(twin: RegionTwin, listener: TcpListener) -> io::Result<()> {
    let served = Served { twin, requests: Arc::default(), sessions: RoleSessions::default() };
    let router = Router::new()
        .route("/", post(handle))
        .route("/managedresources/{*arn}", get(managed_resource))
        .with_state(served);
    axum::serve(listener, router).await
}

/// ARC's GetManagedResource; the resource's ARN is the rest of the path.
async fn managed_resource(State(served): State<Served>, Path(arn): Path<String>) -> Response {
    let request_id = served.request_id();
    match zonal_shift::answer(&served.twin, &arn).await {
        Ok(document) => send_json(200, document, &request_id),
        Err(error) => match of_call(error) {
            Some(refusal) => {
                let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
                let body = zonal_shift::refusal(&refusal);
                let headers = [
                    ("content-type", "application/json"),
                    ("x-amzn-errortype", refusal.code.as_str()),
                    ("x-amzn-requestid", request_id.as_str()),
                ];
                (status, headers, body).into_response()
            }
            None => Body::new(BrokenOff).into_response(),
        },
    }
}

async fn handle(State(served): State<Served>, headers: HeaderMap, body: Bytes) -> Response {
    let request_id = served.request_id();
    // JSON protocols name their operation in a header, Query protocols in the form.
    if let Some(target) = headers.get(pricing::TARGET_HEADER) {
        let target = target.as_bytes();
        let answered = if target.starts_with(parameters::SERVICE) {
            parameters::answer(&served.twin, target, &body).await
        } else {
            pricing::answer(&served.twin, target, &body).await
        };
        return match answered {
            Some((status, document)) => send_json(status, document, &request_id),
            None => Body::new(BrokenOff).into_response(),
        };
    }
    let of_service = if instance_profile::is_asked(&body) {
        Some(instance_profile::answer(&served.twin, &body, &request_id).await)
    } else if launch_role::is_asked(&body) {
        Some(launch_role::answer(&served.twin, &served.sessions, &body, &request_id))
    } else if authorization_message::is_asked(&body) {
        Some(authorization_message::answer(&served.twin, &body, &request_id).await)
    } else {
        None
    };
    if let Some(answered) = of_service {
        return match answered {
            Some((status, document)) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
                send(status, document, &request_id)
            }
            None => Body::new(BrokenOff).into_response(),
        };
    }
    let (action, request) = match read(&body) {
        Ok(read) => read,
        Err(refusal) => return refuse(&refusal, &request_id),
    };
    let caller = match served.sessions.caller(&headers, &served.twin) {
        Ok(caller) => caller,
        Err(refusal) => return refuse(&refusal, &request_id),
    };
    match call(&caller, request).await {
        Ok(content) => {
            let document = Xml::document(&format!("{action}Response"), |xml| {
                xml.text("requestId", &request_id);
                content(xml);
            });
            send(StatusCode::OK, document, &request_id)
        }
        Err(CallStop::Refused(refusal)) => refuse(&refusal, &request_id),
        Err(CallStop::NoAnswer) => Body::new(BrokenOff).into_response(),
    }
}

fn read(body: &[u8]) -> Result<(String, WireRequest), WireError> {
    let mut form = FormFields::parse(body)?;
    let action = form.required("Action")?;
    let version = form.required("Version")?;
    if version != VERSION {
        return Err(refused("NoSuchVersion", format!("The version {version} is not served")));
    }
    let request = WireRequest::read(&action, form)?;
    Ok((action, request))
}

fn send(status: StatusCode, document: String, request_id: &str) -> Response {
    let headers = [("content-type", "text/xml;charset=UTF-8"), ("x-amzn-requestid", request_id)];
    (status, headers, document).into_response()
}

fn send_json(status: u16, document: String, request_id: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amzn-requestid", request_id)];
    (status, headers, document).into_response()
}

fn refuse(refusal: &WireError, request_id: &str) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    send(status, refusal.document(request_id), request_id)
}

/// An answer that breaks off before its first byte, as when a connection is cut.
struct BrokenOff;

impl http_body::Body for BrokenOff {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())))
    }
}

/// A call that gives no answer of its own.
enum CallStop {
    Refused(WireError),
    NoAnswer,
}

impl From<Ec2Error> for CallStop {
    fn from(error: Ec2Error) -> Self {
        of_call(error).map_or(Self::NoAnswer, Self::Refused)
    }
}

/// A call of the twin, with the writer of its answer.
type Content = Box<dyn FnOnce(&mut Xml) + Send>;

fn content(write: impl FnOnce(&mut Xml) + Send + 'static) -> Result<Content, CallStop> {
    Ok(Box::new(write))
}

fn list<T: Send + 'static>(
    tag: &'static str,
    items: Vec<T>,
    write: impl Fn(&mut Xml, &T) + Send + 'static,
) -> Result<Content, CallStop> {
    content(move |xml| xml.set(tag, &items, write))
}

fn page<T: Send + 'static>(
    tag: &'static str,
    page: Page<T>,
    write: impl Fn(&mut Xml, &T) + Send + 'static,
) -> Result<Content, CallStop> {
    content(move |xml| answer::page(xml, tag, &page, write))
}

/// EC2 gives both outcomes of a dry run as errors.
fn dry_run(outcome: DryRunOutcome) -> Result<Content, CallStop> {
    let (status, code, message) = match outcome {
        DryRunOutcome::WouldSucceed => {
            let message = "Request would have succeeded, but DryRun flag is set.".to_owned();
            (412, "DryRunOperation", message)
        }
        DryRunOutcome::Unauthorized { message, .. } => (403, "UnauthorizedOperation", message),
    };
    Err(CallStop::Refused(WireError { status, code: code.to_owned(), message }))
}

fn done(answer: Result<(), Ec2Error>) -> Result<Content, CallStop> {
    answer?;
    content(|xml| xml.text("return", true))
}

async fn call(twin: &RegionTwin, request: WireRequest) -> Result<Content, CallStop> {
    match request {
        WireRequest::InstanceTypes(at) => {
            page("instanceTypeSet", twin.describe_instance_types(at).await?, types::instance_type)
        }
        WireRequest::Offerings(by, at) => {
            let found = twin.describe_instance_type_offerings(by, at).await?;
            page("instanceTypeOfferingSet", found, move |xml, offering| answer::offering(xml, offering, by))
        }
        WireRequest::Zones => {
            list("availabilityZoneInfo", twin.describe_availability_zones().await?, answer::zone)
        }
        WireRequest::SpotPrices(at) => {
            page("spotPriceHistorySet", twin.describe_spot_price_history(at).await?, answer::spot_price)
        }
        WireRequest::Images(filter, at) => {
            page("imagesSet", twin.describe_images(&filter, at).await?, answer::image)
        }
        WireRequest::Subnets(filter) => {
            list("subnetSet", twin.describe_subnets(&filter).await?, answer::subnet)
        }
        WireRequest::SecurityGroups(filter) => {
            list("securityGroupInfo", twin.describe_security_groups(&filter).await?, answer::security_group)
        }
        WireRequest::Snapshots(filter) => {
            list("snapshotSet", twin.describe_snapshots(&filter).await?, answer::snapshot)
        }
        WireRequest::Reservations(filter) => {
            let found = twin.describe_capacity_reservations(&filter).await?;
            list("capacityReservationSet", found, answer::capacity_reservation)
        }
        WireRequest::PlacementGroups(of) => {
            list("placementGroupSet", twin.describe_placement_groups(&of).await?, answer::placement_group)
        }
        WireRequest::CreateTemplate(template) => {
            let made = twin.create_launch_template(&template).await?;
            content(move |xml| xml.within("launchTemplate", |xml| answer::template(xml, &made)))
        }
        WireRequest::Templates(filter, at) => {
            page("launchTemplates", twin.describe_launch_templates(&filter, at).await?, answer::template)
        }
        WireRequest::DeleteTemplate(name) => done(twin.delete_launch_template(&name).await),
        WireRequest::CreateFleet(request, RunMode::Real) => {
            let result = twin.create_fleet(&request).await?;
            content(move |xml| fleet::result(xml, &result))
        }
        WireRequest::CreateFleet(request, RunMode::Dry) => {
            dry_run(twin.dry_run_create_fleet(&request).await?)
        }
        WireRequest::ProbeInstances(probe) => dry_run(twin.dry_run_run_instances(&probe).await?),
        WireRequest::Instances(filter, at) => {
            page("reservationSet", twin.describe_instances(&filter, at).await?, answer::reservation)
        }
        WireRequest::InstanceStatus(filter, at) => page(
            "instanceStatusSet",
            twin.describe_instance_status(filter, at).await?,
            answer::instance_status,
        ),
        WireRequest::Console(id) => {
            let output = twin.console_output(&id).await?;
            content(move |xml| answer::console(xml, &id, output.as_deref()))
        }
        WireRequest::Terminate(ids) => {
            list("instancesSet", twin.terminate_instances(&ids).await?, answer::state_change)
        }
        WireRequest::CreateTags(ids, tags) => done(twin.create_tags(&ids, &tags).await),
    }
}
