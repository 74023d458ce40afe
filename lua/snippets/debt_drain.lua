-- debt_drain: what is left of a debt. The time of a state may be ahead of this clock.
--
-- In   made: the time of the state; ticks: its debt; stamp: now; drain
-- Out  stamp: the later of both; ticks: the debt at `stamp`
if made > stamp then stamp = made end
ticks = ticks - (stamp - made) * drain
if ticks < 0 then ticks = 0 end
