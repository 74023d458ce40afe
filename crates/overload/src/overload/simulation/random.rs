//! Random numbers that a seed repeats: xorshift64*.

#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Above 0 and below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Below `most`.
    pub fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap_or(0) % most.max(1)
    }

    /// Exponential with the mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Normal with the mean 0 and the deviation 1.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}
