//! Recursive least squares in five unknowns, with forgetting, bounded uncertainty and no negatives.
//!
//! The textbook recursion (Ljung, System Identification, section 11.2). Plain forgetting lets the
//! uncertainty of a direction that nothing excites grow without end, and the next stride that does
//! excite it throws the solution far off; here it never grows past where it began.

/// A value per unknown.
pub(super) type Vector = [f64; UNKNOWNS];

/// The coefficients of the step-time formula.
const UNKNOWNS: usize = 5;

/// Share of the past that each update keeps: a memory of about a thousand strides.
const KEEP: f64 = 0.999;
/// Variance of each unknown before any update; the unknowns begin at 1. What attention adds to a prompt differs less
/// between GPUs than anything else does.
const FIRST_VARIANCES: Vector = [1.0, 1.0, 1.0, 1.0, 0.25];

/// The solution and its uncertainty.
#[derive(Clone, Debug)]
pub(super) struct Rls {
    solution: Vector,
    covariance: [Vector; UNKNOWNS],
}

impl Rls {
    pub(super) fn new() -> Self {
        Self { solution: [1.0; UNKNOWNS], covariance: first_covariance() }
    }

    /// Keeps the solution and becomes as uncertain of it as at the start.
    pub(super) fn doubt(&mut self) {
        self.covariance = first_covariance();
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

    /// Scales back every unknown whose variance has grown past the first one.
    fn bound(&mut self) {
        let mut factors = self.diagonal();
        for (factor, first) in factors.iter_mut().zip(FIRST_VARIANCES) {
            *factor = (first / *factor).min(1.0).sqrt();
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

/// Nothing is known at first of how the unknowns go together.
fn first_covariance() -> [Vector; UNKNOWNS] {
    let mut covariance = [[0.0; UNKNOWNS]; UNKNOWNS];
    for (index, (row, first)) in covariance.iter_mut().zip(FIRST_VARIANCES).enumerate() {
        if let Some(cell) = row.get_mut(index) {
            *cell = first;
        }
    }
    covariance
}

fn dot(left: &Vector, right: &Vector) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}
