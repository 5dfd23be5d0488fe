//! Images of the twin: pending, available or failed, disabled, deregistered.
//!
//! Decides an image's state over time, and its events. Invariant: only images of this account have events, because
//! EC2 informs the owner, and `pending` has none.

use std::collections::BTreeMap;

use tenon_domain::id::ImageId;
use tenon_domain::{SignedDuration, Timestamp};

use super::call::Call;
use super::published::PublishedImage;
use super::random::draw;
use super::state::{DueEvent, TwinState, error};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    BootMode, DisabledImages, EnaSupport, Image, ImageArchitecture, ImageFacts, ImageFilter, ImageState,
    ImageVolume, ResourceFilter, RootDeviceType, SnapshotState, Tags, VolumeSnapshot, wildcard_matches,
};

/// How the making of an image ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageOutcome {
    /// It becomes available.
    Available,
    /// It fails, with this message.
    Failed(String),
}

/// What is wrong with an available image: EC2 launches it, and its instances show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDefect {
    /// The launch may not use the KMS key of its volumes: EC2 terminates the instance before it runs.
    Key,
    /// Its instances run, and their kubelets never join.
    Boot,
}

/// An image to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImage {
    /// Its name.
    pub name: String,
    /// The account that owns it; `None` is the twin's own.
    pub owner: Option<String>,
    /// The owner's alias, such as `amazon`.
    pub owner_alias: Option<String>,
    /// Its architecture.
    pub architecture: ImageArchitecture,
    /// Its tags.
    pub tags: Tags,
    /// How long it takes; `None` draws it from the twin's delays.
    pub delay: Option<SignedDuration>,
    /// How it ends.
    pub outcome: ImageOutcome,
    /// Its deprecation time.
    pub deprecated_at: Option<Timestamp>,
    /// What launches from it depend on. The twin makes the snapshot of the root volume.
    pub facts: ImageFacts,
}

/// The root volume's device, as in Amazon Linux.
const ROOT_DEVICE: &str = "/dev/xvda";
/// Its size: the least of the EKS-optimised AMIs, Bottlerocket's, so that every family's devices are large enough.
const ROOT_GIB: u32 = 2;

fn volume(snapshot: Option<String>) -> ImageVolume {
    ImageVolume { snapshot, size_gib: Some(ROOT_GIB), encrypted: Some(false) }
}

/// Those of a current image.
fn current_facts() -> ImageFacts {
    ImageFacts {
        boot_mode: Some(BootMode::UefiPreferred),
        ena: Some(EnaSupport::Enabled),
        platform: None,
        root_device_type: Some(RootDeviceType::Ebs),
        root_device_name: Some(ROOT_DEVICE.to_owned()),
        volumes: BTreeMap::from([(ROOT_DEVICE.to_owned(), volume(None))]),
    }
}

impl NewImage {
    /// An image of the twin's own account that becomes available.
    #[must_use]
    pub fn named(name: impl Into<String>, architecture: ImageArchitecture) -> Self {
        Self {
            name: name.into(),
            owner: None,
            owner_alias: None,
            architecture,
            tags: Tags::new(),
            delay: None,
            outcome: ImageOutcome::Available,
            deprecated_at: None,
            facts: current_facts(),
        }
    }
}

#[derive(Debug)]
pub(super) struct TwinImage {
    pub(super) image: Image,
    outcome: ImageOutcome,
    defect: Option<ImageDefect>,
}

impl TwinState {
    /// Begins to make an image: it is pending until its delay is over.
    pub(super) fn create_image(&mut self, new: NewImage) -> ImageId {
        let (id, delay) = self.insert_image(new);
        self.schedule(delay, DueEvent::Image(id.clone()));
        id
    }

    /// Puts an image there that has been available for long: no event.
    pub(super) fn add_image(&mut self, new: NewImage) -> ImageId {
        let (id, _) = self.insert_image(new);
        if let Some(image) = self.images.get_mut(&id) {
            image.image.state = ImageState::Available;
        }
        id
    }

