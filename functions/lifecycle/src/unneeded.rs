//! `UNNEEDED`: the launch templates that nothing needed at the last look, and since when.
//!
//! Decides the form only. A template that is needed again isn't in it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_table::Key;
use tenon_table::items::form::{Attributes, Fields};
use tenon_table::items::template::{read_times, write_times};
use tenon_table::items::{FieldError, ItemForm, keys};

/// The unneeded launch templates of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnneededTemplates {
    /// The count of changes; 0 before the first.
    pub revision: u64,
    /// The first look that saw no need of each, by name.
    pub since: BTreeMap<String, Timestamp>,
}

impl UnneededTemplates {
    /// The key of the item.
    #[must_use]
    pub fn key(cluster: &ClusterName) -> Key {
        Key::new(keys::cluster_pk(cluster), "UNNEEDED")
    }
}

impl ItemForm for UnneededTemplates {
    fn write(&self, to: &mut Attributes) {
        to.number("revision", self.revision);
        write_times("since", &self.since, to);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { revision: from.u64("revision")?, since: read_times("since", from)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_table::items::{from_item, to_item};

    #[test]
    fn the_item_comes_back() {
        let since = BTreeMap::from([("tenon-12ab".to_owned(), Timestamp::UNIX_EPOCH)]);
        let key = UnneededTemplates::key(&ClusterName::parse("prod").unwrap());
        for record in [UnneededTemplates { revision: 2, since }, UnneededTemplates::default()] {
            assert_eq!(from_item::<UnneededTemplates>(&key, &to_item(&record)).unwrap(), record);
        }
    }
}
