//! Who hands over how many sessions to whom. Pure: every bridge that knows the same comes to the same.

use std::cmp::Reverse;

use uuid::Uuid;

/// A bridge and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub id: Uuid,
    pub held: u64,
    /// It stops: it is to hold nothing.
    pub leaves: bool,
}

/// So many sessions of one bridge go to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: Uuid,
    pub to: Uuid,
    pub count: u64,
}

/// The fewest moves after which all that stay hold the same, but for one session more or less.
#[must_use]
pub fn plan(fleet: &[Load]) -> Vec<Move> {
    let staying = fleet.iter().filter(|load| !load.leaves).count() as u64;
    if staying == 0 {
        return Vec::new();
    }
    let total: u64 = fleet.iter().map(|load| load.held).sum();
    let (share, rest) = (total / staying, total % staying);
    let mut sorted = fleet.to_vec();
    // What cannot be divided stays where most is.
    sorted.sort_by_key(|load| (load.leaves, Reverse(load.held), load.id));
    let wanted = (0_u64..).map(|place| share + u64::from(place < rest));
    let wanted = sorted.iter().zip(wanted).map(|(load, wanted)| if load.leaves { (load, 0) } else { (load, wanted) });
    let (above, below): (Vec<_>, Vec<_>) = wanted.partition(|(load, wanted)| load.held > *wanted);
    let mut takers =
        below.into_iter().map(|(load, wanted)| (load.id, wanted - load.held)).filter(|(_, room)| *room > 0);
    let mut taker = takers.next();
    let mut moves = Vec::new();
    for (load, wanted) in above {
        let mut surplus = load.held - wanted;
        while surplus > 0
            && let Some((to, room)) = taker
        {
            let count = surplus.min(room);
            moves.push(Move { from: load.id, to, count });
            surplus -= count;
            taker = if count < room { Some((to, room - count)) } else { takers.next() };
        }
    }
    moves
}

/// Whether one holds more than 1.3 times the mean, or less than 0.7 times.
#[must_use]
pub fn is_uneven(fleet: &[Load]) -> bool {
    let (count, total) = (fleet.len() as u64, fleet.iter().map(|load| load.held).sum::<u64>());
    fleet.iter().map(|load| load.held * count * 10).any(|held| held > total * 13 || held < total * 7)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn fleet(held: &[u64]) -> Vec<Load> {
        let load = |(id, held): (u128, &u64)| Load { id: Uuid::from_u128(id), held: *held, leaves: false };
        (1..).zip(held).map(load).collect()
    }

    /// What each holds after these moves.
    fn after(fleet: &[Load], moves: &[Move]) -> BTreeMap<Uuid, i128> {
        let mut held: BTreeMap<_, _> = fleet.iter().map(|load| (load.id, i128::from(load.held))).collect();
        for step in moves {
            *held.get_mut(&step.from).unwrap() -= i128::from(step.count);
            *held.get_mut(&step.to).unwrap() += i128::from(step.count);
        }
        held
    }

    #[test]
    fn a_rolled_fleet_is_evened_out_and_a_single_session_stays() {
        let counts = |held: &[u64]| after(&fleet(held), &plan(&fleet(held))).into_values().collect::<Vec<_>>();
        assert_eq!(counts(&[450, 450, 0]), [300, 300, 300]);
        assert_eq!(counts(&[5, 5, 0]), [4, 3, 3]);
        assert!(plan(&fleet(&[1, 0])).is_empty());
        assert!(plan(&fleet(&[7])).is_empty());
        assert!(plan(&[]).is_empty());
    }

    #[test]
    fn a_fleet_is_uneven_beyond_three_tenths() {
        for (held, uneven) in [
            (&[13, 10, 7][..], false),
            (&[14, 10, 6], true),
            (&[14, 8, 8], true),
            (&[12, 12, 6], true),
            (&[4, 4, 4], false),
            (&[0, 0], false),
            (&[1, 0], true),
        ] {
            assert_eq!(is_uneven(&fleet(held)), uneven, "{held:?}");
        }
    }

    proptest! {
        #[test]
        fn nobody_gives_more_than_its_surplus_and_all_end_with_the_same(
            loads in prop::collection::vec((0_u64..5_000, prop::bool::weighted(0.2)), 1..12),
        ) {
            let load = |(id, (held, leaves))| Load { id: Uuid::from_u128(id), held, leaves };
            let fleet: Vec<_> = (1..).zip(loads).map(load).collect();
            let moves = plan(&fleet);
            let end = after(&fleet, &moves);
            let staying: Vec<_> = fleet.iter().filter(|load| !load.leaves).collect();
            if staying.is_empty() {
                prop_assert!(moves.is_empty());
                return Ok(());
            }
            let total: u64 = fleet.iter().map(|load| load.held).sum();
            let (least, most) = (total / staying.len() as u64, total.div_ceil(staying.len() as u64));
            for load in &fleet {
                let (least, most) = if load.leaves { (0, 0) } else { (i128::from(least), i128::from(most)) };
                prop_assert!((least..=most).contains(&end[&load.id]), "{load:?} ends with {}", end[&load.id]);
                let gives = moves.iter().any(|step| step.from == load.id);
                let takes = moves.iter().any(|step| step.to == load.id);
                prop_assert!(!(gives && takes), "{load:?} gives and takes");
            }
            let mut turned = fleet.clone();
            turned.reverse();
            prop_assert_eq!(plan(&turned), moves);
        }
    }
}