    /// Puts one of AWS's images there. Its id follows from its name, so that no other id depends on it.
    pub(super) fn add_published(&mut self, published: PublishedImage) -> Option<ImageId> {
        let seed = self.config.seed;
        let number = draw(seed, &["published image", &published.name]);
        let id =
            ImageId::parse(format!("ami-0{number:016x}")).ok().filter(|id| !self.images.contains_key(id))?;
        let (owner, owner_alias) = (published.owner.to_owned(), Some("amazon".to_owned()));
        let mut volumes = BTreeMap::new();
        for device in published.family.devices() {
            let number = draw(seed, &["published snapshot", &published.name, device]);
            let snapshot = VolumeSnapshot {
                id: format!("snap-0{number:016x}"),
                owner: owner.clone(),
                owner_alias: owner_alias.clone(),
                state: Some(SnapshotState::Completed),
                tags: Tags::new(),
            };
            volumes.insert((*device).to_owned(), volume(Some(snapshot.id.clone())));
            self.snapshots.insert(snapshot.id.clone(), snapshot);
        }
        let image = Image {
            id: id.clone(),
            name: published.name,
            owner,
            owner_alias,
            architecture: Some(published.architecture),
            state: ImageState::Available,
            created_at: Some(published.released_at.min(self.now)),
            deprecated_at: None,
            facts: ImageFacts {
                platform: published.family.platform(),
                root_device_name: published.family.devices().first().map(|device| (*device).to_owned()),
                volumes,
                ..current_facts()
            },
            tags: Tags::new(),
        };
        self.images.insert(id.clone(), TwinImage { image, outcome: ImageOutcome::Available, defect: None });
        Some(id)
    }

    fn insert_image(&mut self, new: NewImage) -> (ImageId, SignedDuration) {
        let id = loop {
            let number = self.number().to_string();
            let text = format!("ami-0{:016x}", draw(self.config.seed, &["image", &number]));
            match ImageId::parse(text) {
                Ok(id) if !self.images.contains_key(&id) => break id,
                Ok(_) | Err(_) => {}
            }
        };
        let delay = new
            .delay
            .unwrap_or_else(|| self.config.delays.image.draw(self.config.seed, &["delay", id.as_str()]));
        let owner = new.owner.unwrap_or_else(|| self.config.account.clone());
        let snapshot = VolumeSnapshot {
            id: id.as_str().replacen("ami-", "snap-", 1),
            owner: owner.clone(),
            owner_alias: new.owner_alias.clone(),
            state: Some(SnapshotState::Completed),
            tags: Tags::new(),
        };
        let mut facts = new.facts;
        let root = facts.root_device_name.as_ref().and_then(|root| facts.volumes.get_mut(root));
        if let Some(root) = root {
            root.snapshot.get_or_insert_with(|| snapshot.id.clone());
        }
        let image = Image {
            id: id.clone(),
            name: new.name,
            owner,
            owner_alias: new.owner_alias,
            architecture: Some(new.architecture),
            state: ImageState::Pending,
            created_at: Some(self.now),
            deprecated_at: new.deprecated_at,
            facts,
            tags: new.tags,
        };
        self.snapshots.insert(snapshot.id.clone(), snapshot);
        self.images.insert(id.clone(), TwinImage { image, outcome: new.outcome, defect: None });
        (id, delay)
    }

    pub(super) fn finish_image(&mut self, id: &ImageId) {
        let Some(image) = self.images.get(id).filter(|i| i.image.state == ImageState::Pending) else {
            return;
        };
        let (state, message) = match &image.outcome {
            ImageOutcome::Available => (ImageState::Available, String::new()),
            ImageOutcome::Failed(message) => (ImageState::Failed, message.clone()),
        };
        self.set_image_state(id, state, &message);
    }

    /// Disables, enables or deregisters an image.
    pub(super) fn change_image(&mut self, id: &ImageId, to: ImageState) -> Result<(), NotPossible> {
        let state = self.images.get(id).map(|i| i.image.state);
        let allowed = match to {
            ImageState::Disabled => state == Some(ImageState::Available),
            ImageState::Available => state == Some(ImageState::Disabled),
            ImageState::Deregistered => state.is_some_and(|s| s != ImageState::Deregistered),
            ImageState::Pending | ImageState::Failed | ImageState::Invalid => false,
        };
        if !allowed {
            let state = state.map_or("unknown", ImageState::as_str);
            return refuse(format!("image `{id}` is {state} and can't become {}", to.as_str()));
        }
        self.set_image_state(id, to, "");
        Ok(())
    }

