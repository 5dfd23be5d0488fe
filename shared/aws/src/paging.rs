//! Pages of EC2's lists: their sizes, their tokens, and lists that the port gives whole.
//!
//! Decides when a list is complete, and when it has too many pages. Which call pages which way is decided where it is
//! called.
//!
//! Invariant: a whole list is sorted, and never cut.

use aws_smithy_types::DateTime;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::PageToken;

/// The most pages of an unpaged answer of the port: ten times EC2's quotas of subnets (200 a VPC) and security groups
/// (2,500 a region). A longer list has a broken token.
const PAGES_MAX: usize = 25;

pub(crate) fn token(page: Option<PageToken>) -> Option<String> {
    page.map(|PageToken(token)| token)
}

/// A page size, where EC2 takes one.
pub(crate) fn size(of_page: i32, named: usize) -> Option<i32> {
    (named == 0).then_some(of_page)
}

/// The start of a list of spot prices and EC2's token: every page asks for prices at the same moment.
pub(crate) fn spot_place(page: Option<PageToken>, now: DateTime) -> (DateTime, Option<String>) {
    let placed = page.and_then(|PageToken(text)| {
        let (secs, token) = text.split_once(' ')?;
        Some((DateTime::from_secs(secs.parse().ok()?), token.to_owned()))
    });
    match placed {
        Some((start, token)) => (start, Some(token)),
        None => (DateTime::from_secs(now.secs()), None),
    }
}

/// A list that the port gives whole, sorted, and EC2 page by page.
pub(crate) struct AllPages<T> {
    action: &'static str,
    found: Vec<T>,
    next: Option<PageToken>,
    left: usize,
}

impl<T: Ord> AllPages<T> {
    pub(crate) const fn new(action: &'static str) -> Self {
        Self { action, found: Vec::new(), next: None, left: PAGES_MAX }
    }

    /// EC2's token of the page to ask for.
    pub(crate) fn token(&mut self) -> Option<String> {
        token(self.next.take())
    }

    /// Adds a page; the whole list if it was the last one.
    ///
    /// # Errors
    /// [`Ec2Error::Invalid`] if the list doesn't end.
    pub(crate) fn add(&mut self, page: Vec<T>, next: Option<PageToken>) -> Result<Option<Vec<T>>, Ec2Error> {
        self.found.extend(page);
        if next.is_none() {
            self.found.sort();
            return Ok(Some(std::mem::take(&mut self.found)));
        }
        self.next = next;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Err(endless(self.action)) } else { Ok(None) }
    }
}

fn endless(action: &str) -> Ec2Error {
    Ec2Error::Invalid {
        action: action.to_owned(),
        code: "TooManyPages".to_owned(),
        message: format!("the answer has more than {PAGES_MAX} pages"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_whole_with_its_last_page_and_an_error_without_one() {
        let more = || Some(PageToken("more".to_owned()));
        let mut pages = AllPages::new("DescribeSubnets");
        assert_eq!(pages.token(), None);
        assert_eq!(pages.add(vec![2], more()).unwrap(), None);
        assert_eq!(pages.token().as_deref(), Some("more"));
        assert_eq!(pages.add(vec![1], None).unwrap(), Some(vec![1, 2]));
        let mut endless = AllPages::new("DescribeSubnets");
        for _ in 1..PAGES_MAX {
            assert_eq!(endless.add(vec![1], more()).unwrap(), None);
        }
        assert!(endless.add(vec![1], more()).is_err());
    }
}
