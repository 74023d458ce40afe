-- debt_reset: the time until a debt has drained. The fraction of a number is its remainder by 1, so q % 1 - q rounds -q up.
--
-- In   ticks; drain; ahead: how far the time of the debt is ahead of the clock
-- Out  reset in µs; without a debt it is `ahead`
reset = -ticks / drain
-- In this order: the wait may be so long that its sum with the time would not be exact.
reset = reset % 1 - reset + ahead
