//! The types of a class that are worth a look.
//!
//! Decides which types no other one replaces, by price and room, and which of their sizes packing tries.

use std::sync::Arc;

use super::dense::within;
use super::pool::Type;

/// The types for which no other type is both at most as expensive and at least as large.
pub(crate) fn front(types: &[Type<'_>], prices: &[Option<u64>]) -> Arc<[usize]> {
    let mut priced: Vec<(u64, usize, &Type<'_>)> = prices
        .iter()
        .zip(types)
        .enumerate()
        .filter_map(|(index, (price, one))| Some(((*price)?, index, one)))
        .filter(|(_, _, one)| one.room.iter().all(|amount| *amount >= 0))
        .collect();
    priced.sort_by(|a, b| (a.0, &b.2.room, a.1).cmp(&(b.0, &a.2.room, b.1)));
    let mut front: Vec<(usize, &Type<'_>)> = Vec::new();
    for (_, index, one) in priced {
        // The dearest of them are likeliest to be larger.
        let dominated = front.iter().rev().any(|(_, kept)| {
            within(&one.room, &kept.room)
                && within_charges(&kept.charges, &one.charges)
                && (Arc::ptr_eq(&kept.host_ports, &one.host_ports)
                    || kept.host_ports.is_subset(&one.host_ports))
        });
        if !dominated {
            front.push((index, one));
        }
    }
    front.into_iter().map(|(index, _)| index).collect()
}

/// In percent: types whose prices differ by less are one size.
const SAME_SIZE: u64 = 120;
/// In percent: types whose room for their price differs by less are the same but for their size.
const SAME_SHAPE: f64 = 104.0;

/// The types of a front without those that a slightly cheaper one stands for: it has nearly the same room for its price.
/// The cheapest is always kept.
#[expect(clippy::cast_precision_loss, reason = "only near ratios are looked for")]
pub(crate) fn thinned(types: &[Type<'_>], prices: &[Option<u64>], front: &[usize]) -> Arc<[usize]> {
    let mut kept: Vec<(usize, u64, &Type<'_>)> = Vec::new();
    for index in front {
        let (Some(one), Some(Some(price))) = (types.get(*index), prices.get(*index)) else { continue };
        let stands_for = |(_, other, kept): &&(usize, u64, &Type<'_>)| {
            let near = |(a, b): (&i64, &i64)| {
                let (a, b) = (*a as f64 * *other as f64, *b as f64 * *price as f64);
                a.max(b) * 100.0 <= a.min(b) * SAME_SHAPE
            };
            one.room.iter().zip(&kept.room).all(near)
        };
        // Prices ascend.
        let mut alike = kept.iter().rev().take_while(|(_, other, _)| *price * 100 < *other * SAME_SIZE);
        if alike.find(stands_for).is_none() {
            kept.push((*index, *price, one));
        }
    }
    kept.into_iter().map(|(index, ..)| index).collect()
}

fn within_charges(charges: &[i128], bound: &[i128]) -> bool {
    charges.iter().zip(bound).all(|(charge, bound)| charge <= bound)
}
