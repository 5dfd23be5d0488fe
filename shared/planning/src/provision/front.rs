//! The types of a class that are worth a look.
//!
//! Decides which types no other one replaces, by price and room, and which of their sizes packing tries.

use std::sync::Arc;

use super::daemons::TypeRoom;
use super::dense::within;
use super::pool::Type;

/// The types for which no other type is both at most as expensive and at least as large.
pub(crate) fn front(types: &[Type<'_>], rooms: &[TypeRoom], prices: &[Option<u64>]) -> Arc<[usize]> {
    let mut priced: Vec<(u64, usize, &Type<'_>, &TypeRoom)> = prices
        .iter()
        .zip(types)
        .zip(rooms)
        .enumerate()
        .filter_map(|(index, ((price, one), room))| Some(((*price)?, index, one, room)))
        .filter(|(_, _, _, room)| room.amounts.iter().all(|amount| *amount >= 0))
        .collect();
    priced.sort_by(|a, b| (a.0, &b.3.amounts, a.1).cmp(&(b.0, &a.3.amounts, b.1)));
    let mut front: Vec<(usize, &Type<'_>, &TypeRoom)> = Vec::new();
    for (_, index, one, room) in priced {
        // The dearest of them are likeliest to be larger.
        let dominated = front.iter().rev().any(|(_, kept, kept_room)| {
            within(&room.amounts, &kept_room.amounts)
                && within_charges(&kept.charges, &one.charges)
                && (Arc::ptr_eq(&kept_room.host_ports, &room.host_ports)
                    || kept_room.host_ports.is_subset(&room.host_ports))
        });
        if !dominated {
            front.push((index, one, room));
        }
    }
    front.into_iter().map(|(index, ..)| index).collect()
}

/// In percent: types whose prices differ by less are one size.
const SAME_SIZE: u64 = 120;
/// In percent: types whose room for their price differs by less are the same but for their size.
const SAME_SHAPE: f64 = 104.0;

/// The types of a front without those that a slightly cheaper one stands for: it has nearly the same room for its price.
/// The cheapest is always kept.
#[expect(clippy::cast_precision_loss, reason = "only near ratios are looked for")]
pub(crate) fn thinned(rooms: &[TypeRoom], prices: &[Option<u64>], front: &[usize]) -> Arc<[usize]> {
    let mut kept: Vec<(usize, u64, &TypeRoom)> = Vec::new();
    for index in front {
        let (Some(room), Some(Some(price))) = (rooms.get(*index), prices.get(*index)) else { continue };
        let stands_for = |(_, other, kept): &&(usize, u64, &TypeRoom)| {
            let near = |(a, b): (&i64, &i64)| {
                let (a, b) = (*a as f64 * *other as f64, *b as f64 * *price as f64);
                a.max(b) * 100.0 <= a.min(b) * SAME_SHAPE
            };
            room.amounts.iter().zip(&kept.amounts).all(near)
        };
        // Prices ascend.
        let mut alike = kept.iter().rev().take_while(|(_, other, _)| *price * 100 < *other * SAME_SIZE);
        if alike.find(stands_for).is_none() {
            kept.push((*index, *price, room));
        }
    }
    kept.into_iter().map(|(index, ..)| index).collect()
}

fn within_charges(charges: &[i128], bound: &[i128]) -> bool {
    charges.iter().zip(bound).all(|(charge, bound)| charge <= bound)
}