    pub(super) fn tag_image(&mut self, id: &ImageId, key: &str, value: &str) -> Result<(), NotPossible> {
        let Some(image) = self.images.get_mut(id) else {
            return refuse(format!("image `{id}` doesn't exist"));
        };
        image.image.tags.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Breaks an image for instances that are launched from now on, or mends it.
    pub(super) fn set_defect(
        &mut self,
        id: &ImageId,
        defect: Option<ImageDefect>,
    ) -> Result<(), NotPossible> {
        let Some(image) = self.images.get_mut(id) else {
            return refuse(format!("image `{id}` doesn't exist"));
        };
        image.defect = defect;
        Ok(())
    }

    pub(super) fn defect(&self, id: &ImageId) -> Option<ImageDefect> {
        self.images.get(id).and_then(|image| image.defect)
    }

    fn set_image_state(&mut self, id: &ImageId, state: ImageState, message: &str) {
        let Some(image) = self.images.get_mut(id) else { return };
        image.image.state = state;
        if image.image.owner == self.config.account {
            self.emit(|source| source.image_state(id, state, message));
        }
    }

    pub(super) fn image_state(&self, id: &ImageId) -> Option<ImageState> {
        self.images.get(id).map(|i| i.image.state)
    }

    pub(super) fn snapshots_matching(
        &self,
        filter: &ResourceFilter,
    ) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
        if let Some(id) = filter.ids.iter().find(|id| !self.snapshots.contains_key(*id)) {
            let message = format!("The snapshot '{id}' does not exist.");
            return Err(error(Call::DescribeSnapshots, "InvalidSnapshot.NotFound", &message));
        }
        let matches = |snapshot: &&VolumeSnapshot| {
            (filter.ids.is_empty() || filter.ids.contains(&snapshot.id))
                && filter.tags.iter().all(|tag| tag.matches(&snapshot.tags))
        };
        Ok(self.snapshots.values().filter(matches).cloned().collect())
    }

    pub(super) fn images_matching(&self, filter: &ImageFilter) -> Result<Vec<Image>, Ec2Error> {
        let known = |id: &&ImageId| self.image_state(id).is_none_or(|s| s == ImageState::Deregistered);
        let missing: Vec<_> = filter.ids.iter().filter(known).map(ImageId::as_str).collect();
        if !missing.is_empty() {
            let message = format!("The image ids '[{}]' do not exist", missing.join(", "));
            return Err(error(Call::DescribeImages, "InvalidAMIID.NotFound", &message));
        }
        Ok(self
            .images
            .values()
            .map(|i| &i.image)
            .filter(|i| self.image_matches(filter, i))
            .cloned()
            .collect())
    }

    fn image_matches(&self, filter: &ImageFilter, image: &Image) -> bool {
        let any =
            |list: &[String], matches: &dyn Fn(&String) -> bool| list.is_empty() || list.iter().any(matches);
        let owned_by = |owner: &String| {
            *owner == image.owner
                || (owner == "self" && image.owner == self.config.account)
                || image.owner_alias.as_ref() == Some(owner)
        };
        let shown = match image.state {
            ImageState::Deregistered => false,
            // Its owner alone still sees it ("Disable an Amazon EC2 AMI", EC2 user guide, read November 2026).
            ImageState::Disabled => {
                filter.disabled == DisabledImages::Include && image.owner == self.config.account
            }
            ImageState::Pending | ImageState::Available | ImageState::Failed | ImageState::Invalid => true,
        };
        shown
            && (filter.ids.is_empty() || filter.ids.contains(&image.id))
            && (filter.states.is_empty() || filter.states.contains(&image.state))
            && any(&filter.owners, &owned_by)
            && any(&filter.names, &|name| wildcard_matches(name, &image.name))
            && filter.tags.iter().all(|t| t.matches(&image.tags))
    }
}
