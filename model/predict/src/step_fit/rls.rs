//! Recursive least squares in five unknowns, with forgetting, bounded uncertainty and no negatives.
//!
//! The textbook recursion (Ljung, System Identification, section 11.2). Plain forgetting lets the
//! uncertainty of a direction that nothing excites grow without end, and the next stride that does
//! excite it throws the solution far off; here what has once been found out stays nearly as certain.

/// A value per unknown.
pub(super) type Vector = [f64; UNKNOWNS];

/// The coefficients of the step-time formula.
const UNKNOWNS: usize = 5;

/// Share of the past that each update keeps: a memory of about a thousand strides.
const KEEP: f64 = 0.999;
/// Variance of each unknown before any update; the unknowns begin at 1. What a sequence costs beside others is next to nothing on
/// the default's GPU, and is a large part of the step on engines of another kind. What attention adds to a prompt differs less
/// between GPUs than anything else does.
const FIRST_VARIANCES: Vector = [4.0, 1000.0, 10.0, 4.0, 0.25];
/// How far each variance grows again once it was less.
const GROWN_VARIANCES: Vector = [1.0, 1.0, 1.0, 1.0, 0.25];

/// Larger than anything that is found.
const MOST: f64 = 1e6;

/// The solution and its uncertainty.
#[derive(Clone, Debug)]
pub(super) struct Rls {
    solution: Vector,
    covariance: [Vector; UNKNOWNS],
    /// Past which no variance grows.
    ceiling: Vector,
}

impl Rls {
    pub(super) fn new() -> Self {
        Self::around([1.0; UNKNOWNS])
    }

    /// Keeps the solution and becomes as uncertain of it as at the start.
    pub(super) fn doubt(&mut self) {
        *self = Self::around(self.solution);
    }

    /// Nothing is known but where the solution may lie, and not how the unknowns go together.
    fn around(solution: Vector) -> Self {
        let mut covariance = [[0.0; UNKNOWNS]; UNKNOWNS];
        for (index, (row, first)) in covariance.iter_mut().zip(FIRST_VARIANCES).enumerate() {
            if let Some(cell) = row.get_mut(index) {
                *cell = first;
            }
        }
        Self { solution, covariance, ceiling: FIRST_VARIANCES }
    }

    /// Its solution, its uncertainty, and past which no variance grows.
    pub(super) const fn parts(&self) -> (Vector, [Vector; UNKNOWNS], Vector) {
        (self.solution, self.covariance, self.ceiling)
    }

    /// One of these; `None` where no updates lead there.
    pub(super) fn from_parts(
        solution: Vector,
        covariance: [Vector; UNKNOWNS],
        ceiling: Vector,
    ) -> Option<Self> {
        let is_true = |value: &f64| value.is_finite() && value.abs() <= MOST;
        let mut values = solution.iter().chain(covariance.iter().flatten()).chain(&ceiling);
        let is_sound = values.all(is_true)
            && solution.iter().all(|value| *value >= 0.0)
            && ceiling.iter().all(|value| *value > 0.0);
        is_sound.then_some(Self { solution, covariance, ceiling })
    }

    pub(super) const fn solution(&self) -> &Vector {
        &self.solution
    }

    pub(super) fn predict(&self, work: &Vector) -> f64 {
        dot(&self.solution, work)
    }

    /// Moves the solution by what `residual`, known up to `variance`, says about `work`.
    pub(super) fn update(&mut self, work: &Vector, residual: f64, variance: f64) {
        let spread = self.covariance.map(|row| dot(&row, work));
        let divisor = KEEP * variance + dot(work, &spread);
        for (unknown, share) in self.solution.iter_mut().zip(spread) {
            *unknown += residual * share / divisor;
        }
        for (row, left) in self.covariance.iter_mut().zip(spread) {
            for (cell, right) in row.iter_mut().zip(spread) {
                *cell = (*cell - left * right / divisor) / KEEP;
            }
        }
        self.bound();
        self.lift();
    }

    /// Scales back every unknown whose variance has grown past its ceiling, which comes down with it.
    fn bound(&mut self) {
        let mut factors = self.diagonal();
        let ceilings = self.ceiling.iter_mut().zip(GROWN_VARIANCES);
        for (factor, (ceiling, grown)) in factors.iter_mut().zip(ceilings) {
            let variance = *factor;
            *factor = (*ceiling / variance).min(1.0).sqrt();
            *ceiling = ceiling.min(variance.max(grown));
        }
        for (row, left) in self.covariance.iter_mut().zip(factors) {
            for (cell, right) in row.iter_mut().zip(factors) {
                *cell *= left * right;
            }
        }
    }

    /// Moves negative unknowns to zero, and the others by what that implies for them.
    fn lift(&mut self) {
        let diagonal = self.diagonal();
        for _ in 0..self.solution.len() {
            let unknowns = self.solution.iter().zip(&self.covariance).zip(diagonal);
            let negative = unknowns.into_iter().find(|((unknown, _), _)| **unknown < 0.0);
            let Some(((&value, &row), variance)) = negative else { return };
            for (unknown, covariance) in self.solution.iter_mut().zip(row) {
                *unknown -= value * covariance / variance;
            }
        }
        self.solution = self.solution.map(|unknown| unknown.max(0.0));
    }

    fn diagonal(&self) -> Vector {
        let mut diagonal = FIRST_VARIANCES;
        for (index, (value, row)) in diagonal.iter_mut().zip(&self.covariance).enumerate() {
            // A variance that rounding has driven to zero would divide by it.
            *value = row.get(index).map_or(1.0, |variance| variance.max(1e-12));
        }
        diagonal
    }
}

fn dot(left: &Vector, right: &Vector) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}
