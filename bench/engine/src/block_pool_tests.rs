use super::*;

/// Takes `n` blocks and publishes them as `first_hash`, `first_hash + 1`, ...
fn sequence(pool: &mut BlockPool, n: u64, first_hash: u64) -> Vec<BlockId> {
    (0..n)
        .map(|i| {
            let id = pool.take().unwrap();
            pool.publish(id, first_hash + i);
            id
        })
        .collect()
}

fn release_all(pool: &mut BlockPool, ids: &[BlockId]) {
    ids.iter().rev().for_each(|id| pool.release(*id));
}

#[test]
fn one_block_is_the_null_block_and_is_never_handed_out() {
    let mut pool = BlockPool::new(3);
    assert_eq!(pool.free(), 2);
    assert_eq!((pool.take(), pool.take(), pool.take()), (Some(1), Some(2), None));
    assert_eq!(pool.usage(), 1.0);
    assert_eq!(BlockPool::new(0).take(), None);
}

#[test]
fn cached_free_blocks_count_as_free_and_can_still_be_hit() {
    let mut pool = BlockPool::new(5);
    let ids = sequence(&mut pool, 2, 100);
    assert_eq!(pool.usage(), 0.5);
    release_all(&mut pool, &ids);
    assert_eq!(pool.usage(), 0.0);
    assert_eq!(pool.find(100), Some(ids[0]));
    pool.share(ids[0]);
    assert_eq!(pool.free(), 3, "a hit leaves the free queue");
    pool.share(ids[0]);
    assert_eq!(pool.free(), 3, "a second reference costs nothing");
}

#[test]
fn eviction_takes_the_least_recently_freed_sequence_deepest_block_first() {
    let mut pool = BlockPool::new(5);
    let old = sequence(&mut pool, 2, 100);
    let young = sequence(&mut pool, 2, 200);
    release_all(&mut pool, &old);
    release_all(&mut pool, &young);
    let mut order = Vec::new();
    for _ in 0..4 {
        pool.take();
        order.push([100, 101, 200, 201].map(|h| pool.find(h).is_some()));
    }
    assert_eq!(order[0], [true, false, true, true]);
    assert_eq!(order[1], [false, false, true, true]);
    assert_eq!(order[2], [false, false, true, false]);
    assert_eq!(order[3], [false; 4]);
}

#[test]
fn a_free_block_without_hash_is_reused_before_any_cached_one() {
    let mut pool = BlockPool::new(4);
    let cached = sequence(&mut pool, 2, 100);
    let partial = pool.take().unwrap();
    release_all(&mut pool, &cached);
    pool.release(partial);
    assert_eq!(pool.take(), Some(partial));
    assert!(pool.find(100).is_some() && pool.find(101).is_some());
}

#[test]
fn of_two_blocks_with_one_hash_the_survivor_is_found() {
    let mut pool = BlockPool::new(6);
    let twins: Vec<BlockId> = (0..4)
        .map(|_| {
            let id = pool.take().unwrap();
            pool.publish(id, 7);
            id
        })
        .collect();
    assert_eq!(pool.find(7), Some(twins[0]), "the oldest is found first");
    for (gone, left) in [(2, vec![0, 1, 3]), (0, vec![1, 3]), (3, vec![1]), (1, vec![])] {
        pool.forget(twins[gone]);
        let found = pool.find(7);
        match left.is_empty() {
            true => assert_eq!(found, None),
            false => assert!(left.iter().any(|i| Some(twins[*i]) == found), "{gone} {found:?}"),
        }
    }
}

#[test]
fn a_full_block_that_nobody_can_find_is_evicted_in_its_turn() {
    let mut pool = BlockPool::new(4);
    let own = pool.take().unwrap();
    pool.fill(own);
    let cached = sequence(&mut pool, 1, 100);
    let partial = pool.take().unwrap();
    pool.release(own);
    release_all(&mut pool, &cached);
    pool.release(partial);
    let order = [partial, own, cached[0]].map(Some);
    assert_eq!([pool.take(), pool.take(), pool.take()], order);
    pool.release(own);
    assert_eq!(pool.take(), Some(own), "it is no longer full");
}

#[test]
fn a_block_that_is_hit_again_and_again_is_evicted_by_its_last_release() {
    let mut pool = BlockPool::new(4);
    let warm = sequence(&mut pool, 1, 100)[0];
    let cold = sequence(&mut pool, 2, 200);
    pool.release(warm);
    for _ in 0..50 {
        pool.share(warm);
        pool.release(warm);
    }
    assert_eq!(pool.free(), 1);
    assert!(pool.queue.len() <= 8, "{} entries of one block", pool.queue.len());
    release_all(&mut pool, &cold);
    pool.share(warm);
    pool.release(warm);
    let order = [cold[1], cold[0], warm].map(Some);
    assert_eq!([pool.take(), pool.take(), pool.take()], order);
    assert_eq!((pool.take(), pool.free(), pool.find(100)), (None, 0, None));
}

#[test]
fn keys_that_count_up_get_neighbouring_places_and_rows_of_them_are_spread() {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};
    let place = |key: u64| BuildHasherDefault::<Spread>::default().hash_one(key);
    // What the table takes of a hash: the place from the low bits, and the highest seven to tell neighbours apart.
    let low = |key: u64| place(key) & 0xffff;
    for first in [0_u64, 160, u64::MAX - 15] {
        let row: Vec<u64> = (0..16).map(|seat| low(first + seat)).collect();
        assert!(row.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{row:?}");
        let told_apart: HashSet<u64> = (0..16).map(|seat| place(first + seat) >> 57).collect();
        assert_eq!(told_apart.len(), 16);
    }
    // As many rows as there are places for rows: thrown at random, 63 % of the places are taken.
    let rows: HashSet<u64> = (0..4096_u64).map(|row| low(row * 16) >> 4).collect();
    assert!(rows.len() > 2400, "{}", rows.len());
}

#[test]
fn what_was_cached_is_not_found_after_a_reset_unless_it_is_in_use() {
    let mut pool = BlockPool::new(4);
    let id = pool.take().unwrap();
    pool.publish(id, 7);
    assert!(!pool.reset() && pool.find(7) == Some(id), "it is in use");
    pool.release(id);
    assert!(pool.find(7).is_some() && pool.reset());
    assert_eq!((pool.find(7), pool.free()), (None, 3));
    // All of them can be handed out, and found again.
    let ids: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(ids.len(), 3);
    pool.publish(ids[2], 7);
    assert_eq!(pool.find(7), Some(ids[2]));
}
