//! Where a request says that it comes from, and where its answer may go.
//!
//! Decides both by their texts: a stack of this account and region, and CloudFormation's own bucket. Doesn't decide who
//! may invoke the function, nor whether the named stack really asks: IAM does,
//! `docs/decisions/iam-decides-who-asks-the-registry.md`.
//!
//! Invariant: an answer goes to CloudFormation's bucket, or to a rehearsal on this machine.

use tenon_domain::id::Region;
use tenon_domain::partition::AwsPartition;
use tenon_runtime::Installation;

/// The start of the bucket's name; the region without its dashes follows. Source: CloudFormation User Guide, "Access
/// CloudFormation using an interface endpoint", read 2026-11.
const BUCKET: &str = "cloudformation-custom-resource-response-";
/// A rehearsal's server, up to its port.
const LOOPBACK: &str = "http://127.0.0.1:";

/// Scheme and host of the URLs that answers may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerOrigins {
    origins: Vec<String>,
}

impl AnswerOrigins {
    /// CloudFormation's bucket of a region, by the host names that S3 has for it: a bucket's name is unique in its
    /// partition. Sources: Lambda Developer Guide, "Using Lambda with CloudFormation", has the second form, its edition
    /// for China the first; aws-cloudformation/aws-cloudformation-templates#100 the third, in `us-east-1`; read 2026-11.
    #[must_use]
    pub fn of_region(region: &Region) -> Self {
        let (place, suffix) = (region.as_str().replace('-', ""), AwsPartition::of(region).url_suffix);
        let endpoints = [format!("s3.{region}"), format!("s3-{region}"), "s3".to_owned()];
        let origin = |endpoint: String| format!("https://{BUCKET}{place}.{endpoint}.{suffix}");
        Self { origins: endpoints.into_iter().map(origin).collect() }
    }

    /// The same, and a server of this machine for rehearsals; `None` if the text isn't `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn with_rehearsal(mut self, origin: &str) -> Option<Self> {
        let port: u16 = origin.strip_prefix(LOOPBACK)?.parse().ok()?;
        self.origins.push(format!("{LOOPBACK}{port}"));
        Some(self)
    }

    /// Whether an answer may go to the URL. The text is compared up to the slash that ends the host, so no reader of
    /// URLs can find another host in it.
    #[must_use]
    pub fn allow(&self, url: &str) -> bool {
        let of =
            |origin: &String| url.strip_prefix(origin.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.origins.iter().any(of)
    }
}

/// Whether the stack is one of this account and region.
///
/// # Errors The reason for its refusal.
pub(crate) fn check_stack(installation: &Installation, stack: &str) -> Result<(), String> {
    let Installation { region, account, .. } = installation;
    let ours = format!("arn:{}:cloudformation:{region}:{account}:stack/", AwsPartition::of(region).name);
    if stack.starts_with(&ours) {
        Ok(())
    } else {
        Err(format!("stack `{stack}` is refused: expected a stack of this account and region, `{ours}…`"))
    }
}

#[cfg(test)]
mod tests {
    use tenon_domain::id::InstallationId;

    use super::*;

    const PATH: &str = "/arn%3Aaws%3Acloudformation%3A?Expires=1&Signature=a%3D";

    fn check(region: &str, host: &str, expected: bool) {
        let origins = AnswerOrigins::of_region(&Region::parse(region).unwrap());
        let url = format!("{host}{PATH}");
        assert_eq!(origins.allow(&url), expected, "{region}: {url}");
    }

    #[test]
    fn answers_go_to_the_bucket_of_the_region() {
        let of =
            |place: &str, end: &str| format!("https://cloudformation-custom-resource-response-{place}.{end}");
        check("us-east-1", &of("useast1", "s3.us-east-1.amazonaws.com"), true);
        check("us-east-1", &of("useast1", "s3-us-east-1.amazonaws.com"), true);
        check("us-east-1", &of("useast1", "s3.amazonaws.com"), true);
        check("eu-west-1", &of("euwest1", "s3-eu-west-1.amazonaws.com"), true);
        check("us-gov-west-1", &of("usgovwest1", "s3.us-gov-west-1.amazonaws.com"), true);
        check("cn-north-1", &of("cnnorth1", "s3.cn-north-1.amazonaws.com.cn"), true);
        check("eu-west-1", &of("useast1", "s3.us-east-1.amazonaws.com"), false);
        check("cn-north-1", &of("cnnorth1", "s3.cn-north-1.amazonaws.com"), false);
        check("us-east-1", &of("useast1", "s3.us-east-1.amazonaws.com.cn"), false);
    }

    #[test]
    fn nothing_else_gets_an_answer() {
        let bucket = "https://cloudformation-custom-resource-response-useast1.s3.us-east-1.amazonaws.com";
        check("us-east-1", bucket, true);
        for other in [
            "https://example.com".to_owned(),
            "http://127.0.0.1:4566".to_owned(),
            "http://169.254.169.254".to_owned(),
            bucket.replace("https", "http"),
            bucket.replace("useast1", "useast1-mine"),
            format!("{bucket}.example.com"),
            format!("{bucket}:8443"),
            format!("{bucket}@example.com"),
            format!("{bucket}?a=@example.com"),
            format!("{bucket}\\@example.com"),
            format!("https://example.com/{bucket}"),
            format!(" {bucket}"),
        ] {
            check("us-east-1", &other, false);
        }
        let origins = AnswerOrigins::of_region(&Region::parse("us-east-1").unwrap());
        assert!(!origins.allow(bucket), "it has no path");
    }

    #[test]
    fn a_rehearsal_is_a_port_of_this_machine() {
        let of_region = AnswerOrigins::of_region(&Region::parse("us-east-1").unwrap());
        let origins = of_region.clone().with_rehearsal("http://127.0.0.1:4566").unwrap();
        assert!(origins.allow("http://127.0.0.1:4566/answer"));
        assert!(!origins.allow("http://127.0.0.1:45660/answer") && !origins.allow("http://127.0.0.1:80/"));
        for other in
            ["http://example.com:80", "http://127.0.0.1", "http://127.0.0.1:", "http://127.0.0.1:80/"]
        {
            assert_eq!(of_region.clone().with_rehearsal(other), None, "{other}");
        }
    }

    #[test]
    fn a_stack_is_of_this_account_region_and_partition() {
        let check = |region: &str, stack: &str, expected: bool| {
            let installation = Installation {
                id: InstallationId::parse("tenon").unwrap(),
                region: Region::parse(region).unwrap(),
                account: "111122223333".to_owned(),
                table: "tenon".to_owned(),
            };
            assert_eq!(check_stack(&installation, stack).is_ok(), expected, "{region}: {stack}");
        };
        check("us-east-1", "arn:aws:cloudformation:us-east-1:111122223333:stack/prod/1", true);
        check("cn-north-1", "arn:aws-cn:cloudformation:cn-north-1:111122223333:stack/prod/1", true);
        check("us-gov-west-1", "arn:aws-us-gov:cloudformation:us-gov-west-1:111122223333:stack/prod/1", true);
        check("us-east-1", "arn:aws:cloudformation:us-east-1:444455556666:stack/prod/1", false);
        check("us-east-1", "arn:aws:cloudformation:eu-west-1:111122223333:stack/prod/1", false);
        check("cn-north-1", "arn:aws:cloudformation:cn-north-1:111122223333:stack/prod/1", false);
        check("us-east-1", "arn:aws:cloudformation:us-east-1:111122223333:stackset/prod:1", false);
        check("us-east-1", "prod", false);
    }
}
