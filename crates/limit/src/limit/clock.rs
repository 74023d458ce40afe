//! The assumptions of all algorithms about clocks.

use crate::time::Micros;

/// How far ahead of the clock a stamp may lie: the clocks of proxies differ by less. Beyond it the clock was set back, and
/// states move with it.
pub(super) const MAX_SKEW: Micros = Micros::SECOND;
