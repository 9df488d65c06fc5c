//! Rows through padded trees.
//!
//! Two ways that give the same sums. A single row walks down the trees, four at a time so that one need not
//! wait for the other, and without a branch. More rows go in blocks of [`LANES`] through every node of a
//! tree from the leaves up: each node answers for all rows of the block at once and picks between what its
//! two sides came to. That asks 15 questions where 4 would do, but each takes one instruction for 4 or 8
//! rows and none waits for another. The compiler turns the loops over lanes into such instructions; they are
//! compiled once for any processor and once for those with AVX2, which is looked up when a batch comes.
//! Full blocks of [`WIDE`] rows are a quarter cheaper per row: a question is fetched once for all of them. What is left over
//! goes in blocks of [`TWICE`] while it is more than [`LANES`], which are cheaper when there are few.
//!
//! Both sum the leaves in the order of the trees in 32 bits, as ONNX Runtime does on one thread.

use std::{array, fmt::Debug};

use weir_schema::{FEATURE_COUNT, Row};

use super::padded::{COLUMNS, Latency, MISSING_YES, Padded, Trees};

/// Rows of a block.
pub(super) const LANES: usize = 8;
/// Rows of a block when there are more: as many again as are asked about after the first (docs/performance.md).
const TWICE: usize = 2 * LANES;
/// Rows of a block when there are many.
pub(super) const WIDE: usize = 32;
/// Rows from which a block is cheaper than as many walks, measured: a block costs the same for any number.
const WORTH_A_BLOCK: usize = 3;
/// Trees that a row walks down at a time.
const ABREAST: usize = 4;

/// One value for each row of a block.
type Lanes<const L: usize> = [f32; L];
/// A block, column by column.
type Block<const L: usize> = [Lanes<L>; COLUMNS];

/// Blocks that every call fills anew, for their memory: only the columns of features are ever touched.
#[derive(Debug)]
pub(super) struct Room {
    few: Block<LANES>,
    more: Block<TWICE>,
    many: Block<WIDE>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            few: [[0.0; LANES]; COLUMNS],
            more: [[0.0; TWICE]; COLUMNS],
            many: [[0.0; WIDE]; COLUMNS],
        }
    }
}

/// Trees of any size.
pub(super) trait Score: Debug + Send {
    /// Appends TTFT and TPOT of each row to `out`.
    fn score(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>);

    /// Tells every question: the feature and what it must be below.
    fn each_question(&self, tell: &mut dyn FnMut(usize, f32));
}

impl<const N: usize> Score for Trees<N> {
    fn score(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>) {
        let rest = rows.len() % LANES;
        let alone = if N > 64 {
            rows.len()
        } else if rest < WORTH_A_BLOCK {
            rest
        } else {
            0
        };
        let (blocks, single) = rows.split_at(rows.len() - alone);
        if !blocks.is_empty() {
            self.blocks(blocks, out);
        }
        out.extend(single.iter().map(|row| self.walk(row)));
    }

    fn each_question(&self, tell: &mut dyn FnMut(usize, f32)) {
        for tree in self.latencies.iter().flat_map(|latency| &latency.trees) {
            for (column, below) in tree.column.iter().zip(&tree.below).skip(1) {
                tell(usize::from(*column) % MISSING_YES, *below);
            }
        }
    }
}

impl<const N: usize> Trees<N> {
    fn walk(&self, row: &Row) -> [f32; 2] {
        let mut columns = [0.0; COLUMNS];
        let (plain, missing_yes) = columns.split_at_mut(MISSING_YES);
        for ((value, plain), missing_yes) in row.iter().zip(plain).zip(missing_yes) {
            (*plain, *missing_yes) = (above_all_if_missing(*value), *value);
        }
        let [ttft, tpot] = &self.latencies;
        let come = |latency: &Latency<N>| {
            let (fours, rest) = latency.trees.as_chunks::<ABREAST>();
            let leaves = fours.iter().flat_map(|four| leaves_of(four, &columns));
            let rest = rest.iter().flat_map(|tree| leaves_of(array::from_ref(tree), &columns));
            latency.ms(leaves.chain(rest).fold(0.0, |sum, leaf| sum + leaf), row)
        };
        [come(ttft), come(tpot)]
    }

