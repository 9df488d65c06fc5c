//! A tree as three arrays, of a size that the compiler knows.
//!
//! A tree is padded to a full one of `N` leaves: node 1 is the root, the answers to node `n` lead to `2n`
//! (no) and `2n + 1` (yes), and a leaf that comes early is repeated below itself. So a walk takes the same
//! number of steps for every row, has no branch and needs no check of its place. A tree of 16 leaves takes
//! 144 bytes: 100 of them for each of two targets fit in a first-level cache.

use weir_schema::FEATURE_COUNT;

use super::{
    Unfit,
    ensemble::{Ensemble, Node},
    kernel::Room,
    plan::{Plan, Product},
};

/// Deepest tree that is laid out; each level beyond doubles the room and brought no accuracy.
pub const DEEPEST: usize = 8;
/// Columns of a row as it is asked: the features with a missing value above every threshold, and from [`MISSING_YES`] on the same
/// with it below. They are as many as a byte can name, so that whatever a node names is one of them and nobody has to check.
pub(super) const COLUMNS: usize = 1 << u8::BITS;
/// A node that sends a missing value to yes asks the column this far up.
pub(super) const MISSING_YES: usize = COLUMNS / 2;
/// Most leaves, padded ones included: 36 MB of arrays.
const MOST_LEAVES: usize = 1 << 22;

const _: () = assert!(FEATURE_COUNT <= MISSING_YES, "two rows of features fit in the columns");

/// A tree of `N` leaves.
#[derive(Clone, Debug)]
pub(super) struct Padded<const N: usize> {
    /// What the value must be below; place 0 is not used.
    pub below: [f32; N],
    /// Column asked about.
    pub column: [u8; N],
    pub leaf: [f32; N],
}

/// One latency: `scale x column x exp(base + leaves)`.
#[derive(Debug)]
pub(super) struct Latency<const N: usize> {
    pub trees: Vec<Padded<N>>,
    /// `None` without trees.
    pub base: Option<f32>,
    pub scale: f32,
    pub column: Option<usize>,
}

/// Both latencies, and the room for the rows of a call.
#[derive(Debug)]
pub(super) struct Trees<const N: usize> {
    pub latencies: [Latency<N>; 2],
    pub room: Box<Room>,
}

impl<const N: usize> Trees<N> {
    /// The trees of a plan that is no deeper than `N` leaves.
    pub(super) fn of(plan: &Plan) -> Result<Self, Unfit> {
        let [ttft, tpot] = plan.latencies.map(|product| Latency::of(&product, &plan.ensembles));
        Ok(Self { latencies: [ttft?, tpot?], room: Box::default() })
    }
}

impl<const N: usize> Latency<N> {
    fn of(product: &Product, ensembles: &[Ensemble]) -> Result<Self, Unfit> {
        let Product { scale, column, ratio } = *product;
        let (mut trees, mut base) = (Vec::new(), None);
        if let Some(sum) = ratio
            && let Some(ensemble) = ensembles.get(sum.ensemble)
        {
            if ensemble.roots.len() > MOST_LEAVES / N {
                return Err(Unfit::Size);
            }
            base = ensemble.base.get(sum.target).copied();
            let pad = |root: &usize| Padded::of(ensemble, *root, sum.target);
            trees = ensemble.roots.iter().map(pad).collect();
        }
        Ok(Self { trees, base, scale, column })
    }
}

impl<const N: usize> Padded<N> {
    fn of(ensemble: &Ensemble, root: usize, target: usize) -> Self {
        let mut tree = Self { below: [0.0; N], column: [0; N], leaf: [0.0; N] };
        tree.fill(1, ensemble, root, target);
        tree
    }

    /// Fills the tree from place `at` on. Its depth is that of the padded tree.
    fn fill(&mut self, at: usize, ensemble: &Ensemble, place: usize, target: usize) {
        if let Some(end) = at.checked_sub(N) {
            if let Some(leaf) = self.leaf.get_mut(end) {
                *leaf = ensemble.weights.get(&(place, target)).copied().unwrap_or_default();
            }
            return;
        }
        let (mut if_no, mut if_yes) = (place, place);
        if let Some(Node::Split { column, below, yes, no, missing_yes }) = ensemble.nodes.get(place)
        {
            (if_no, if_yes) = (*no, *yes);
            let column = column + if *missing_yes { MISSING_YES } else { 0 };
            if let (Some(asked), Some(than)) = (self.column.get_mut(at), self.below.get_mut(at)) {
                (*asked, *than) = (column as u8, *below);
            }
        }
        self.fill(2 * at, ensemble, if_no, target);
        self.fill(2 * at + 1, ensemble, if_yes, target);
    }
}
