//! Numbers that worlds are drawn by.

/// A sequence of numbers that depends on nothing but its seed (splitmix64).
pub struct Draw(u64);

impl Draw {
    /// The sequence of a number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number.wrapping_mul(0x5851_f42d_4c95_7f2d))
    }

    /// The next number, below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Whether it is the one of so many.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of the choices.
    ///
    /// # Panics If there are none.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}
