//! The steps that a selection takes, which tests bound: comparisons, and endpoints that are looked at.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts a step, in tests.
#[inline]
pub(super) fn count_step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// The number of steps of this thread since the last call.
#[cfg(test)]
pub(super) fn take() -> usize {
    STEPS.replace(0)
}
