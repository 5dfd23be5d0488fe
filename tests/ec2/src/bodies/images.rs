//! Images.

use tenon_domain::id::ImageId;
use tenon_ec2::port::{DisabledImages, Image, ImageArchitecture, ImageFilter, ImageState, TagFilter};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};

use super::pages;
use crate::difference::Difference;
use crate::server::{IMAGES_TAG, Server};

const UNKNOWN: &str = "ami-0000000000000dead";

async fn find<S: Server>(server: &S, filter: &ImageFilter) -> Vec<Image> {
    let pages = pages(|page| server.ec2().describe_images(filter, page)).await;
    pages.into_iter().flatten().collect()
}

fn ids(images: &[Image]) -> Vec<ImageId> {
    let mut ids: Vec<_> = images.iter().map(|image| image.id.clone()).collect();
    ids.sort();
    ids
}

fn all() -> ImageFilter {
    let (key, value) = IMAGES_TAG;
    ImageFilter { tags: vec![TagFilter::equals(key, value)], ..ImageFilter::default() }
}

/// A query returns unusable images too, with their states.
pub async fn images_are_told_in_every_state<S: Server>(server: &S) {
    let world = server.world();
    let found = find(server, &all()).await;
    for (state, id) in &world.images {
        let image = found.iter().find(|image| image.id == *id).unwrap();
        assert_eq!((image.state, image.architecture), (*state, Some(ImageArchitecture::X86_64)));
        assert_eq!((&image.name, &image.owner), (&format!("edges-x86-{}", state.as_str()), &world.owner));
        assert_eq!(image.facts.root_device_name.as_deref(), Some("/dev/xvda"));
        assert!(image.created_at.is_some());
    }
    assert_eq!(found.len(), world.images.len() + 1);
}

/// By state, name, owner and id.
pub async fn images_are_found_by_what_is_asked_for<S: Server>(server: &S) {
    let world = server.world();
    let pending = vec![world.images[&ImageState::Pending].clone()];
    let filter = ImageFilter { states: vec![ImageState::Pending], ..all() };
    assert_eq!(ids(&find(server, &filter).await), pending);
    let filter = ImageFilter { names: vec!["edges-*-pending".to_owned()], ..ImageFilter::default() };
    assert_eq!(ids(&find(server, &filter).await), pending);
    let filter = ImageFilter { ids: pending.clone(), ..ImageFilter::default() };
    assert_eq!(ids(&find(server, &filter).await), pending);
    let filter = ImageFilter { owners: vec![world.owner.clone()], ..all() };
    assert_eq!(find(server, &filter).await.len(), world.images.len() + 1);
    let filter = ImageFilter { owners: vec!["999999999999".to_owned()], ..all() };
    assert_eq!(find(server, &filter).await, []);
    let filter = ImageFilter { disabled: DisabledImages::Omit, ..all() };
    let told = find(server, &filter).await.iter().any(|image| image.state == ImageState::Disabled);
    assert_eq!(told, server.differs(Difference::DisabledAlwaysTold));
}

/// An id that doesn't exist is in the error, so that the caller can ask for the others.
pub async fn an_unknown_image_is_named<S: Server>(server: &S) {
    let unknown: ImageId = UNKNOWN.parse().unwrap();
    let mut filter = ImageFilter { ids: vec![unknown.clone()], ..ImageFilter::default() };
    let error = server.ec2().describe_images(&filter, None).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::ImageUnavailable);
    let Ec2Error::NotFound { ids: missing, .. } = error else { panic!("{error:?}") };
    assert_eq!(missing, [UNKNOWN]);
    let known = server.world().image();
    filter.ids.push(known.clone());
    let answer = server.ec2().describe_images(&filter, None).await;
    if server.differs(Difference::MissingImagesAreSilent) {
        assert_eq!(ids(&answer.unwrap().items), [known]);
    } else {
        assert_eq!(answer.unwrap_err().class(), ErrorClass::ImageUnavailable);
    }
}