    #[cfg(target_arch = "x86_64")]
    fn blocks(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>) {
        if std::arch::is_x86_feature_detected!("avx2") {
            #[expect(unsafe_code, reason = "a call of code for a processor with AVX2")]
            // SAFETY: the processor was just found to have AVX2, which is all that the call needs.
            return unsafe { self.blocks_with_avx2(rows, out) };
        }
        self.blocks_on_any(rows, out);
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn blocks(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>) {
        self.blocks_on_any(rows, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn blocks_with_avx2(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>) {
        self.blocks_on_any(rows, out);
    }

    #[inline(always)]
    fn blocks_on_any(&mut self, rows: &[Row], out: &mut Vec<[f32; 2]>) {
        // Of deeper trees the answers of more rows do not fit in registers.
        let fits = N <= 16;
        let (many, rest) = rows.split_at(if fits { rows.len() - rows.len() % WIDE } else { 0 });
        // Those that fill more than half of a block, and all before them.
        let in_twos = (rest.len() + LANES - 1) / TWICE * TWICE;
        let (more, few) = rest.split_at(if fits { in_twos.min(rest.len()) } else { 0 });
        blocks_of(&self.latencies, &mut self.room.many, many, out);
        blocks_of(&self.latencies, &mut self.room.more, more, out);
        blocks_of(&self.latencies, &mut self.room.few, few, out);
    }
}

#[inline(always)]
fn blocks_of<const N: usize, const L: usize>(
    [ttft, tpot]: &[Latency<N>; 2],
    block: &mut Block<L>,
    rows: &[Row],
    out: &mut Vec<[f32; 2]>,
) {
    for rows in rows.chunks(L) {
        load(rows, block);
        // Called by name: what a closure calls is compiled for any processor.
        let ttft_sums = ttft.sums(block);
        let tpot_sums = tpot.sums(block);
        for ((row, one), other) in rows.iter().zip(ttft_sums).zip(tpot_sums) {
            out.push([ttft.ms(one, row), tpot.ms(other, row)]);
        }
    }
}

impl<const N: usize> Latency<N> {
    /// The latency, in milliseconds, of a row whose leaves come to this sum.
    #[inline(always)]
    fn ms(&self, sum: f32, row: &Row) -> f32 {
        let ratio = self.base.map_or(1.0, |base| (sum + base).exp());
        let value = self.column.map_or(1.0, |column| row.get(column).copied().unwrap_or(f32::NAN));
        value * self.scale * ratio
    }

    #[inline(always)]
    fn sums<const L: usize>(&self, block: &Block<L>) -> Lanes<L> {
        let mut sums = [0.0; L];
        for tree in &self.trees {
            let leaves = match N {
                16 => four(tree, block, 1),
                _ => six(tree, block, 1),
            };
            for (sum, leaf) in sums.iter_mut().zip(leaves) {
                *sum += leaf;
            }
        }
        sums
    }
}

impl<const N: usize> Padded<N> {
    /// The node that a row goes to from a node.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "every index is below the array's power of two")]
    fn next(&self, at: usize, columns: &[f32; COLUMNS]) -> usize {
        let here = at % N;
        let value = columns[usize::from(self.column[here])];
        2 * at + usize::from(is_below(value, self.below[here]))
    }

    /// The answers of a node, as a choice between what its sides came to.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "every index is below the array's power of two")]
    fn choose<const L: usize>(
        &self,
        block: &Block<L>,
        node: usize,
        yes: Lanes<L>,
        no: Lanes<L>,
    ) -> Lanes<L> {
        let values = &block[usize::from(self.column[node % N])];
        let below = self.below[node % N];
        let mut chosen = no;
        for ((chosen, yes), value) in chosen.iter_mut().zip(yes).zip(values) {
            *chosen = if is_below(*value, below) { yes } else { *chosen };
        }
        chosen
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the index is below the array's power of two")]
    fn everywhere<const L: usize>(&self, leaf: usize) -> Lanes<L> {
        [self.leaf[leaf % N]; L]
    }
}

/// The leaves that a row reaches in some trees.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "the index is below the array's power of two")]
fn leaves_of<const N: usize, const K: usize>(
    trees: &[Padded<N>; K],
    columns: &[f32; COLUMNS],
) -> [f32; K] {
    let mut at = [1; K];
    for _ in 0..N.trailing_zeros() {
        for (at, tree) in at.iter_mut().zip(trees) {
            *at = tree.next(*at, columns);
        }
    }
    let mut leaves = [0.0; K];
    for ((leaf, at), tree) in leaves.iter_mut().zip(at).zip(trees) {
        *leaf = tree.leaf[at % N];
    }
    leaves
}

/// What a node with only leaves below it comes to.
#[inline(always)]
fn one<const N: usize, const L: usize>(
    tree: &Padded<N>,
    block: &Block<L>,
    node: usize,
) -> Lanes<L> {
    tree.choose(block, node, tree.everywhere(2 * node + 1), tree.everywhere(2 * node))
}

/// What a node comes to whose sides are a level lower.
macro_rules! taller {
    ($($name:ident over $lower:ident,)*) => {$(
        #[inline(always)]
        fn $name<const N: usize, const L: usize>(
            tree: &Padded<N>,
            block: &Block<L>,
            node: usize,
        ) -> Lanes<L> {
            let (yes, no) = ($lower(tree, block, 2 * node + 1), $lower(tree, block, 2 * node));
            tree.choose(block, node, yes, no)
        }
    )*};
}

taller! {
    two over one,
    three over two,
    four over three,
    five over four,
    six over five,
}

/// Whether a value is below a threshold, which a missing one is. Asked this way round it takes its value from memory.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "what is not a number is below")]
fn is_below(value: f32, threshold: f32) -> bool {
    !(threshold <= value)
}

fn above_all_if_missing(value: f32) -> f32 {
    if value.is_nan() { f32::INFINITY } else { value }
}

/// Puts rows into a block. Lanes beyond them get the first row again, and nobody reads them: so every lane is written alike.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a row has a value for each of the columns")]
fn load<const L: usize>(rows: &[Row], block: &mut Block<L>) {
    let Some(first) = rows.first() else { return };
    let mut lanes = [first; L];
    for (lane, row) in lanes.iter_mut().zip(rows) {
        *lane = row;
    }
    let (plain, missing_yes) = block.split_at_mut(MISSING_YES);
    let columns = plain.iter_mut().zip(missing_yes).take(FEATURE_COUNT).enumerate();
    for (column, (plain, missing_yes)) in columns {
        let mut values = [0.0; L];
        for (lane, value) in lanes.iter().zip(&mut values) {
            *value = lane[column];
        }
        *missing_yes = values;
        for value in &mut values {
            *value = above_all_if_missing(*value);
        }
        *plain = values;
    }
}
