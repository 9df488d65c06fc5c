//! Reproducible noise for tests of estimators.

/// A small generator: Knuth's multiplicative congruential one of 64 bits, upper bits only.
pub struct Noise {
    state: u64,
    last: f64,
}

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, last: 0.0 }
    }

    /// Uniform in [0, 1).
    pub fn share(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.share()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.share()).cos()
    }

    /// Standard normal, correlated by `rho` with the one before, as outcomes of one queue are.
    pub fn correlated(&mut self, rho: f64) -> f64 {
        let fresh = self.normal();
        self.last = rho * self.last + (1.0 - rho * rho).sqrt() * fresh;
        self.last
    }
}
